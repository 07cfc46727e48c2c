use std::io;

use super::*;
use crate::Mode;

struct Setup {
    place: Place,
    options: Options,
    support: Support,
}

fn setup() -> Setup {
    Setup {
        place: Place::new(b"a key", b"t".to_vec()),
        options: Options::default().reconnect(Duration::from_millis(1)),
        support: Support::default(),
    }
}

fn attempt(setup: &Setup, patience: Patience) -> Attempt<'_> {
    Attempt::new(
        &setup.place,
        &Claim::Lock,
        Duration::from_secs(30),
        patience,
        (&setup.options, &setup.support),
    )
}

fn asked() -> Question {
    Question {
        command: Cmd::new(),
        wait: Duration::ZERO,
        sent: Instant::now(),
    }
}

fn words(question: &Question) -> String {
    let mut words = Vec::new();
    for arg in question.command.args_iter() {
        if let redis::Arg::Simple(word) = arg {
            words.push(String::from_utf8_lossy(word).into_owned());
        }
    }
    words.join(" ")
}

fn server_error(text: &str) -> RedisResult<Value> {
    redis::parse_redis_value(format!("-{text}\r\n").as_bytes())
        .unwrap()
        .extract_error()
}

fn cut() -> RedisResult<Value> {
    Err(io::Error::from(io::ErrorKind::ConnectionReset).into())
}

#[test]
fn a_slice_is_asked_for_with_a_grace() {
    let setup = setup();
    let mut attempt = attempt(&setup, Patience::Forever);
    assert_eq!(
        words(&attempt.question(Wait::Block)),
        "LOCK.ACQUIRE a key t 30000 BLOCK 1000 KEEP 5000"
    );
    assert_eq!(
        words(&attempt.question(Wait::Block)),
        "LOCK.ACQUIRE a key t 30000 BLOCK 10000 KEEP 5000"
    );
    assert_eq!(
        words(&attempt.question(Wait::Notify("mine"))),
        "LOCK.ACQUIRE a key t 30000 NOTIFY 20000 mine KEEP 5000"
    );
    assert!(attempt.leaves_something());
}

#[test]
fn several_keys_and_options_are_asked_for_in_one_command() {
    let mut setup = setup();
    setup.place.more = vec![b"b".to_vec()];
    setup.options = setup.options.linger(Duration::ZERO);
    let all = Claim::All(vec![Mode::Exclusive, Mode::Shared]);
    let mut several = attempt(&setup, Patience::Forever);
    several.claim = &all;
    assert_eq!(
        words(&several.question(Wait::Block)),
        "LOCK.MACQUIRE 2 a key b t 30000 MODES EXCLUSIVE SHARED BLOCK 1000 KEEP 5000 LINGER 100"
    );
    // A part that is held is not this attempt's, unless an answer was lost.
    let asked = asked();
    let partial = || server_error("PARTIAL release them first");
    assert!(matches!(
        several.verdict(&asked, partial()),
        Verdict::Failed(Error::Redis(_))
    ));
    assert!(matches!(
        several.verdict(&asked, cut()),
        Verdict::AskAgain(_)
    ));
    assert!(matches!(
        several.verdict(&asked, partial()),
        Verdict::Partial
    ));
}

#[test]
fn nothing_waits_without_patience() {
    let setup = setup();
    let mut attempt = attempt(&setup, Patience::None);
    assert_eq!(
        words(&attempt.question(Wait::Block)),
        "LOCK.ACQUIRE a key t 30000"
    );
    assert!(!attempt.leaves_something());
    let asked = asked();
    assert!(matches!(
        attempt.verdict(&asked, Ok(Value::Nil)),
        Verdict::Unavailable
    ));
    assert!(matches!(
        attempt.verdict(&asked, server_error("WRONGTYPE it is a string")),
        Verdict::Unavailable
    ));
}

#[test]
fn a_lost_answer_is_asked_for_again_for_a_while() {
    let setup = setup();
    let mut attempt = attempt(&setup, Patience::None);
    let asked = asked();
    assert!(matches!(
        attempt.verdict(&asked, cut()),
        Verdict::AskAgain(Duration::ZERO)
    ));
    assert!(attempt.is_uncertain);
    std::thread::sleep(Duration::from_millis(2));
    assert!(matches!(
        attempt.verdict(&asked, cut()),
        Verdict::Failed(Error::Redis(_))
    ));
    // An answer begins the count anew.
    assert!(
        matches!(attempt.verdict(&asked, Ok(Value::Int(7))), Verdict::Granted(grant) if grant.fence == 7)
    );
    assert!(matches!(
        attempt.verdict(&asked, cut()),
        Verdict::AskAgain(_)
    ));
}

#[test]
fn errors_that_waiting_does_not_cure_are_returned() {
    let setup = setup();
    let mut attempt = attempt(&setup, Patience::Forever);
    let asked = asked();
    let deadlock = attempt.verdict(&asked, server_error("DEADLOCK a cycle of 2 waits"));
    assert!(matches!(deadlock, Verdict::Failed(Error::Deadlock(text)) if text.contains("2 waits")));
    let missing = attempt.verdict(&asked, server_error("ERR unknown command 'LOCK.ACQUIRE'"));
    assert!(matches!(missing, Verdict::Failed(Error::ModuleMissing(_))));
    let full = attempt.verdict(&asked, server_error("QUEUEFULL too many"));
    assert!(matches!(full, Verdict::Failed(Error::Redis(_))));
    let moved = attempt.verdict(&asked, server_error("READONLY it is a replica"));
    assert!(matches!(moved, Verdict::AskAgain(_)));
    assert!(!attempt.is_uncertain);
}

#[test]
fn milliseconds_are_rounded_up_and_never_0() {
    assert_eq!(millis(Duration::ZERO), 1);
    assert_eq!(millis(Duration::from_micros(1_001)), 2);
    assert_eq!(millis(Duration::from_millis(7)), 7);
    assert_eq!(millis(Duration::MAX), 1 << 48);
}
