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
