use super::*;

#[test]
fn answers_are_read() {
    let sentinel = Sentinel::new(["redis://one:26379"], "locks").unwrap();
    let word = |word: &str| Value::BulkString(word.into());
    let named = Value::Array(vec![word("10.0.0.7"), word("6380")]);
    let address = sentinel.read(&named).unwrap();
    assert_eq!(address, ("10.0.0.7".to_owned(), 6_380));
    let like = sentinel.clone().servers("redis://u:p@any/3").unwrap();
    let info = like.server(&address).unwrap();
    assert_eq!(info.addr().to_string(), "10.0.0.7:6380");
    assert_eq!(info.redis_settings().db(), 3);
    let unknown = sentinel.read(&Value::Nil).unwrap_err();
    assert!(crate::replies::class(&unknown) == crate::replies::Class::Away);
    let role = |name| Ok(Value::Array(vec![word(name), Value::Int(0)]));
    assert!(is_primary(&role("master")) && !is_primary(&role("slave")));
}
