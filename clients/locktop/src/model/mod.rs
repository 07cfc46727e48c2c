//! What is known of the servers, and what of it is shown in which order. No connection, no
//! terminal, no clock.

pub(crate) mod info;
pub(crate) mod lock;
pub(crate) mod past;

use std::time::Duration;

use info::{Info, Rates};
use lock::{Detail, Lock, Place};
use past::{Asked, Contended, Forced};

/// One look at one server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Snapshot {
    /// When it was taken, since the program's start.
    pub(crate) at: Duration,
    pub(crate) info: Info,
    pub(crate) locks: Vec<Lock>,
    /// What could not be asked, in sentences.
    pub(crate) notes: Vec<String>,
    /// The lock that was asked for, if one was. None inside if it is free and nobody waits.
    pub(crate) detail: Option<(Place, Result<Option<Detail>, String>)>,
    pub(crate) contended: Asked<Contended>,
    pub(crate) log: Asked<Forced>,
}

impl Snapshot {
    /// Tells what only two looks tell: who renews.
    fn follow(&mut self, before: &Self) {
        let passed = self.at.saturating_sub(before.at).as_millis();
        let passed_ms = u64::try_from(passed).unwrap_or(u64::MAX);
        for lock in &mut self.locks {
            let known = before.locks.iter().find(|old| old.place == lock.place);
            let known = known.and_then(|old| old.oldest.as_ref());
            if let (Some(oldest), Some(known)) = (&mut lock.oldest, known) {
                oldest.follow(known, passed_ms);
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum State {
    /// It has not answered yet.
    Connecting,
    Up(Box<Snapshot>),
    Down(String),
}

#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) state: State,
    pub(crate) rates: Rates,
    /// What rates are counted from. It outlives the time during which the server is down.
    sample: Option<(Duration, Info)>,
}

impl Server {
    pub(crate) fn snapshot(&self) -> Option<&Snapshot> {
        match &self.state {
            State::Up(snapshot) => Some(snapshot),
            State::Connecting | State::Down(_) => None,
        }
    }

    fn update(&mut self, result: Result<Snapshot, String>) {
        match result {
            Err(error) => {
                self.state = State::Down(error);
                self.rates = Rates::default();
                self.sample = None;
            }
            Ok(mut snapshot) => {
                if let Some(before) = self.snapshot() {
                    snapshot.follow(before);
                }
                if let Some((at, before)) = &self.sample {
                    let seconds = snapshot.at.saturating_sub(*at).as_secs_f64();
                    self.rates = Rates::between(before, &snapshot.info, seconds);
                }
                self.sample = Some((snapshot.at, snapshot.info.clone()));
                self.state = State::Up(Box::new(snapshot));
            }
        }
    }
}

/// All servers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) servers: Vec<Server>,
}

/// A lock and the server that has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Row<'a> {
    pub(crate) server: &'a str,
    pub(crate) lock: &'a Lock,
}

/// Names a lock among all servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) server: String,
    pub(crate) place: Place,
}

impl Row<'_> {
    pub(crate) fn target(&self) -> Target {
        Target {
            server: self.server.to_owned(),
            place: self.lock.place.clone(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sort {
    #[default]
    Wait,
    Waiters,
    Holders,
    Age,
    Key,
}

impl Sort {
    pub(crate) fn next(self) -> Self {
        match self {
            Self::Wait => Self::Waiters,
            Self::Waiters => Self::Holders,
            Self::Holders => Self::Age,
            Self::Age => Self::Key,
            Self::Key => Self::Wait,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Waiters => "waiters",
            Self::Holders => "holders",
            Self::Age => "age",
            Self::Key => "key",
        }
    }
}

/// The order of the rows, and which of them are shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    pub(crate) sort: Sort,
    pub(crate) reverse: bool,
    /// A part of the key as it is shown.
    pub(crate) filter: String,
}

impl Model {
    /// Makes the servers those of the names. What is known of one that stays is kept.
    pub(crate) fn set_servers(&mut self, names: &[String]) {
        let mut known = std::mem::take(&mut self.servers);
        for name in names {
            let at = known.iter().position(|server| &server.name == name);
            self.servers.push(at.map_or_else(
                || Server {
                    name: name.clone(),
                    state: State::Connecting,
                    rates: Rates::default(),
                    sample: None,
                },
                |at| known.swap_remove(at),
            ));
        }
    }

    /// A look at a server that has gone is dropped.
    pub(crate) fn update(&mut self, name: &str, result: Result<Snapshot, String>) {
        if let Some(server) = self.servers.iter_mut().find(|server| server.name == name) {
            server.update(result);
        }
    }

    pub(crate) fn server(&self, name: &str) -> Option<&Server> {
        self.servers.iter().find(|server| server.name == name)
    }

    /// What was last heard of the lock.
    pub(crate) fn detail(&self, target: &Target) -> Option<&Result<Option<Detail>, String>> {
        let (place, detail) = self.server(&target.server)?.snapshot()?.detail.as_ref()?;
        (*place == target.place).then_some(detail)
    }

    /// The most contended keys of all servers, the largest total first.
    pub(crate) fn contended(&self) -> Vec<(&str, &Contended)> {
        let mut keys = self.past(|snapshot| &snapshot.contended);
        keys.sort_by(|(a_server, a), (b_server, b)| {
            let by_total = b.waited_ms.cmp(&a.waited_ms);
            by_total.then_with(|| (&a.place, a_server).cmp(&(&b.place, b_server)))
        });
        keys
    }

    /// The logs of all servers, the newest entry first.
    pub(crate) fn log(&self) -> Vec<(&str, &Forced)> {
        let mut entries = self.past(|snapshot| &snapshot.log);
        // The sort is stable, so each server's own order stays.
        entries.sort_by_key(|(_, entry)| std::cmp::Reverse(entry.time_ms));
        entries
    }

    fn past<'a, T>(&'a self, of: impl Fn(&'a Snapshot) -> &'a Asked<T>) -> Vec<(&'a str, &'a T)> {
        let answer = |server: &'a Server| {
            let list = server.snapshot().and_then(|snapshot| of(snapshot).as_ref());
            let list = list.and_then(|answer| answer.as_ref().ok());
            let name = server.name.as_str();
            list.into_iter().flatten().map(move |each| (name, each))
        };
        self.servers.iter().flat_map(answer).collect()
    }

    /// The databases that have keys on any server.
    pub(crate) fn databases(&self) -> Vec<u32> {
        let snapshots = self.servers.iter().filter_map(Server::snapshot);
        let mut all: Vec<_> = snapshots
            .flat_map(|snapshot| snapshot.info.databases.clone())
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The locks of all servers. The largest number comes first, a key by the alphabet; what is
    /// equal stays in one order, so that rows do not jump.
    pub(crate) fn rows(&self, order: &Order) -> Vec<Row<'_>> {
        let mut rows: Vec<Row<'_>> = Vec::new();
        for server in &self.servers {
            let locks = server
                .snapshot()
                .into_iter()
                .flat_map(|snapshot| &snapshot.locks);
            rows.extend(locks.map(|lock| Row {
                server: &server.name,
                lock,
            }));
        }
        rows.retain(|row| crate::text::escape(&row.lock.place.key).contains(&order.filter));
        let number = |row: &Row<'_>| match order.sort {
            Sort::Wait => row.lock.waited_ms,
            Sort::Waiters => row.lock.waiters,
            Sort::Holders => row.lock.holders,
            Sort::Age => row.lock.oldest.as_ref().map_or(0, |oldest| oldest.held_ms),
            Sort::Key => 0,
        };
        rows.sort_by(|a, b| {
            let by_number = number(b).cmp(&number(a));
            let by_name = || {
                (&a.lock.place.key, a.lock.place.db, a.server).cmp(&(
                    &b.lock.place.key,
                    b.lock.place.db,
                    b.server,
                ))
            };
            if order.reverse {
                by_number.reverse().then_with(|| by_name().reverse())
            } else {
                by_number.then_with(by_name)
            }
        });
        rows
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::lock::Oldest;
    use super::*;

    pub(crate) fn lock(key: &str, waiters: u64, waited_ms: u64, held_ms: u64) -> Lock {
        Lock {
            place: Place {
                db: 0,
                key: key.into(),
            },
            mode: "exclusive".to_owned(),
            holders: 1,
            waiters,
            waited_ms,
            oldest: Some(Oldest {
                token: b"owner".into(),
                held_ms,
                ttl_ms: Some(30_000),
                unrenewed_ms: 0,
            }),
        }
    }

    pub(crate) fn snapshot(seconds: u64, acquired: u64, locks: Vec<Lock>) -> Snapshot {
        let text = format!(
            "redis_version:7.0.15\r\nrun_id:abc\r\nrole:master\r\ndb0:keys=1\r\n\
             module:name=lock,ver=200,\r\nlock_held_exclusive:2\r\nlock_waiters:3\r\n\
             lock_acquired:{acquired}\r\nlock_handed_over:0\r\nlock_refused:0\r\n\
             lock_expired:0\r\nlock_taken_back:0\r\nlock_wait_usec_p50:1500\r\n\
             lock_wait_usec_p99:2500\r\nlock_wait_usec_max:3500000\r\n"
        );
        Snapshot {
            at: Duration::from_secs(seconds),
            info: Info::parse(&text),
            locks,
            ..Snapshot::default()
        }
    }

    pub(crate) fn model(servers: &[&str]) -> Model {
        let mut model = Model::default();
        let names: Vec<_> = servers.iter().map(|name| (*name).to_owned()).collect();
        model.set_servers(&names);
        model
    }

    #[test]
    fn a_holder_that_does_not_renew_is_seen_by_the_looks() {
        let mut model = model(&["a:1"]);
        let mut look = |seconds, token: &str, ttl_ms| {
            let mut lock = lock("k", 1, 0, 0);
            let oldest = lock.oldest.as_mut().unwrap();
            oldest.token = token.into();
            oldest.ttl_ms = ttl_ms;
            model.update("a:1", Ok(snapshot(seconds, 0, vec![lock])));
            let lock = &model.servers[0].snapshot().unwrap().locks[0];
            let oldest = lock.oldest.as_ref().unwrap();
            (oldest.unrenewed_ms, oldest.is_neglected())
        };
        assert_eq!(look(0, "x", Some(30_000)), (0, false));
        assert_eq!(look(10, "x", Some(20_050)), (10_000, false));
        assert_eq!(look(16, "x", Some(14_000)), (16_000, true));
        assert_eq!(look(17, "x", Some(30_000)), (0, false));
        assert_eq!(look(20, "x", Some(27_000)), (3_000, false));
        assert_eq!(look(21, "y", Some(26_000)), (0, false));
        assert_eq!(look(40, "y", None), (0, false));
    }

    fn keys(model: &Model, order: &Order) -> Vec<String> {
        let rows = model.rows(order);
        let key = |row: &Row<'_>| String::from_utf8_lossy(&row.lock.place.key).into_owned();
        rows.iter().map(key).collect()
    }

    fn two() -> Model {
        let mut model = model(&["a:1", "b:2"]);
        model.update(
            "a:1",
            Ok(snapshot(
                0,
                0,
                vec![lock("x", 9, 10, 300), lock("y", 1, 30, 100)],
            )),
        );
        model.update("b:2", Ok(snapshot(0, 0, vec![lock("z", 5, 20, 200)])));
        model
    }

    #[test]
    fn the_rows_of_all_servers_are_in_one_order() {
        let model = two();
        let by = |sort, reverse| {
            keys(
                &model,
                &Order {
                    sort,
                    reverse,
                    ..Order::default()
                },
            )
        };
        assert_eq!(by(Sort::Wait, false), ["y", "z", "x"]);
        assert_eq!(by(Sort::Wait, true), ["x", "z", "y"]);
        assert_eq!(by(Sort::Waiters, false), ["x", "z", "y"]);
        assert_eq!(by(Sort::Age, false), ["x", "z", "y"]);
        assert_eq!(by(Sort::Key, false), ["x", "y", "z"]);
        assert_eq!(by(Sort::Key, true), ["z", "y", "x"]);
        // All have one holder, so the names decide.
        assert_eq!(by(Sort::Holders, false), ["x", "y", "z"]);
    }

    #[test]
    fn every_order_comes_round() {
        let mut sort = Sort::default();
        let mut seen = vec![];
        while !seen.contains(&sort.name()) {
            seen.push(sort.name());
            sort = sort.next();
        }
        assert_eq!(seen, ["wait", "waiters", "holders", "age", "key"]);
    }

    #[test]
    fn the_filter_is_a_part_of_the_key_as_it_is_shown() {
        let mut model = model(&["a:1"]);
        let locks = vec![lock("jobs:1", 1, 1, 1), lock("mail\n", 1, 2, 1)];
        model.update("a:1", Ok(snapshot(0, 0, locks)));
        let with = |filter: &str| {
            keys(
                &model,
                &Order {
                    filter: filter.to_owned(),
                    ..Order::default()
                },
            )
        };
        assert_eq!(with("obs"), ["jobs:1"]);
        assert_eq!(with("\\x0a"), ["mail\n"]);
        assert_eq!(with("nothing"), Vec::<String>::new());
        assert_eq!(with("").len(), 2);
    }

    #[test]
    fn rates_come_with_the_second_look() {
        let mut model = model(&["a:1"]);
        let rate = |model: &Model| model.servers[0].rates.of("lock_acquired");
        model.update("a:1", Ok(snapshot(10, 100, vec![])));
        assert_eq!(rate(&model), None);
        model.update("a:1", Ok(snapshot(12, 150, vec![])));
        assert_eq!(rate(&model), Some(25.0));
    }

    #[test]
    fn a_server_that_is_down_keeps_its_name_and_loses_its_rows() {
        let mut model = two();
        model.update("a:1", Err("refused".to_owned()));
        assert_eq!(model.servers[0].state, State::Down("refused".to_owned()));
        assert_eq!(keys(&model, &Order::default()), ["z"]);
        // The time that it was down is in no rate.
        model.update("a:1", Ok(snapshot(99, 500, vec![])));
        assert_eq!(model.servers[0].rates.of("lock_acquired"), None);
    }

    #[test]
    fn a_server_that_stays_in_the_cluster_is_kept() {
        let mut model = two();
        model.set_servers(&["b:2".to_owned(), "c:3".to_owned()]);
        assert_eq!(keys(&model, &Order::default()), ["z"]);
        assert_eq!(model.servers[1].state, State::Connecting);
        model.update("a:1", Ok(snapshot(1, 1, vec![])));
        assert_eq!(
            model.servers.len(),
            2,
            "a late look at one that has gone is dropped"
        );
    }

    fn contended(key: &str, waited_ms: u64) -> Contended {
        Contended {
            place: Place {
                db: 0,
                key: key.into(),
            },
            waited_ms,
            ..Contended::default()
        }
    }

    #[test]
    fn what_has_happened_on_all_servers_is_in_one_order() {
        let mut model = model(&["a:1", "b:2", "c:3"]);
        let forced = |time_ms| Forced {
            time_ms,
            ..Forced::default()
        };
        let look = |keys: &[(&str, u64)], times: &[u64]| Snapshot {
            contended: Some(Ok(keys
                .iter()
                .map(|(key, ms)| contended(key, *ms))
                .collect())),
            log: Some(Ok(times.iter().map(|ms| forced(*ms)).collect())),
            ..snapshot(0, 0, vec![])
        };
        model.update("a:1", Ok(look(&[("x", 30), ("y", 10)], &[50, 20])));
        model.update("b:2", Ok(look(&[("w", 20), ("a", 30)], &[60, 30])));
        let refused = Snapshot {
            contended: Some(Err("no".to_owned())),
            ..snapshot(0, 0, vec![])
        };
        model.update("c:3", Ok(refused));
        let keys = model.contended();
        let key = |(server, each): &(&str, &Contended)| {
            format!("{server} {}", String::from_utf8_lossy(&each.place.key))
        };
        let keys: Vec<_> = keys.iter().map(key).collect();
        assert_eq!(keys, ["b:2 a", "a:1 x", "b:2 w", "a:1 y"]);
        let times: Vec<_> = model.log().iter().map(|(_, each)| each.time_ms).collect();
        assert_eq!(times, [60, 50, 30, 20]);
    }

    #[test]
    fn a_detail_is_of_the_lock_that_was_asked_for() {
        let mut model = model(&["a:1"]);
        let place = Place {
            db: 0,
            key: b"x".into(),
        };
        let mut look = snapshot(0, 0, vec![]);
        look.detail = Some((place.clone(), Ok(None)));
        model.update("a:1", Ok(look));
        let target = |db| Target {
            server: "a:1".to_owned(),
            place: Place {
                db,
                ..place.clone()
            },
        };
        assert_eq!(model.detail(&target(0)), Some(&Ok(None)));
        assert_eq!(model.detail(&target(1)), None);
    }
}
