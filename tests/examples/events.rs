//! The lines that the workers print.

/// One of the lines that a worker may print.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Granted(i64),
    Renewed,
    /// The number of the write, from 1 on.
    Wrote(usize),
    /// The resource had seen a larger fence than this one.
    Refused(i64),
    /// The reason.
    Lost(String),
    /// Whether it still held the lock.
    Released(bool),
    GaveUp,
}

impl Event {
    pub fn parse(line: &str) -> Self {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let number = || {
            let number = rest.parse::<i64>();
            number.unwrap_or_else(|_| panic!("no number in the event '{line}'"))
        };
        match (word, rest) {
            ("granted", _) => Event::Granted(number()),
            ("renewed", "") => Event::Renewed,
            ("wrote", _) => Event::Wrote(number().try_into().unwrap()),
            ("refused", _) => Event::Refused(number()),
            ("lost", why) if !why.is_empty() => Event::Lost(why.to_string()),
            ("released", "0" | "1") => Event::Released(rest == "1"),
            ("gave-up", "") => Event::GaveUp,
            _ => panic!("no event: '{line}'"),
        }
    }

    /// Whether this event ends the work.
    fn is_end(&self) -> bool {
        use Event::{GaveUp, Lost, Refused, Released};
        matches!(self, Refused(_) | Lost(_) | Released(_) | GaveUp)
    }
}

/// Fails the test unless the events are consistent with each other and with the exit status.
#[track_caller]
pub fn assert_possible(events: &[Event], status: Option<i32>) {
    let Some(end) = events.iter().position(Event::is_end) else {
        panic!("a worker that did not say how it ended ({status:?}): {events:?}");
    };
    let (work, [end, rest @ ..]) = events.split_at(end) else {
        unreachable!("the end is one of them");
    };
    match end {
        Event::GaveUp => {
            assert!(work.is_empty() && rest.is_empty(), "{events:?}");
            assert_eq!(status, Some(2), "{events:?}");
        }
        Event::Released(still) => {
            assert!(rest.is_empty(), "it went on after its release: {events:?}");
            assert_eq!(status, Some(if *still { 0 } else { 3 }), "{events:?}");
        }
        _ => {
            // It may try to release, but the release must fail.
            let nothing_more = matches!(rest, [] | [Event::Released(false)]);
            assert!(nothing_more, "it went on after its loss: {events:?}");
            assert_eq!(status, Some(3), "{events:?}");
        }
    }
    let mut writes = 0;
    for (n, event) in work.iter().enumerate() {
        assert_eq!(matches!(event, Event::Granted(_)), n == 0, "{events:?}");
        if let Event::Wrote(number) = event {
            writes += 1;
            assert_eq!(*number, writes, "{events:?}");
        }
    }
}
