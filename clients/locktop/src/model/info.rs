//! What INFO says of a server.

/// The sections of INFO that are of interest, read into fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Info {
    /// `redis 7.0.15`.
    pub(crate) server: String,
    pub(crate) run_id: String,
    /// `primary`, `replica`; empty if the server did not say.
    pub(crate) role: String,
    /// Of the module: `0.2.0`; none if it is not loaded.
    pub(crate) module: Option<String>,
    /// `off`, `open`, or why the server grants no new lock; empty if the module did not say.
    pub(crate) guard: String,
    /// Those that have keys.
    pub(crate) databases: Vec<u32>,
    /// The numbers of the section `lock`, in the server's order, under the server's names. Nothing
    /// here knows them all, so a newer module may have more.
    pub(crate) fields: Vec<(String, u64)>,
}

impl Info {
    pub(crate) fn parse(text: &str) -> Self {
        let mut info = Self::default();
        let (mut redis, mut valkey) = ("", "");
        for line in text.lines() {
            let Some((name, value)) = line.split_once(':') else {
                continue;
            };
            match name {
                "redis_version" => redis = value,
                "valkey_version" => valkey = value,
                "run_id" => info.run_id = value.to_owned(),
                "role" => info.role = role(value).to_owned(),
                "module" if value.starts_with("name=lock,") => {
                    info.module = Some(module_version(value));
                }
                "lock_guard" => info.guard = value.to_owned(),
                _ if name.starts_with("lock_") => {
                    if let Ok(number) = value.trim().parse() {
                        info.fields.push((name.to_owned(), number));
                    }
                }
                _ => info.databases.extend(database(name)),
            }
        }
        info.server = match (redis, valkey) {
            ("", "") => String::new(),
            (version, "") => format!("redis {version}"),
            (_, version) => format!("valkey {version}"),
        };
        info
    }

    pub(crate) fn field(&self, name: &str) -> Option<u64> {
        let found = self.fields.iter().find(|(other, _)| other == name);
        found.map(|(_, number)| *number)
    }

    /// The holds of all modes.
    pub(crate) fn held(&self) -> Option<u64> {
        let modes = [
            "lock_held_exclusive",
            "lock_held_shared",
            "lock_held_counted",
        ];
        modes
            .into_iter()
            .filter_map(|name| self.field(name))
            .reduce(u64::saturating_add)
    }

    /// A percentile of the waits in microseconds: of the last minute if the module has it, else
    /// since its start or LOCK.RESETSTAT.
    pub(crate) fn wait(&self, percentile: &str) -> Option<Wait> {
        let of = |window: Option<&str>| {
            let found = self.fields.iter().find(|(name, _)| {
                let mut words: Vec<_> = name.split('_').skip(1).collect();
                words.retain(|word| *word != "usec" && *word != "us");
                let found = window_of(&mut words);
                words == ["wait", percentile] && found == window
            });
            found.map(|(_, us)| *us)
        };
        of(Some(LAST_MINUTE))
            .map(|us| Wait {
                us,
                of_last_minute: true,
            })
            .or_else(|| {
                of(None).map(|us| Wait {
                    us,
                    of_last_minute: false,
                })
            })
    }
}

const LAST_MINUTE: &str = "1m";

/// Takes the word for a window out: `lock_wait_usec_p50_1m`.
fn window_of<'a>(words: &mut Vec<&'a str>) -> Option<&'a str> {
    let is_window = |word: &str| {
        word.strip_suffix(['s', 'm', 'h'])
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
    };
    let at = words.iter().position(|word| is_window(word))?;
    Some(words.remove(at))
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Wait {
    pub(crate) us: u64,
    pub(crate) of_last_minute: bool,
}

/// The words of today for the server's old ones.
fn role(word: &str) -> &'static str {
    match word {
        "master" => "primary",
        "slave" => "replica",
        _ => "",
    }
}

/// From `name=lock,ver=200,api=1,…`: two digits each for minor version and patch.
fn module_version(line: &str) -> String {
    let number = line.split(',').find_map(|pair| pair.strip_prefix("ver="));
    let number: u32 = number
        .and_then(|text| text.parse().ok())
        .unwrap_or_default();
    format!(
        "{}.{}.{}",
        number / 10_000,
        number / 100 % 100,
        number % 100
    )
}

/// From the name of a line of the section `keyspace`: `db0`.
fn database(name: &str) -> Option<u32> {
    name.strip_prefix("db")?.parse().ok()
}

/// How a field has grown between two samples, for each second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rates(Vec<(String, f64)>);

impl Rates {
    /// Nothing where the two cannot be compared: the server has started anew between them. A
    /// counter that has fallen was reset; it counts from zero.
    pub(crate) fn between(before: &Info, after: &Info, seconds: f64) -> Self {
        if before.run_id != after.run_id || seconds <= 0.0 {
            return Self::default();
        }
        let grown = after.fields.iter().filter_map(|(name, now)| {
            let then = before.field(name)?;
            let grown = now.checked_sub(then).unwrap_or(*now);
            #[allow(clippy::cast_precision_loss)]
            let rate = grown as f64 / seconds;
            Some((name.clone(), rate))
        });
        Self(grown.collect())
    }

    pub(crate) fn of(&self, name: &str) -> Option<f64> {
        let found = self.0.iter().find(|(other, _)| other == name);
        found.map(|(_, rate)| *rate)
    }
}

/// Whether a field is a counter, so that a rate of it says something.
pub(crate) fn is_counter(name: &str) -> bool {
    let mut words: Vec<_> = name.split('_').collect();
    let is_of_window = window_of(&mut words).is_some();
    let is_gauge = matches!(
        words.get(1),
        Some(&("held" | "waiters" | "waiting" | "guard"))
    ) || name == "lock_waited_keys";
    let is_time = words.contains(&"usec") || words.contains(&"us");
    !is_of_window && !is_gauge && !is_time
}

#[cfg(test)]
mod tests {
    use super::*;

    const REDIS: &str = "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\n\r\n\
        # Replication\r\nrole:master\r\n\r\n# Keyspace\r\ndb0:keys=2,expires=2\r\n\
        db11:keys=1,expires=0\r\n\r\n# Modules\r\n\
        module:name=other,ver=7,api=1\r\nmodule:name=lock,ver=10203,api=1,filters=0\r\n\r\n\
        # lock\r\nlock_held_exclusive:3\r\nlock_held_shared:4\r\nlock_held_keys:5\r\n\
        lock_acquired:100\r\nlock_brand_new:9\r\nlock_wait_usec_p50:1500\r\n";

    fn with(fields: &[(&str, u64)]) -> Info {
        let fields = fields.iter().map(|(name, n)| ((*name).to_owned(), *n));
        Info {
            run_id: "abc".to_owned(),
            fields: fields.collect(),
            ..Info::default()
        }
    }

    #[test]
    fn reads_the_sections() {
        let info = Info::parse(REDIS);
        assert_eq!(info.server, "redis 7.0.15");
        assert_eq!(info.role, "primary");
        assert_eq!(info.module.as_deref(), Some("1.2.3"));
        assert_eq!(info.databases, [0, 11]);
        assert_eq!(info.held(), Some(7));
        assert_eq!(info.field("lock_brand_new"), Some(9));
        assert_eq!(info.field("lock_held_keys"), Some(5));
    }

    #[test]
    fn valkey_says_two_versions() {
        let info = Info::parse("redis_version:7.2.4\r\nvalkey_version:9.1.2\r\nrole:slave\r\n");
        assert_eq!(
            (info.server.as_str(), info.role.as_str()),
            ("valkey 9.1.2", "replica")
        );
        assert_eq!((info.module.as_deref(), info.held()), (None, None));
    }

    #[test]
    fn rates_are_of_the_time_between() {
        let before = with(&[("lock_acquired", 100)]);
        let after = with(&[("lock_acquired", 150), ("lock_refused", 9)]);
        let rates = Rates::between(&before, &after, 2.0);
        assert_eq!(rates.of("lock_acquired"), Some(25.0));
        assert_eq!(
            rates.of("lock_refused"),
            None,
            "the first sample does not know it"
        );
    }

    #[test]
    fn counters_that_were_reset_count_from_zero() {
        let before = with(&[("lock_acquired", 100)]);
        let after = with(&[("lock_acquired", 30)]);
        assert_eq!(
            Rates::between(&before, &after, 1.0).of("lock_acquired"),
            Some(30.0)
        );
    }

    #[test]
    fn a_server_that_started_anew_has_no_rates_yet() {
        let before = with(&[("lock_acquired", 100)]);
        let mut after = with(&[("lock_acquired", 130)]);
        after.run_id = "def".to_owned();
        assert_eq!(Rates::between(&before, &after, 1.0), Rates::default());
        assert_eq!(Rates::between(&before, &before, 0.0), Rates::default());
    }

    #[test]
    fn percentiles_of_the_last_minute_are_preferred() {
        let old = with(&[("lock_wait_usec_p50", 7), ("lock_hold_usec_p50", 8)]);
        let wait = old.wait("p50").unwrap();
        assert_eq!((wait.us, wait.of_last_minute), (7, false));
        for name in [
            "lock_wait_usec_p50_1m",
            "lock_wait_p50_us_1m",
            "lock_wait_1m_usec_p50",
        ] {
            let new = with(&[
                ("lock_wait_usec_p50", 7),
                ("lock_wait_usec_p50_10m", 6),
                (name, 5),
            ]);
            let wait = new.wait("p50").unwrap();
            assert_eq!((wait.us, wait.of_last_minute), (5, true), "{name}");
        }
        assert_eq!(old.wait("p99"), None);
    }

    #[test]
    fn gauges_and_percentiles_have_no_rate() {
        for name in [
            "lock_acquired",
            "lock_waited",
            "lock_wait_count",
            "lock_brand_new",
            "lock_guards",
        ] {
            assert!(is_counter(name), "{name}");
        }
        for name in [
            "lock_held_keys",
            "lock_waiters_absent",
            "lock_waited_keys",
            "lock_waiting_bytes",
            "lock_guard_left_ms",
            "lock_wait_usec_max",
            "lock_acquired_1m",
            "lock_wait_count_10m",
        ] {
            assert!(!is_counter(name), "{name}");
        }
    }
}
