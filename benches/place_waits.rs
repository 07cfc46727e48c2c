//! Waiting by NOTIFY beside BLOCK: hand-offs per second; and the turns of clients that slice or
//! poll among clients that block.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use crate::fixture::{name, Fixture};
use crate::harness::{Client, Reply};
use crate::load::{token, Requests};
use crate::load_clients::LoadClients;
use crate::peers::{Protocol, Scripts};
use crate::report::{Bound, Report};
use crate::stats::Spread;
use crate::Run;

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(1);
/// The clients that block.
const BLOCKED: usize = 256;
/// The places of NOTIFY. Each process has one connection that asks and one that listens.
const PLACES: usize = 10_000;
const PROCESSES: usize = 2;

/// The clients that block among which one slices and one polls. All of them together hold the lock
/// for longer than a slice.
const NEIGHBOURS: usize = 12;
const HOLD: Duration = Duration::from_millis(18);
const SLICE: &str = "BLOCK 200 KEEP 1000";
const POLL: &str = "KEEP 1000";
const PAUSE: Duration = Duration::from_millis(5);
const TURNS: usize = 100;
const PATIENCE: Duration = Duration::from_secs(180);

pub fn measure(with: &Run) {
    let title = "Waiting by NOTIFY, in slices, and by polling";
    let mut report = Report::new("place-waits", title, with.quick);
    hand_offs(with, &mut report);
    shares(with, &mut report);
    report.write();
}

fn hand_offs(with: &Run, report: &mut Report) {
    report.say(&format!(
        "### Hand-offs by NOTIFY\n\nThe table shows hand-offs per second of one lock with a hold of 0 ms. There are {PLACES} places of NOTIFY over {} connections ({PROCESSES} that ask and {PROCESSES} that listen), and {BLOCKED} clients in BLOCK, in turns.",
        2 * PROCESSES
    ));
    let mut rows = Vec::new();
    for &kind in &with.kinds {
        let (mut notified, mut blocked) = (Vec::new(), Vec::new());
        for round in 0..=with.rounds(ROUNDS) {
            let by_notify = notify(&mut Fixture::start(kind, &[]), with.size(PLACES));
            // On a server of its own: tokens that hold one lock and wait for the other could close a
            // cycle.
            let by_block = block(&mut Fixture::start(kind, &[]));
            if round > 0 {
                notified.push(by_notify);
                blocked.push(by_block);
            }
        }
        let ratio = Spread::of_ratios(&notified, &blocked);
        let goal =
            "hand-offs/s by NOTIFY, 10,000 places over 4 connections, against 256 clients in BLOCK";
        report.goal(kind, goal, "", Bound::AtLeast(0.5), ratio);
        let (notified, blocked) = (Spread::of(&notified), Spread::of(&blocked));
        report.figure(kind, "hand-offs/s", "NOTIFY", notified);
        report.figure(kind, "hand-offs/s", "BLOCK", blocked);
        rows.push(vec![
            name(kind).to_string(),
            notified.shown(0),
            blocked.shown(0),
            ratio.shown(2),
        ]);
    }
    report.table(&["server", "NOTIFY", "BLOCK", "ratio"], &rows);
}

fn block(fixture: &mut Fixture) -> f64 {
    let scripts = Scripts::load(&mut fixture.control);
    let members = (0..BLOCKED).map(|n| Protocol::Lock.script(n, &scripts));
    let mut clients = LoadClients::connect(fixture.server.port, members.collect(), Duration::ZERO);
    let outcome = clients.contend(ROUND);
    outcome.hand_offs as f64 / outcome.seconds
}

fn notify(fixture: &mut Fixture, places: usize) -> f64 {
    fixture.control.int("LOCK.ACQUIRE shared holder 60000");
    let mut processes: Vec<_> = (0..PROCESSES)
        .map(|n| Process::start(fixture.server.port, n))
        .collect();
    for n in 0..places {
        processes[n % PROCESSES].take_place(&token(n));
    }
    let (over, grants) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut seconds = 0.0;
    thread::scope(|scope| {
        for process in processes {
            scope.spawn(|| process.serve(&over, &grants));
        }
        let begin = Instant::now();
        fixture.control.int("LOCK.RELEASE shared holder");
        thread::sleep(ROUND);
        over.store(true, SeqCst);
        seconds = begin.elapsed().as_secs_f64();
    });
    grants.load(SeqCst) as f64 / seconds
}

/// A process whose callers share two connections.
struct Process {
    name: String,
    asks: TcpStream,
    hears: BufReader<TcpStream>,
}

impl Process {
    fn start(port: u16, number: usize) -> Self {
        let connect = || {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection");
            stream.set_nodelay(true).unwrap();
            stream
        };
        let name = format!("grants:{number}");
        let mut hears = connect();
        hears
            .write_all(Requests::of([format!("SUBSCRIBE {name}")]).bytes())
            .unwrap();
        let mut hears = BufReader::new(hears);
        // *3, subscribe, the channel, and the number of subscriptions.
        (0..6).for_each(|_| drop(line(&mut hears)));
        hears
            .get_ref()
            .set_read_timeout(Some(Duration::from_millis(300)))
            .unwrap();
        Self {
            name,
            asks: connect(),
            hears,
        }
    }

    fn ask(&self, token: &str) -> String {
        let name = &self.name;
        format!("LOCK.ACQUIRE shared {token} 60000 NOTIFY 0 {name} KEEP 5000")
    }

    fn take_place(&mut self, token: &str) {
        let asked = Requests::of([self.ask(token)]);
        self.asks.write_all(asked.bytes()).unwrap();
        let mut reply = [0; "+QUEUED\r\n".len()];
        self.asks.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"+QUEUED\r\n");
    }

    /// Each caller that is granted releases at once, and takes a place again.
    fn serve(mut self, over: &AtomicBool, grants: &AtomicUsize) {
        let mut message = String::new();
        loop {
            // *3, message, the channel, and the text.
            for _ in 0..7 {
                message.clear();
                match self.hears.read_line(&mut message) {
                    Ok(1..) => {}
                    _ if over.load(SeqCst) => return,
                    _ => panic!("no message for a while"),
                }
            }
            if over.load(SeqCst) {
                return;
            }
            let token = message.trim_end().rsplit(' ').next().expect("a token");
            let again = self.ask(token);
            let requests = Requests::of([format!("LOCK.RELEASE shared {token}"), again]);
            self.asks.write_all(requests.bytes()).unwrap();
            grants.fetch_add(1, SeqCst);
            let mut reply = [0; ":1\r\n+QUEUED\r\n".len()];
            self.asks.read_exact(&mut reply).unwrap();
            assert_eq!(&reply, b":1\r\n+QUEUED\r\n");
        }
    }
}

fn line(from: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    from.read_line(&mut line).expect("a line");
    line
}

fn shares(with: &Run, report: &mut Report) {
    report.say(&format!(
        "### A client that slices, and one that polls, among {NEIGHBOURS} that block\n\nThe table shows the grants of the client beside the mean of those that block (BLOCK 0). Each hold lasts {} ms. \
         The one says `{SLICE}` again and again, the other `{POLL}` every {} ms.",
        HOLD.as_millis(),
        PAUSE.as_millis()
    ));
    let mut rows = Vec::new();
    for &kind in &with.kinds {
        let fixture = Fixture::start(kind, &[]);
        let (over, all) = (AtomicBool::new(false), AtomicUsize::new(0));
        let words = ["BLOCK 0"; NEIGHBOURS].into_iter().chain([SLICE, POLL]);
        let grants: Vec<f64> = thread::scope(|scope| {
            let clients: Vec<_> = words
                .enumerate()
                .map(|(n, words)| {
                    let (client, over, all) = (fixture.server.client(), &over, &all);
                    scope.spawn(move || turns(client, &token(n), words, (over, all)))
                })
                .collect();
            let turns = with.size(TURNS).max(5);
            let begin = Instant::now();
            while all.load(SeqCst) < (NEIGHBOURS + 2) * turns {
                assert!(begin.elapsed() < PATIENCE, "too few turns");
                thread::sleep(HOLD);
            }
            over.store(true, SeqCst);
            let grants = clients.into_iter().map(|client| client.join().unwrap());
            grants.map(|grants| grants as f64).collect()
        });
        let [blocks @ .., slices, polls] = &grants[..] else {
            unreachable!("two more");
        };
        let mean = blocks.iter().sum::<f64>() / NEIGHBOURS as f64;
        let ratios = [slices / mean, polls / mean];
        for (who, ratio) in ["slices", "polls"].into_iter().zip(ratios) {
            let goal = format!("grants of a client that {who} with KEEP against those that block");
            let ratio = Spread::of(&[ratio]);
            report.goal(kind, &goal, "", Bound::AtLeast(0.98), ratio);
        }
        let mut row = vec![name(kind).to_string()];
        row.extend([mean, *slices, *polls].map(|grants| format!("{grants:.1}")));
        row.extend(ratios.map(|ratio| format!("{ratio:.3}")));
        rows.push(row);
    }
    report.table(
        &[
            "server",
            "grants of each that blocks",
            "slices",
            "polls",
            "slices, ratio",
            "polls, ratio",
        ],
        &rows,
    );
}

/// Takes turns until all is over. Returns how many it has had.
fn turns(
    mut client: Client,
    token: &str,
    words: &str,
    (over, all): (&AtomicBool, &AtomicUsize),
) -> usize {
    let mut grants = 0;
    while !over.load(SeqCst) {
        match client.call(&format!("LOCK.ACQUIRE fair {token} 60000 {words}")) {
            Reply::Int(_) => {
                let counts = usize::from(!over.load(SeqCst));
                grants += counts;
                all.fetch_add(counts, SeqCst);
                thread::sleep(HOLD);
                client.int(&format!("LOCK.RELEASE fair {token}"));
            }
            Reply::Nil if words == POLL => thread::sleep(PAUSE),
            Reply::Nil => {}
            other => panic!("{words}: {other:?}"),
        }
    }
    // A place that is left would hold up the others.
    client.int(&format!("LOCK.RELEASE fair {token}"));
    grants
}
