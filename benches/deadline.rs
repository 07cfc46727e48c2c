//! Lateness: how late the next waiter gets the lock of a dead holder, and how late a wait times
//! out.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::fixture::{name, Fixture};
use crate::harness::{wait_for, Client, Kind};
use crate::report::{Bound, Report};
use crate::stats::{shown_us, Spread};
use crate::Run;

/// Locks measured at the same time. Each has a holder that dies and one client that wants it.
const LOCKS: usize = 8;
const DEATHS: usize = 40;
/// This leaves room for protocols that are up to a tenth of a second late.
const SLOW_DEATHS: usize = 12;
const GOAL_US: [(&str, f64, f64); 2] = [("p50", 0.5, 1_000.0), ("p99", 0.99, 2_000.0)];

/// Lateness in µs, by the server's clock if it is known, else by the client's clock on the same
/// machine.
type Lateness = Vec<f64>;

pub fn measure(with: &Run) {
    let mut report = Report::new("deadline", "Time that runs out", with.quick);
    next_holder(with, &mut report);
    time_outs(with, &mut report);
    report.write();
}

/// Runs the same measurement in several threads and merges the results.
fn together(count: usize, work: impl Fn(usize) -> Lateness + Sync) -> Lateness {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..count).map(|n| scope.spawn(move || work(n))).collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    })
}

/// A server begins its fences a second ahead of its clock.
fn until_fences_tell_the_time(fixture: &mut Fixture) {
    wait_for("the clock to have caught up with the fences", || {
        let fence = fixture.control.int("LOCK.ACQUIRE clock me 1");
        fixture.control.call("DEL clock");
        (fence as f64 <= now_us()).then_some(())
    });
}

fn now_us() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    now.as_nanos() as f64 / 1000.0
}

/// The time of death varies, so that it is not in step with any period of the server or of a
/// client.
fn ttl_ms(lock: usize, death: usize) -> i64 {
    25 + ((lock * 17 + death * 7) % 20) as i64
}

fn next_holder(with: &Run, report: &mut Report) {
    report.say(
        "### The holder dies\n\nThe time runs from the deadline of a lock whose holder is gone until the next client has it. There are 8 locks at a time, with a ttl of 25 to 44 ms. \
         That is longer than the pause of a client that polls. With the BLPOP signal it is 3 s, because its waiters look again after that time. `granted` is by the server's clock: a fence is the microsecond of its \
         grant. The others are by the client's clock, and include the way of the reply. Early is before the end of the deadline's own millisecond, \
         within which Redis 8.2 ends every key.",
    );
    let deaths = with.size(DEATHS).max(4);
    let slow = with.size(SLOW_DEATHS).max(2);
    let mut rows = Vec::new();
    for &kind in &with.kinds {
        let mut fixture = Fixture::start(kind, &[]);
        until_fences_tell_the_time(&mut fixture);
        let both = together(LOCKS, |lock| died(&fixture, lock, deaths));
        let (granted, heard): (Vec<_>, Vec<_>) =
            both.iter().enumerate().partition(|(n, _)| n % 2 == 0);
        let values =
            |of: Vec<(usize, &f64)>| of.into_iter().map(|(_, late)| *late).collect::<Vec<_>>();
        let granted = values(granted);
        for (share, at, limit) in GOAL_US {
            let late = spread(&granted, at);
            report.goal(
                kind,
                &format!("deadline to the next grant, {share}, µs"),
                "",
                Bound::AtMost(limit),
                late,
            );
        }
        let early = granted.iter().filter(|late| **late < earliest_us(kind));
        let early = Spread::of(&[early.count() as f64]);
        let goal = "grants before the deadline";
        report.goal(kind, goal, "", Bound::AtMost(0.0), early);
        row(
            report,
            &mut rows,
            kind,
            "LOCK.ACQUIRE BLOCK, granted",
            &granted,
        );
        row(
            report,
            &mut rows,
            kind,
            "LOCK.ACQUIRE BLOCK, the reply",
            &values(heard),
        );
        for (pause, deaths) in [(1, deaths), (10, deaths), (100, slow)] {
            let late = together(LOCKS, |lock| polled(&fixture, lock, deaths, pause));
            row(report, &mut rows, kind, &format!("poll {pause} ms"), &late);
        }
        if !with.quick {
            let late = together(2 * LOCKS, |lock| signalled(&fixture, lock));
            row(report, &mut rows, kind, "BLPOP signal, ttl 3 s", &late);
        }
    }
    report.table(
        &[
            "server",
            "who waits",
            "p50",
            "p99",
            "max",
            "early",
            "deaths",
        ],
        &rows,
    );
}

/// Redis 8.2 expires a key within the millisecond of its deadline, instead of after it.
fn earliest_us(kind: Kind) -> f64 {
    if kind == Kind::Redis8_2 {
        -1_000.0
    } else {
        0.0
    }
}

fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

/// With the smallest and the largest value of four parts.
fn spread(values: &[f64], share: f64) -> Spread {
    let parts = values.chunks(values.len().div_ceil(4));
    let parts: Vec<f64> = parts.map(|part| quantile(part, share)).collect();
    Spread {
        median: quantile(values, share),
        ..Spread::of(&parts)
    }
}

fn row(report: &mut Report, rows: &mut Vec<Vec<String>>, kind: Kind, who: &str, late: &Lateness) {
    let mut row = vec![name(kind).to_string(), who.to_string()];
    for (share, at) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
        let value = quantile(late, at);
        report.figure(
            kind,
            &format!("lateness {share} µs"),
            who,
            Spread::of(&[value]),
        );
        row.push(shown_us(value));
    }
    let early = late.iter().filter(|late| **late < 0.0).count();
    row.extend([early.to_string(), late.len().to_string()]);
    println!("{}", row.join(" | "));
    rows.push(row);
}

/// The lateness of each grant, and then of its reply.
fn died(fixture: &Fixture, lock: usize, deaths: usize) -> Lateness {
    let (mut dead, mut next) = (fixture.server.client(), fixture.server.client());
    let mut late = Vec::new();
    for death in 0..deaths {
        let ttl = ttl_ms(lock, death);
        let first = dead.int(&format!("LOCK.ACQUIRE lock:{lock} dead {ttl}"));
        let second = next.int(&format!("LOCK.ACQUIRE lock:{lock} next 60000 BLOCK 0"));
        let heard = now_us();
        next.int(&format!("LOCK.RELEASE lock:{lock} next"));
        // The deadline's own millisecond still belongs to the hold.
        let end = ((first / 1000 + ttl + 1) * 1000) as f64;
        late.extend([second as f64 - end, heard - end]);
    }
    late
}

/// The earliest instant at which a string lock set just now expires. The server's millisecond of
/// the command is not before ours.
fn end_of(client: &mut Client, line: &str, ttl: i64) -> f64 {
    let set_ms = (now_us() / 1000.0).floor();
    client.call(line);
    (set_ms + ttl as f64 + 1.0) * 1000.0
}

fn polled(fixture: &Fixture, lock: usize, deaths: usize, pause_ms: u64) -> Lateness {
    let mut client = fixture.server.client();
    let deaths = (0..deaths).map(|death| {
        // This is longer than the pause. Otherwise the first try after the deadline would not come
        // at a random moment.
        let ttl = ttl_ms(lock, death * 3)
            + (death as i64 * 41 + lock as i64 * 13) % pause_ms as i64
            + pause_ms as i64;
        let end = end_of(
            &mut client,
            &format!("SET string:{lock} dead PX {ttl}"),
            ttl,
        );
        while client.call(&format!("SET string:{lock} next NX PX 60000"))
            == crate::harness::Reply::Nil
        {
            thread::sleep(Duration::from_millis(pause_ms));
        }
        now_us() - end
    });
    deaths.collect()
}

fn signalled(fixture: &Fixture, lock: usize) -> Lateness {
    const TTL_MS: i64 = 3_000;
    let mut client = fixture.server.client();
    let end = end_of(
        &mut client,
        &format!("SET string:{lock} dead PX {TTL_MS}"),
        TTL_MS,
    );
    // The next client arrives at a random time within the dead holder's ttl.
    thread::sleep(Duration::from_millis(180 * lock as u64));
    while client.call(&format!("SET string:{lock} next NX PX 60000")) == crate::harness::Reply::Nil
    {
        client.call(&format!("BLPOP signal:{lock} 3"));
    }
    vec![now_us() - end]
}

fn time_outs(with: &Run, report: &mut Report) {
    report.say(
        "### The waiter gives up\n\nThe time runs from the end of the BLOCK time-out, 5 to 44 ms, to the reply, by the clients' clock. There are 8 clients at a time. \
         Beside it is BLPOP's time-out.",
    );
    let count = with.size(DEATHS).max(4);
    let mut rows = Vec::new();
    for &kind in &with.kinds {
        let fixture = Fixture::start(kind, &[]);
        fixture
            .server
            .client()
            .int("LOCK.ACQUIRE held holder 6000000");
        let lock = |n: usize, ms: u64| format!("LOCK.ACQUIRE held waiter-{n} 1000 BLOCK {ms}");
        let late = together(LOCKS, |n| gave_up(&fixture, n, count, &lock));
        // The figure includes the time of the reply, so a figure before the deadline certainly
        // means an early grant.
        let early = late.iter().filter(|late| **late < 0.0).count();
        let p99 = spread(&late, 0.99);
        report.goal(
            kind,
            "BLOCK time-outs before their time",
            "",
            Bound::AtMost(0.0),
            Spread::of(&[early as f64]),
        );
        report.goal(
            kind,
            "BLOCK time-out's lateness, p99, µs",
            "",
            Bound::AtMost(2_000.0),
            p99,
        );
        row(report, &mut rows, kind, "LOCK.ACQUIRE BLOCK", &late);
        let list = |_: usize, ms: u64| format!("BLPOP list {}", ms as f64 / 1000.0);
        let late = together(LOCKS, |n| gave_up(&fixture, n, count, &list));
        row(report, &mut rows, kind, "BLPOP", &late);
    }
    report.table(
        &[
            "server",
            "who waits",
            "p50",
            "p99",
            "max",
            "early",
            "time-outs",
        ],
        &rows,
    );
}

fn gave_up(
    fixture: &Fixture,
    client: usize,
    count: usize,
    line: &(impl Fn(usize, u64) -> String + Sync),
) -> Lateness {
    let mut connection = fixture.server.client();
    let waits = (0..count).map(|n| {
        let ms = 5 + ((client * 13 + n * 7) % 40) as u64;
        let line = line(client, ms);
        let begin = Instant::now();
        connection.call(&line);
        begin.elapsed().as_secs_f64() * 1e6 - ms as f64 * 1000.0
    });
    waits.collect()
}
