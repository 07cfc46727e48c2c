//! Words of clients in lines of the log and in errors: escaped and cut.

use std::ffi::CString;
use std::fmt::Write;

/// A line for the log, or an error. Words of clients in it were escaped.
pub fn line_of(text: String) -> CString {
    // There is no NUL in what was escaped.
    CString::new(text).unwrap_or_default()
}

/// The bytes as one word of printable characters. All others are `\xHH`, and the end of a word is
/// left out that takes more than `shown` characters.
pub fn escaped(bytes: &[u8], shown: usize) -> String {
    let mut text = String::new();
    for byte in bytes {
        if text.len() > shown {
            text.push_str("...");
            break;
        }
        match byte {
            b'\\' => text.push_str("\\x5c"),
            b'!'..=b'~' => text.push(char::from(*byte)),
            // To write to a string never fails.
            _ => write!(text, "\\x{byte:02x}").unwrap_or_default(),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: usize = 400;

    #[test]
    fn escaped_bytes_are_one_short_word() {
        assert_eq!(escaped(b"jobs:{7}%s", SHOWN), "jobs:{7}%s");
        assert_eq!(
            escaped(b"a b\\\r\n\0\xff\x7f", SHOWN),
            r"a\x20b\x5c\x0d\x0a\x00\xff\x7f"
        );
        let all: Vec<u8> = (0..=255).collect();
        let is_graphic = |byte: u8| byte.is_ascii_graphic();
        assert!(escaped(&all, SHOWN).bytes().all(is_graphic));
        let long = escaped(&[b'\n'; 100_000], SHOWN);
        assert!(long.len() < SHOWN + 8 && long.ends_with("..."));
    }
}
