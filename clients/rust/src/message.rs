//! The messages that a channel hears of a place: `granted 17 3 key token`.

/// The end of a wait, or a reason to ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Granted(u64),
    Timeout,
    TryAgain,
    WrongType,
    Deadlock,
    Cancelled,
    /// A word of a later version. Asking again tells what it means.
    Other,
}

/// A message, with the place that it is about. Keys and tokens are any bytes, spaces and line
/// breaks included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub(crate) event: Event,
    pub(crate) key: &'a [u8],
    pub(crate) token: &'a [u8],
}

impl<'a> Message<'a> {
    /// Reads a message. `None` if it is none of the module's.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (event, rest) = word(bytes)?;
        let (fence, rest) = number(rest)?;
        let (length, rest) = number(rest)?;
        let (key, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        let token = rest.strip_prefix(b" ")?;
        if token.is_empty() {
            return None;
        }
        let event = match event {
            b"granted" if fence > 0 => Event::Granted(fence),
            b"granted" => return None,
            b"timeout" => Event::Timeout,
            b"tryagain" => Event::TryAgain,
            b"wrongtype" => Event::WrongType,
            b"deadlock" => Event::Deadlock,
            b"cancelled" => Event::Cancelled,
            _ => Event::Other,
        };
        Some(Self { event, key, token })
    }
}

/// The bytes up to the next space, and what is behind it.
fn word(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = bytes.iter().position(|&byte| byte == b' ')?;
    let (word, rest) = bytes.split_at_checked(space)?;
    Some((word, rest.get(1..)?))
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (digits, rest) = word(bytes)?;
    // `parse` would take a sign.
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some((std::str::from_utf8(digits).ok()?.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(bytes: &[u8]) -> Option<(Event, Vec<u8>, Vec<u8>)> {
        Message::parse(bytes).map(|m| (m.event, m.key.to_vec(), m.token.to_vec()))
    }

    #[test]
    fn each_event_is_read() {
        let cases: [(&[u8], Event); 7] = [
            (b"granted 17 3 key token", Event::Granted(17)),
            (b"timeout 0 3 key token", Event::Timeout),
            (b"tryagain 0 3 key token", Event::TryAgain),
            (b"wrongtype 0 3 key token", Event::WrongType),
            (b"deadlock 0 3 key token", Event::Deadlock),
            (b"cancelled 0 3 key token", Event::Cancelled),
            (b"revoked 0 3 key token", Event::Other),
        ];
        for (bytes, event) in cases {
            assert_eq!(
                parsed(bytes),
                Some((event, b"key".to_vec(), b"token".to_vec()))
            );
        }
    }

    #[test]
    fn keys_and_tokens_are_any_bytes() {
        let message = b"granted 9007199254740991 7 a b\r\n\xff\0 t o\0\r\nk\xfe";
        assert_eq!(
            parsed(message),
            Some((
                Event::Granted(9_007_199_254_740_991),
                b"a b\r\n\xff\0".to_vec(),
                b"t o\0\r\nk\xfe".to_vec()
            ))
        );
        // An empty key is a key.
        assert_eq!(
            parsed(b"granted 1 0  t"),
            Some((Event::Granted(1), vec![], b"t".to_vec()))
        );
        // Only the length tells where the key ends.
        assert_eq!(
            parsed(b"granted 1 5 a 1 b  t"),
            Some((Event::Granted(1), b"a 1 b".to_vec(), b" t".to_vec()))
        );
    }

    #[test]
    fn other_bytes_are_refused() {
        let cases: [&[u8]; 12] = [
            b"",
            b"granted",
            b"granted 17",
            b"granted 17 3",
            b"granted 17 3 ke",
            b"granted 17 3 key",
            b"granted 17 3 key ",
            b"granted 17 3 keytoken",
            b"granted +7 3 key token",
            b"granted 0 3 key token",
            b"granted 17 99999999999999999999 key token",
            b"granted 17 18446744073709551615 key token",
        ];
        for bytes in cases {
            assert_eq!(parsed(bytes), None, "{:?}", String::from_utf8_lossy(bytes));
        }
    }
}
