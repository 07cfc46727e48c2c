use super::*;

pub(crate) fn server_error(text: &str) -> RedisError {
    let value = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap();
    value.extract_error().unwrap_err()
}

#[test]
fn the_table_is_that_of_all_adapters() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../vectors/errors.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let mut words = 0;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (word, want) = line.split_once(' ').unwrap();
        let got = class(&server_error(&format!("{word} 1 2 in a moment")));
        let want = match want.trim() {
            "temporary" => Class::Temporary,
            "elsewhere" => Class::Elsewhere,
            "final" => Class::Final,
            other => panic!("{other}"),
        };
        assert_eq!(got, want, "{word}");
        words += usize::from(want != Class::Final);
    }
    assert_eq!(words, TEMPORARY.len() + ELSEWHERE.len());
    assert_eq!(class(&server_error("SOMETHING new")), Class::Final);
    let cut = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    assert_eq!(class(&cut.into()), Class::Away);
}

#[test]
fn no_such_command_is_known_in_every_wording() {
    for text in [
        "ERR unknown command 'LOCK.ACQUIRE', with args beginning with: 'k'",
        "ERR unknown command `lock.acquire`",
        "ERR Unknown Redis command called",
        "ERR Command is not available: 'LOCK.ACQUIRE'. See the documentation",
        "ERR unsupported command 'lock.acquire'",
        "unsupported command 'lock.acquire'",
        "ERR command LOCK.ACQUIRE is NOT SUPPORTED here",
    ] {
        assert!(is_unknown_command(&server_error(text)), "{text}");
    }
    for text in [
        "ERR unknown option, expected LIMIT, BLOCK, NOTIFY, KEEP or LINGER",
        "NOPERM this user has no permissions to run the 'lock.acquire' command",
        "LOADING this is not available yet",
        "ERR wrong number of arguments for 'LOCK.ACQUIRE' command",
    ] {
        assert!(!is_unknown_command(&server_error(text)), "{text}");
    }
}
