//! Users with no more rights than the crate needs.

use std::sync::atomic::Ordering::SeqCst;
use std::thread;

use redis_lock_client::{Error, Options, Result};

use super::common::{Admin, BOUND, Cluster, Server, counter, eventually};
use super::{LISTENS, cluster, get, library, ms, now, once, open};

const LOCKS: &str = "+lock.acquire +rwlock.rlock +rwlock.wlock +lock.macquire +lock.release \
                     +lock.renew +lock.check +lock.exec";
/// `aio` listens for its grants, at a server or at a node.
const LISTEN: [&str; 2] = match LISTENS {
    true => [
        "+subscribe +ping &redis-lock:*",
        "+ssubscribe +ping &redis-lock:*",
    ],
    false => ["", ""],
};
/// The user of the project's documents, who has neither several locks nor a channel.
const DOCUMENTED: &str =
    "+lock.acquire +rwlock.wlock +rwlock.rlock +lock.renew +lock.release +ping";

/// Lets a worker do so much, and remembers no refusals of before.
fn user(admin: &mut Admin, rules: &[&str]) {
    let mut words = vec!["ACL", "SETUSER", "worker", "reset", "on", ">secret"];
    words.extend(["~jobs:*", "resetchannels", "-@all"]);
    words.extend(rules.iter().flat_map(|rules| rules.split_whitespace()));
    admin.run(&words);
    admin.run(&["ACL", "LOG", "RESET"]);
}

fn as_worker(url: &str) -> String {
    url.replace("://", "://worker:secret@")
}

/// Nothing but such commands was refused. No name of a library is sent, so that is not either.
fn only_refused(admin: &mut Admin, command: &str) {
    let log = admin.run(&["ACL", "LOG"]);
    for entry in log.as_sequence().unwrap() {
        let entry = format!("{entry:?}");
        assert!(!command.is_empty() && entry.contains(command), "{entry}");
    }
}

/// One of each kind, while another client holds the lock that is waited for.
fn each_operation(locks: &library::LockClient, admin: &mut Admin) -> Result<()> {
    let guard = now(locks.lock("jobs:{1}").lock())?;
    now(guard.renew())?;
    assert!(now(guard.check())?);
    let () = now(guard.exec(redis::cmd("SET").arg("jobs:{1}v").arg(1)))?;
    now(guard.unlock())?;
    let mut guard = now(locks.rwlock("jobs:{1}").read())?;
    now(guard.upgrade())?;
    now(guard.downgrade())?;
    now(guard.unlock())?;
    now(now(locks.semaphore("jobs:{1}", 2).acquire())?.unlock())?;
    let both = locks.multi_lock(["jobs:{1}", "jobs:{1}2"]);
    now(now(both.lock())?.unlock())?;
    once(locks, ("jobs:{1}", 1_000, 1), || ())?.unwrap();
    // The least time may hold it for a moment more.
    let lock = locks.lock("jobs:{1}");
    now(now(lock.lock())?.unlock())?;

    admin.run(&["LOCK.ACQUIRE", "jobs:{1}", "holder", "60000"]);
    assert!(now(lock.lock_timeout(ms(50)))?.is_none());
    let waiting = thread::spawn(move || now(now(lock.lock_timeout(BOUND))?.unwrap().unlock()));
    admin.await_waiters("jobs:{1}", 1);
    admin.run(&["LOCK.RELEASE", "jobs:{1}", "holder"]);
    waiting.join().unwrap()
}

#[test]
fn a_worker_needs_the_locks_commands_and_a_channel() {
    let server = Server::start();
    let mut admin = server.admin();
    user(&mut admin, &[LOCKS, "+set", LISTEN[0]]);
    let (said, count) = counter::<str>();
    let options = Options::default().on_fallback(count);
    let locks = open(as_worker(&server.url()), options);
    each_operation(&locks, &mut admin).unwrap();
    only_refused(&mut admin, "");
    assert_eq!(said.load(SeqCst), 0);
}

/// Without a channel connections wait.
#[test]
fn the_worker_of_the_documents_locks_and_waits() {
    let server = Server::start();
    let mut admin = server.admin();
    user(&mut admin, &[DOCUMENTED]);
    let (said, count) = counter::<str>();
    let options = Options::default().slice(ms(50)).on_fallback(count);
    let locks = open(as_worker(&server.url()), options);
    admin.run(&["LOCK.ACQUIRE", "jobs:1", "holder", "60000"]);
    let lock = locks.rwlock("jobs:1");
    let waiting = thread::spawn(move || now(lock.read_timeout(BOUND)).unwrap().unwrap());
    admin.await_waiters("jobs:1", 1);
    let asked = admin.calls("rwlock.rlock");
    eventually("slices pass", || admin.calls("rwlock.rlock") > asked + 4);
    assert!(!admin.info("jobs:1").contains("channel"));
    assert_eq!(said.load(SeqCst), usize::from(LISTENS));
    admin.run(&["LOCK.RELEASE", "jobs:1", "holder"]);
    let guard = waiting.join().unwrap();
    now(guard.renew()).unwrap();
    now(guard.unlock()).unwrap();
    assert_eq!(once(&locks, ("jobs:1", 1_000, 1), || 7).unwrap(), Some(7));
    only_refused(&mut admin, if LISTENS { "subscribe" } else { "" });
}

#[test]
fn a_worker_of_a_cluster_needs_the_slots_too() {
    let servers = Cluster::start();
    for node in &servers.nodes {
        let rules = [LOCKS, "+set +cluster|slots +asking", LISTEN[1]];
        user(&mut node.admin(), &rules);
    }
    let urls = servers.urls().iter().map(|url| as_worker(url)).collect();
    // The slot of jobs:{1} is 9842.
    let mut admin = servers.nodes[1].admin();
    let (said, count) = counter::<str>();
    let locks = cluster(urls, Options::default().on_fallback(count));
    each_operation(&locks, &mut admin).unwrap();
    for node in &servers.nodes {
        only_refused(&mut node.admin(), "");
    }
    assert_eq!(said.load(SeqCst), 0);
}

/// Without the right to store it the error is the maker's only. Nobody waits for the ttl.
#[test]
fn a_result_needs_its_rights_and_no_more() {
    let server = Server::start();
    let mut admin = server.admin();
    let rules = "+lock.once +lock.exec +lock.renew +lock.release +get +pttl ~{jobs}:once ~jobs";
    user(&mut admin, &[rules]);
    let locks = open(as_worker(&server.url()), Options::default());
    let make = || get(&locks.once("jobs"), |_| Ok("new".to_owned()));
    match make() {
        Err(Error::Redis(error)) => assert_eq!(error.code(), Some("NOPERM")),
        other => panic!("{other:?}"),
    }
    assert!(admin.is_free("{jobs}:once") && admin.is_free("jobs"));
    admin.run(&["ACL", "SETUSER", "worker", "+set"]);
    assert_eq!(make().unwrap(), "new");
}

#[test]
fn a_worker_of_the_fallback_needs_the_commands_of_its_scripts() {
    let server = Server::start_without_module();
    let mut admin = server.admin();
    user(&mut admin, &["+eval +set +get +pexpire +del"]);
    let options = Options::default().fallback(true);
    let locks = open(as_worker(&server.url()), options);
    let guard = now(locks.lock("jobs:1").lock()).unwrap();
    now(guard.renew()).unwrap();
    assert!(now(guard.check()).unwrap());
    assert!(now(locks.lock("jobs:1").try_lock()).unwrap().is_none());
    now(guard.unlock()).unwrap();
    only_refused(&mut admin, "");
}
