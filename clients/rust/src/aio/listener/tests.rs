use super::*;

#[test]
fn each_message_is_read_and_other_bytes_are_refused() {
    for (word, event) in [
        ("granted", Event::Granted(17)),
        ("timeout", Event::Timeout),
        ("tryagain", Event::TryAgain),
        ("wrongtype", Event::WrongType),
        ("deadlock", Event::Deadlock),
        ("cancelled", Event::Cancelled),
        ("result", Event::Result),
        ("revoked", Event::Other),
    ] {
        // Only the length tells where the key ends.
        for (key, token) in [("key", "token"), ("", "t"), ("a 1\r\nb ", " t\0")] {
            let bytes = format!("{word} 17 {} {key} {token}", key.len());
            let (key, token) = (key.as_bytes(), token.as_bytes());
            let read = Message { event, key, token };
            assert_eq!(Message::parse(bytes.as_bytes()), Some(read), "{bytes:?}");
        }
    }
    for refused in [
        "",
        "granted",
        "granted 17 3 ke",
        "granted 17 3 key ",
        "granted 17 3 keytoken",
        "granted +7 3 key token",
        "granted 0 3 key token",
        "granted 17 99999999999999999999 key token",
        "granted 17 18446744073709551615 key token",
    ] {
        assert_eq!(Message::parse(refused.as_bytes()), None, "{refused}");
    }
}
