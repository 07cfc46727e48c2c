use super::*;

pub(crate) fn server_error(text: &str) -> RedisError {
    let value = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap();
    value.extract_error().unwrap_err()
}

fn lines_of(name: &str) -> Vec<String> {
    let path = format!("{}/../vectors/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

#[test]
fn the_table_is_that_of_all_adapters() {
    let mut words = 0;
    for line in lines_of("errors.txt") {
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
    for line in lines_of("unknown.txt") {
        let (says, text) = line.split_once(' ').unwrap();
        let is_unknown = is_unknown_command(&server_error(text));
        assert_eq!(is_unknown, says == "lacks", "{text}");
    }
}
