//! Bytes and numbers as text for a terminal.

use chrono::{DateTime, TimeZone, Timelike};

/// Bytes of a key or a token. What is not printable ASCII becomes `\xHH`, so that no byte of a
/// client can move the cursor or hide itself. A backslash is doubled, so that two names never look
/// alike.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'\\' => text.push_str("\\\\"),
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text
}

/// A sentence of a server or of the system, in one line. It may hold what a client has sent.
pub(crate) fn sentence(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    escape(words.as_bytes()).replace("\\\\", "\\")
}

/// The text in at most `width` columns. A cut is marked.
pub(crate) fn shorten(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    short.push('…');
    short
}

pub(crate) fn milliseconds(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..60_000 => format!("{}.{}s", ms / 1_000, ms % 1_000 / 100),
        60_000..3_600_000 => format!("{}m{:02}s", ms / 60_000, ms / 1_000 % 60),
        3_600_000..86_400_000 => format!("{}h{:02}m", ms / 3_600_000, ms / 60_000 % 60),
        _ => format!("{}d{:02}h", ms / 86_400_000, ms / 3_600_000 % 24),
    }
}

pub(crate) fn microseconds(us: u64) -> String {
    match us {
        0..1_000 => format!("{us}us"),
        1_000..100_000 => format!("{}.{}ms", us / 1_000, us % 1_000 / 100),
        _ => milliseconds(us / 1_000),
    }
}

/// The time of day of a Unix time in a zone.
pub(crate) fn clock(unix_ms: u64, zone: &impl TimeZone) -> String {
    let time = i64::try_from(unix_ms)
        .ok()
        .and_then(DateTime::from_timestamp_millis);
    let Some(time) = time else {
        return "-".to_owned();
    };
    let time = time.with_timezone(zone).time();
    format!(
        "{:02}:{:02}:{:02}",
        time.hour(),
        time.minute(),
        time.second()
    )
}

pub(crate) fn count(n: u64) -> String {
    match n {
        0..100_000 => n.to_string(),
        100_000..10_000_000 => format!("{}k", n / 1_000),
        _ => format!("{}M", n / 1_000_000),
    }
}

pub(crate) fn per_second(rate: f64) -> String {
    if rate < 0.05 {
        "0".to_owned()
    } else if rate < 10.0 {
        format!("{rate:.1}")
    } else if rate < 100_000.0 {
        format!("{rate:.0}")
    } else {
        format!("{:.0}k", rate / 1_000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_printable_ascii_is_shown_as_it_is() {
        assert_eq!(escape(b"jobs:42 ~"), "jobs:42 ~");
        assert_eq!(
            escape(b"a\x1b[2J\r\n\0\x7f"),
            "a\\x1b[2J\\x0d\\x0a\\x00\\x7f"
        );
        assert_eq!(escape("é\u{202e}".as_bytes()), "\\xc3\\xa9\\xe2\\x80\\xae");
        // The text of an escape is not an escape.
        assert_eq!(escape(b"\\x1b"), "\\\\x1b");
    }

    #[test]
    fn a_sentence_is_one_line_without_control_bytes() {
        assert_eq!(
            sentence("ERR  no\r\nsuch\u{1b}[31m"),
            "ERR no such\\x1b[31m"
        );
    }

    #[test]
    fn a_cut_is_marked() {
        assert_eq!(shorten("abc", 3), "abc");
        assert_eq!(shorten("abcd", 3), "ab…");
    }

    #[test]
    fn times_are_short() {
        let texts: Vec<_> = [
            0, 999, 1_000, 59_999, 60_000, 3_599_999, 7_500_000, 90_000_000,
        ]
        .map(milliseconds)
        .into();
        assert_eq!(
            texts,
            ["0ms", "999ms", "1.0s", "59.9s", "1m00s", "59m59s", "2h05m", "1d01h"]
        );
        let texts = [7, 1_500, 99_900, 100_000, 2_500_000].map(microseconds);
        assert_eq!(texts, ["7us", "1.5ms", "99.9ms", "100ms", "2.5s"]);
    }

    #[test]
    fn a_time_of_day_is_that_of_the_zone() {
        let zone = |minutes: i32| chrono::FixedOffset::east_opt(minutes * 60).unwrap();
        // 2026-11-21 05:20:09.9 UTC.
        let at = 1_795_238_409_900;
        assert_eq!(clock(at, &zone(0)), "05:20:09");
        assert_eq!(clock(at, &zone(330)), "10:50:09");
        assert_eq!(clock(at, &zone(-360)), "23:20:09");
        assert_eq!(clock(u64::MAX, &zone(0)), "-");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [7, 99_999, 123_456, 12_345_678].map(count),
            ["7", "99999", "123k", "12M"]
        );
        assert_eq!(
            [0.0, 0.2, 9.94, 1234.4, 123_456.0].map(per_second),
            ["0", "0.2", "9.9", "1234", "123k"]
        );
    }
}
