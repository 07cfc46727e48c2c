//! The commands inside MULTI and scripts get the same replies as alone.

use crate::harness::workload::{script, words, Command};
use crate::harness::{Client, Kind, Reply, Server};

on_every_server![
    transactions_and_scripts_get_the_same_replies,
    a_discarded_transaction_leaves_no_hold,
];

/// Every command and every kind of reply.
const STORY: [&str; 19] = [
    "LOCK.ACQUIRE k me 60000",
    "LOCK.ACQUIRE k me 60000",
    "LOCK.ACQUIRE k you 60000",
    "LOCK.ACQUIRE k you 60000 BLOCK 0", // answered at once in a context that may not block
    "LOCK.RENEW k me 60000",
    "LOCK.RENEW k you 60000",
    "RWLOCK.RLOCK k me 60000",
    "RWLOCK.RLOCK k you 60000",
    "RWLOCK.WLOCK k me 60000",
    "LOCK.INFO k",
    "LOCK.RELEASE k you",
    "RWLOCK.WLOCK k me 60000",
    "LOCK.ACQUIRE other * 60000",
    "LOCK.ACQUIRE k me 0",
    "LOCK.ACQUIRE k me 60000 NX",
    "LOCK.INFO text",
    "LOCK.RELEASE k me",
    "LOCK.RELEASE k me",
    "LOCK.INFO k",
];

/// The rendering is the same everywhere: a fence becomes its rank. A server-generated token, an
/// instant and a remaining ttl become a word.
#[derive(Default)]
struct Replies {
    fences: Vec<i64>,
}

impl Replies {
    fn of(replies: impl IntoIterator<Item = Reply>) -> Vec<Reply> {
        let mut rendering = Self::default();
        let replies = replies.into_iter();
        replies.map(|reply| rendering.plain(reply)).collect()
    }

    fn plain(&mut self, reply: Reply) -> Reply {
        match reply {
            Reply::Int(50_000..=60_000) => Reply::from("ttl"),
            Reply::Int(since) if (1 << 40..1 << 50).contains(&since) => Reply::from("since"),
            Reply::Int(fence) if fence >= 1 << 50 => {
                if !self.fences.contains(&fence) {
                    self.fences.push(fence);
                }
                let rank = self.fences.iter().position(|seen| *seen == fence);
                Reply::Other(format!("fence {}", rank.unwrap()))
            }
            Reply::Bulk(token) if token.len() == 36 => Reply::from("made"),
            Reply::Array(items) => {
                Reply::Array(items.into_iter().map(|item| self.plain(item)).collect())
            }
            other => other,
        }
    }
}

/// The replies line by line.
fn told_alone(server: &Server) -> Vec<Reply> {
    let mut c = ready(server);
    // Alone this one would wait.
    let lines = STORY.map(|line| line.replace(" BLOCK 0", ""));
    let replies = Replies::of(lines.iter().map(|line| c.call(line)));
    assert_eq!(replies[0], Reply::Other("fence 0".into()));
    assert_eq!(replies[1], replies[0]);
    assert_eq!(
        replies[2..6],
        [Reply::Nil, Reply::Nil, Reply::Int(1), Reply::Int(0)]
    );
    replies
}

/// A reply whose parts may be errors. Elsewhere one such part makes the whole reply an error.
fn send_whole(c: &mut Client, args: Command) -> Reply {
    c.pipeline(&[args]).remove(0)
}

fn ready(server: &Server) -> Client {
    let mut c = server.client();
    c.call("FLUSHALL");
    c.call("SET text text");
    c
}

fn transactions_and_scripts_get_the_same_replies(kind: Kind) {
    let server = Server::start(kind);
    let alone = told_alone(&server);

    let mut c = ready(&server);
    c.call("MULTI");
    for line in STORY {
        assert_eq!(c.call(line), Reply::Simple("QUEUED".into()));
    }
    let replies = send_whole(&mut c, words("EXEC"));
    assert_eq!(Replies::of(replies.items().to_vec()), alone);

    let mut c = ready(&server);
    let replies = STORY.map(|line| {
        let mut args = vec![
            b"EVAL".to_vec(),
            b"return redis.pcall(unpack(ARGV))".to_vec(),
        ];
        args.push(b"0".to_vec());
        args.extend(words(line));
        c.send(&args)
    });
    assert_eq!(Replies::of(replies), alone);

    let mut c = ready(&server);
    let replies = send_whole(&mut c, script(&STORY));
    let with_zeroes = alone.into_iter().map(|reply| match reply {
        Reply::Nil => Reply::Int(0), // as the script has it
        other => other,
    });
    assert_eq!(
        Replies::of(replies.items().to_vec()),
        with_zeroes.collect::<Vec<_>>()
    );
}

fn a_discarded_transaction_leaves_no_hold(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.call("MULTI");
    c.call("LOCK.ACQUIRE k me 60000");
    c.call("DISCARD");
    assert_eq!(c.call("LOCK.INFO k"), Reply::Nil);
    c.call("MULTI");
    c.call("LOCK.ACQUIRE k me 60000");
    c.error("LOCK.NONSENSE k"); // refused before it is queued
    c.refused("EXEC", "EXECABORT");
    assert_eq!(c.call("LOCK.INFO k"), Reply::Nil);
}
