//! The commands whose instructions are counted, round by round.

use crate::callgrind::{HandOff, Scripts};
use crate::load::{key, token, Requests};

/// The keys of a round, each of which gets every command once. They are few, so that the memory of
/// deleted keys is reused for the next ones. The allocator's work beyond that depends on its
/// history and varies by some percent.
pub const KEYS: usize = 48;
/// The number of readers on one key, and of permits on another one, in the commands where it matters.
pub const READERS: usize = 1000;
pub const SCRIPT: &str = "EVALSHA compare-and-delete";

/// The number of keys that are taken together.
pub const AT_ONCE: usize = 8;
pub const SEVERAL: &str = "LOCK.MACQUIRE of 8 keys";
/// What it is compared with: single requests for as many keys.
pub const SINGLY: &str = "8 LOCK.ACQUIRE";
/// The highest cost of them together.
pub const GOAL_OF_SEVERAL: f64 = 1.0;

/// A write of the holder alone: by the module, and by a script.
pub const EXEC: &str = "LOCK.EXEC of a SET";
pub const GUARDED: &str = "EVALSHA check-and-set";
pub const GOAL_OF_EXEC: f64 = 0.7;

/// A hand-off of a list element, and of a lock.
pub const HAND_OFFS: [&str; 2] = [
    "LPUSH + BLPOP, handed on",
    "LOCK.RELEASE + LOCK.ACQUIRE BLOCK, handed on",
];

/// A permit, its release, both, and the highest cost of both beside the exclusive pair: alone, and
/// beside a thousand others.
pub const PERMITS: [(&str, &str, &str, f64); 2] = [
    (
        "LOCK.ACQUIRE LIMIT",
        "LOCK.RELEASE, of a permit",
        "LOCK.ACQUIRE LIMIT + LOCK.RELEASE",
        1.25,
    ),
    (
        "LOCK.ACQUIRE LIMIT, beside 1000",
        "LOCK.RELEASE, of 1001 permits",
        "LOCK.ACQUIRE LIMIT + LOCK.RELEASE, beside 1000",
        1.5,
    ),
];

/// The reply that a command gives to every request.
#[derive(Clone, Copy, PartialEq)]
pub enum Said {
    Yes,
    No,
}

/// A command of the round: its name, the command it is compared with, and its requests.
pub struct Step {
    pub name: &'static str,
    pub against: Option<&'static str>,
    pub said: Said,
    pub requests: Requests,
}

/// The keys differ from round to round, because the number of keys that share a bucket of the
/// server's table is random.
pub fn steps(scripts: &Scripts, round: usize) -> Vec<Step> {
    let key = |n| key(KEYS * round + n);
    let mut steps = Vec::new();
    let mut add = |name, against, said, count, line: &dyn Fn(usize) -> String| {
        steps.push(Step {
            name,
            against,
            said,
            requests: Requests::of((0..count).map(line)),
        });
    };
    let mut step = |name, against, said, line: &dyn Fn(usize) -> String| {
        add(name, against, said, KEYS, line);
    };
    use Said::{No, Yes};
    let (set, del, refused) = ("SET NX PX", "DEL", "SET NX PX, refused");
    step("PING", None, Yes, &|_| "PING".into());
    step(set, None, Yes, &|n| {
        format!("SET {} {} NX PX 60000", key(n), token(n))
    });
    step(refused, None, No, &|n| {
        format!("SET {} {} NX PX 60000", key(n), token(n + 1))
    });
    step("PEXPIRE", None, Yes, &|n| {
        format!("PEXPIRE {} 60000", key(n))
    });
    step(del, None, Yes, &|n| format!("DEL {}", key(n)));
    // A second round of locks, for the script.
    step("", None, Yes, &|n| {
        format!("SET {} {} NX PX 60000", key(n), token(n))
    });
    step(SCRIPT, None, Yes, &|n| {
        let script = &scripts.compare_and_delete;
        format!("EVALSHA {script} 1 {} {}", key(n), token(n))
    });
    step("LOCK.ACQUIRE", Some(set), Yes, &|n| {
        format!("LOCK.ACQUIRE {} {} 60000", key(n), token(n))
    });
    step("LOCK.ACQUIRE, refused", Some(refused), No, &|n| {
        format!("LOCK.ACQUIRE {} {} 60000", key(n), token(n + 1))
    });
    step("LOCK.ACQUIRE, again", Some("PEXPIRE"), Yes, &|n| {
        format!("LOCK.ACQUIRE {} {} 60000", key(n), token(n))
    });
    step("LOCK.RENEW", Some("PEXPIRE"), Yes, &|n| {
        format!("LOCK.RENEW {} {} 60000", key(n), token(n))
    });
    step("LOCK.RELEASE, refused", Some("PEXPIRE"), No, &|n| {
        format!("LOCK.RELEASE {} {}", key(n), token(n + 1))
    });
    step("LOCK.RELEASE", Some(del), Yes, &|n| {
        format!("LOCK.RELEASE {} {}", key(n), token(n))
    });
    step("RWLOCK.RLOCK, first", Some(set), Yes, &|n| {
        format!("RWLOCK.RLOCK {} {} 60000", key(n), token(n))
    });
    step("RWLOCK.RLOCK, second", Some(set), Yes, &|n| {
        format!("RWLOCK.RLOCK {} {} 60000", key(n), token(n + 1))
    });
    step("LOCK.RELEASE, of two readers", Some(del), Yes, &|n| {
        format!("LOCK.RELEASE {} {}", key(n), token(n))
    });
    step("LOCK.RELEASE, last reader", Some(del), Yes, &|n| {
        format!("LOCK.RELEASE {} {}", key(n), token(n + 1))
    });
    step("LOCK.RENEW, of 1000 readers", Some("PEXPIRE"), Yes, &|n| {
        let reader = token(n * READERS / KEYS);
        format!("LOCK.RENEW crowd {reader} 60000")
    });
    step("RLOCK + RELEASE, of 1001 readers", Some(set), Yes, &|n| {
        let new_reader = token(READERS + n / 2);
        match n % 2 {
            0 => format!("RWLOCK.RLOCK crowd {new_reader} 60000"),
            _ => format!("LOCK.RELEASE crowd {new_reader}"),
        }
    });
    for ((take, give, ..), is_alone) in PERMITS.into_iter().zip([true, false]) {
        let name = |n| if is_alone { key(n) } else { "pool".into() };
        let limit = if is_alone { 10 } else { 2 * READERS };
        step(take, Some("LOCK.ACQUIRE"), Yes, &|n| {
            let new = token(READERS + n);
            format!("LOCK.ACQUIRE {} {new} 60000 LIMIT {limit}", name(n))
        });
        step(give, Some("LOCK.RELEASE"), Yes, &|n| {
            format!("LOCK.RELEASE {} {}", name(n), token(READERS + n))
        });
    }
    guarded_writes(&mut add, scripts, &key);
    several(&mut add, &key);
    steps
}

/// Adds a step: its name, the command it is compared with, the reply, and its requests.
type Add<'a> =
    dyn FnMut(&'static str, Option<&'static str>, Said, usize, &dyn Fn(usize) -> String) + 'a;

/// A SET that only the holder may do. The data are there before, as is usual.
fn guarded_writes(step: &mut Add<'_>, scripts: &Scripts, key: &dyn Fn(usize) -> String) {
    let script = &scripts.check_and_set;
    let data = |n| format!("data:{n:011}");
    step("", None, Said::Yes, KEYS, &|n| {
        format!("SET {} {}", data(n), token(n))
    });
    step("", None, Said::Yes, KEYS, &|n| {
        format!("SET {} {} NX PX 60000", key(n), token(n))
    });
    step(GUARDED, None, Said::Yes, KEYS, &|n| {
        let (key, token, data) = (key(n), token(n), data(n));
        format!("EVALSHA {script} 2 {key} {data} {token} {token}")
    });
    step("", None, Said::Yes, KEYS, &|n| format!("DEL {}", key(n)));
    step("", None, Said::Yes, KEYS, &|n| {
        format!("LOCK.ACQUIRE {} {} 60000", key(n), token(n))
    });
    step(EXEC, Some(GUARDED), Said::Yes, KEYS, &|n| {
        let (key, token, data) = (key(n), token(n), data(n));
        format!("LOCK.EXEC {key} {token} SET {data} {token}")
    });
    step("", None, Said::Yes, KEYS, &|n| {
        format!("LOCK.RELEASE {} {}", key(n), token(n))
    });
}

/// Several keys in one request, each of which is released by itself.
fn several(step: &mut Add<'_>, key: &dyn Fn(usize) -> String) {
    step(SEVERAL, Some(SINGLY), Said::Yes, KEYS / AT_ONCE, &|n| {
        let keys: Vec<_> = (0..AT_ONCE).map(|k| key(n * AT_ONCE + k)).collect();
        let keys = keys.join(" ");
        format!("LOCK.MACQUIRE {AT_ONCE} {keys} {} 60000", token(n))
    });
    let give = "LOCK.RELEASE, taken with others";
    step(give, Some("LOCK.RELEASE"), Said::Yes, KEYS, &|n| {
        format!("LOCK.RELEASE {} {}", key(n), token(n / AT_ONCE))
    });
}

/// A lock, or the closest equivalent among lists, passed to and fro.
pub fn hand_offs() -> [(&'static str, Option<&'static str>, HandOff); 2] {
    let [list, lock] = HAND_OFFS;
    [
        (
            list,
            None,
            HandOff {
                take: |_| "BLPOP list 0".into(),
                give: |_| "LPUSH list x".into(),
            },
        ),
        (
            lock,
            Some(list),
            HandOff {
                take: |n| format!("LOCK.ACQUIRE lock {} 60000 BLOCK 0", token(n)),
                give: |n| format!("LOCK.RELEASE lock {}", token(n)),
            },
        ),
    ]
}
