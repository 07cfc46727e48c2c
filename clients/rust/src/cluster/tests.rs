use super::*;

fn address(host: &str, port: u16) -> Address {
    (host.to_owned(), port)
}

#[test]
fn slots_are_the_servers() {
    assert_eq!(crc16(b"123456789"), 0x31c3);
    assert_eq!(slot_of(b"foo"), 12_182);
    assert_eq!(slot_of(b"a{foo}b{bar}"), 12_182);
    assert_eq!(slot_of(b"{}foo"), crc16(b"{}foo") & 0x3fff);
    assert_eq!(slot_of(b"}{foo"), crc16(b"}{foo") & 0x3fff);
}

#[test]
fn a_node_without_a_name_is_the_one_that_was_asked() {
    let asked = address("seed", 7_000);
    let range = |host| {
        let node = Value::Array(vec![host, Value::Int(7_002)]);
        let range = Value::Array(vec![Value::Int(100), Value::Int(16_383), node]);
        read_range(&range, &asked)
    };
    let named = range(Value::BulkString(b"two".into()));
    assert_eq!(named, Some((100, 16_383, address("two", 7_002))));
    let unnamed = range(Value::Nil);
    assert_eq!(unnamed, Some((100, 16_383, address("seed", 7_002))));
}

#[test]
fn redirections_are_followed() {
    let to = |text: &str| {
        let error = crate::replies::tests::server_error(text);
        redirection(&address("here", 1), &error)
    };
    let moved = |host, port| Some((3_999, address(host, port), false));
    assert_eq!(to("MOVED 3999 127.0.0.1:6381"), moved("127.0.0.1", 6_381));
    assert_eq!(to("MOVED 3999 :6381"), moved("here", 6_381));
    let asked = Some((3_999, address("::1", 6_381), true));
    assert_eq!(to("ASK 3999 ::1:6381"), asked);
    assert_eq!(to("TRYAGAIN later"), None);
    assert_eq!(to("MOVED nonsense"), None);
}
