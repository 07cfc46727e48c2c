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
fn each_slot_has_a_tag() {
    for slot in (0..16_384).step_by(1_000).chain([16_383]) {
        assert_eq!(slot_of(format!("x:{{{}}}", tag_of(slot)).as_bytes()), slot);
    }
}

#[test]
fn a_command_is_of_its_first_key() {
    let words = |words: &[&str]| {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        slot_of_commands(&[command])
    };
    assert_eq!(words(&["LOCK.ACQUIRE", "foo", "t", "1"]), 12_182);
    assert_eq!(words(&["LOCK.MACQUIRE", "2", "foo", "{foo}2", "t"]), 12_182);
    assert_eq!(words(&["EVAL", "return 1", "1", "foo", "t"]), 12_182);
}

#[test]
fn slots_are_learned_and_corrected() {
    let topology = Topology::new(["redis://user:secret@seed:7000"]).unwrap();
    let asked = address("seed", 7_000);
    assert_eq!(topology.owner(1), None);
    let node = |host: Value, port| Value::Array(vec![host, Value::Int(port)]);
    let reply = Value::Array(vec![
        Value::Array(vec![
            Value::Int(0),
            Value::Int(99),
            node(Value::BulkString(b"one".into()), 7_001),
            node(Value::BulkString(b"replica".into()), 7_009),
        ]),
        Value::Array(vec![
            Value::Int(100),
            Value::Int(16_383),
            node(Value::Nil, 7_002),
        ]),
    ]);
    assert!(!topology.learn(&Value::Array(vec![]), &asked));
    assert!(topology.learn(&reply, &asked));
    assert_eq!(topology.owner(99), Some(address("one", 7_001)));
    assert_eq!(topology.owner(100), Some(address("seed", 7_002)));
    assert!(topology.has_moved(99, &address("two", 7_003)));
    assert!(!topology.has_moved(99, &address("two", 7_003)));
    assert_eq!(topology.owner(99), Some(address("two", 7_003)));
    topology.forget();
    assert_eq!(topology.owner(99), None);
    let mut candidates = topology.candidates();
    candidates.sort();
    let known = [
        address("one", 7_001),
        address("seed", 7_000),
        address("seed", 7_002),
    ];
    assert_eq!(candidates, known);
    assert_eq!(
        topology.info(&known[0]).redis_settings().password(),
        Some("secret")
    );
}

#[test]
fn redirections_are_followed() {
    let to = |text: &str| {
        let value = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap();
        let mut route = Route::new(3_999, address("here", 1));
        let error = value.extract_error().unwrap_err();
        let turned = route.turn(&error);
        turned.map(|()| (route.is_asking, route.node))
    };
    let moved = |host, port| Some((false, address(host, port)));
    assert_eq!(to("MOVED 3999 127.0.0.1:6381"), moved("127.0.0.1", 6_381));
    assert_eq!(to("MOVED 3999 :6381"), moved("here", 6_381));
    assert_eq!(to("ASK 3999 ::1:6381"), Some((true, address("::1", 6_381))));
    assert_eq!(to("TRYAGAIN later"), None);
    assert_eq!(to("MOVED nonsense"), None);
}
