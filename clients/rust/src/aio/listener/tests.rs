use super::*;

fn parsed(bytes: &[u8]) -> Option<(Event, Vec<u8>, Vec<u8>)> {
    Message::parse(bytes).map(|m| (m.event, m.key.to_vec(), m.token.to_vec()))
}

#[test]
fn each_event_is_read() {
    let cases: [(&[u8], Event); 8] = [
        (b"granted 17 3 key token", Event::Granted(17)),
        (b"timeout 0 3 key token", Event::Timeout),
        (b"tryagain 0 3 key token", Event::TryAgain),
        (b"wrongtype 0 3 key token", Event::WrongType),
        (b"deadlock 0 3 key token", Event::Deadlock),
        (b"cancelled 0 3 key token", Event::Cancelled),
        (b"result 0 3 key token", Event::Result),
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

fn place(key: &[u8], token: &[u8]) -> Place {
    Place::new(key, token.to_vec())
}

#[test]
fn a_message_reaches_its_place_only() {
    let hub = Hub::new();
    let mut one = hub.listen(&place(b"a key", b"1"));
    let mut other = hub.listen(&place(b"a key", b"2"));
    let mut binary = hub.listen(&place(b"\0 5 \r\n\xff", b" \xfe"));
    assert!(hub.dispatch(b"granted 17 5 a key 2"));
    assert!(hub.dispatch(b"granted 18 7 \0 5 \r\n\xff  \xfe"));
    assert_eq!(other.events.try_recv(), Ok(Event::Granted(17)));
    assert_eq!(binary.events.try_recv(), Ok(Event::Granted(18)));
    assert!(one.events.try_recv().is_err() && other.events.try_recv().is_err());
}

#[test]
fn those_with_one_token_hear_the_same() {
    let hub = Hub::new();
    let mut first = hub.listen(&place(b"k", b"t"));
    let mut second = hub.listen(&place(b"k", b"t"));
    assert!(hub.dispatch(b"timeout 0 1 k t"));
    assert_eq!(first.events.try_recv(), Ok(Event::Timeout));
    assert_eq!(second.events.try_recv(), Ok(Event::Timeout));
    drop(first);
    assert!(hub.dispatch(b"tryagain 0 1 k t"));
    assert_eq!(second.events.try_recv(), Ok(Event::TryAgain));
    drop(second);
    assert!(!hub.dispatch(b"granted 1 1 k t"));
    assert!(hub.listeners().by_place.is_empty());
}

#[test]
fn a_message_that_cannot_be_read_does_no_harm() {
    let hub = Hub::new();
    let mut listener = hub.listen(&place(b"k", b"t"));
    assert!(!hub.dispatch(b"") && !hub.dispatch(b"granted 1 9 k t") && !hub.dispatch(b"\xff"));
    assert!(listener.events.try_recv().is_err());
}

#[tokio::test]
async fn a_new_subscription_ends_the_one_before() {
    let hub = Hub::new();
    assert!(!hub.is_up());
    hub.subscription.send_replace(Subscription::Up(1));
    assert!(hub.is_up());
    let over = timeout(Duration::from_millis(20), hub.ended(1)).await;
    assert!(over.is_err());
    hub.subscription.send_replace(Subscription::Down(None));
    hub.ended(1).await;
    hub.subscription.send_replace(Subscription::Up(2));
    hub.ended(1).await;
}
