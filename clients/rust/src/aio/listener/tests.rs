use super::*;

/// The bytes, the event, the key and the token.
type Row = (&'static [u8], Event, &'static [u8], &'static [u8]);

#[test]
fn each_message_is_read_and_other_bytes_are_refused() {
    let read: [Row; 11] = [
        (
            b"granted 17 3 key token",
            Event::Granted(17),
            b"key",
            b"token",
        ),
        (b"timeout 0 3 key token", Event::Timeout, b"key", b"token"),
        (b"tryagain 0 3 key token", Event::TryAgain, b"key", b"token"),
        (
            b"wrongtype 0 3 key token",
            Event::WrongType,
            b"key",
            b"token",
        ),
        (b"deadlock 0 3 key token", Event::Deadlock, b"key", b"token"),
        (
            b"cancelled 0 3 key token",
            Event::Cancelled,
            b"key",
            b"token",
        ),
        (b"result 0 3 key token", Event::Result, b"key", b"token"),
        (b"revoked 0 3 key token", Event::Other, b"key", b"token"),
        (b"granted 1 0  t", Event::Granted(1), b"", b"t"),
        // Only the length tells where the key ends.
        (b"granted 1 5 a 1 b  t", Event::Granted(1), b"a 1 b", b" t"),
        (
            b"granted 1 4 a\r\n\xff t\0\n\xfe",
            Event::Granted(1),
            b"a\r\n\xff",
            b"t\0\n\xfe",
        ),
    ];
    for (bytes, event, key, token) in read {
        assert_eq!(Message::parse(bytes), Some(Message { event, key, token }));
    }
    let refused: [&[u8]; 9] = [
        b"",
        b"granted",
        b"granted 17 3 ke",
        b"granted 17 3 key ",
        b"granted 17 3 keytoken",
        b"granted +7 3 key token",
        b"granted 0 3 key token",
        b"granted 17 99999999999999999999 key token",
        b"granted 17 18446744073709551615 key token",
    ];
    for bytes in refused {
        assert_eq!(
            Message::parse(bytes),
            None,
            "{:?}",
            String::from_utf8_lossy(bytes)
        );
    }
}

#[test]
fn a_message_reaches_all_that_listen_for_its_place_and_nobody_else() {
    let hub = Hub::new();
    let place = |token: &[u8]| Place::new(b"a key", token.to_vec());
    let mut other = hub.listen(&place(b"1"));
    let [mut first, mut second] = [(); 2].map(|()| hub.listen(&place(b"2")));
    assert!(hub.dispatch(b"granted 17 5 a key 2"));
    assert_eq!(first.events.try_recv(), Ok(Event::Granted(17)));
    assert_eq!(second.events.try_recv(), Ok(Event::Granted(17)));
    assert!(other.events.try_recv().is_err());
    drop((first, second));
    assert!(!hub.dispatch(b"timeout 0 5 a key 2"));
    assert_eq!(hub.listeners().by_place.len(), 1);
}
