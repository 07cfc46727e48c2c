//! Requests that mean the same in any spelling, and words that may be anything.

use proptest::collection::vec;
use proptest::prelude::*;

use super::acquire::{Acquire, AskedMode, Wait};
use super::*;
use crate::lock::{Mode, Token, Ttl};

/// Words that a parser knows, numbers at the bounds, and anything else.
fn word() -> impl Strategy<Value = Vec<u8>> {
    let known = prop_oneof![
        Just("BLOCK"),
        Just("notify"),
        Just("KEEP"),
        Just("Linger"),
        Just("LIMIT"),
        Just("EARLY"),
        Just("MODES"),
        Just("ATLEAST"),
        Just("shared"),
        Just("EXCLUSIVE"),
        Just("*"),
        Just("0"),
        Just("1"),
        Just("2"),
        Just("281474976710656"),
        Just("3600001"),
        Just("18446744073709551616"),
        Just("-1"),
        Just("")
    ];
    prop_oneof![3 => known.prop_map(|word| word.as_bytes().to_vec()), 1 => vec(any::<u8>(), 0..6)]
}

fn in_any_case(word: &'static str) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<bool>(), word.len()).prop_map(move |lowered| {
        let bytes = word.bytes().zip(lowered);
        let bytes = bytes.map(|(byte, lowered)| {
            if lowered {
                byte.to_ascii_lowercase()
            } else {
                byte
            }
        });
        bytes.collect()
    })
}

/// An option with its values, and what it asks for.
#[derive(Clone, Debug)]
enum Said {
    Wait(u64, Option<Vec<u8>>),
    Limit(u32),
    Keep(u32),
    Linger(u64),
}

type Spelled = (Vec<Vec<u8>>, Said);

fn options() -> impl Strategy<Value = Vec<Spelled>> {
    let number = |ms: u64| ms.to_string().into_bytes();
    let wait = (
        in_any_case("BLOCK"),
        in_any_case("NOTIFY"),
        0..=Ttl::MAX_MS,
        proptest::option::of(vec(any::<u8>(), 0..9)),
    );
    let wait = wait.prop_map(move |(block, notify, ms, channel)| match channel {
        None => (vec![block, number(ms)], Said::Wait(ms, None)),
        Some(channel) => (
            vec![notify, number(ms), channel.clone()],
            Said::Wait(ms, Some(channel)),
        ),
    });
    let limit = (in_any_case("LIMIT"), 1..=(i32::MAX as u32));
    let limit = limit.prop_map(move |(name, n)| (vec![name, number(n.into())], Said::Limit(n)));
    let keep = (in_any_case("KEEP"), 1..=3_600_000_u32);
    let keep = keep.prop_map(move |(name, ms)| (vec![name, number(ms.into())], Said::Keep(ms)));
    let linger = (in_any_case("LINGER"), 0..=Ttl::MAX_MS);
    let linger = linger.prop_map(move |(name, ms)| (vec![name, number(ms)], Said::Linger(ms)));
    (wait, limit, keep, linger)
        .prop_map(|(wait, limit, keep, linger)| vec![wait, limit, keep, linger])
        .prop_flat_map(|all| proptest::sample::subsequence(all, 0..=4))
        .prop_shuffle()
}

fn args(words: &[Vec<u8>]) -> Args<impl Iterator<Item = &[u8]>> {
    Args::new(words.iter().map(Vec::as_slice))
}

proptest! {
    #[test]
    fn an_acquire_is_read_in_any_order(name in vec(any::<u8>(), 1..=Token::MAX_LEN), ttl in 1..=Ttl::MAX_MS, said in options()) {
        prop_assume!(name != b"*");
        let mut words = vec![name.clone(), ttl.to_string().into_bytes()];
        words.extend(said.iter().flat_map(|(words, _)| words.clone()));
        let acquire = Acquire::parse(AskedMode::Limited, args(&words)).unwrap();
        let (mut mode, mut wait, mut keep, mut linger) = (Mode::Exclusive, None, None, None);
        for (_, option) in &said {
            match option {
                Said::Wait(ms, None) => wait = Some(Wait::Block(*ms)),
                Said::Wait(ms, Some(channel)) => wait = Some(Wait::Notify(*ms, channel)),
                Said::Limit(n) => mode = Mode::of_limit(*n).unwrap(),
                Said::Keep(ms) => keep = Some(*ms),
                Said::Linger(ms) => linger = Some(*ms),
            }
        }
        let ask = acquire.ask();
        prop_assert_eq!((ask.token.as_bytes(), ask.ttl.ms(), ask.mode), (&name[..], ttl, mode));
        prop_assert_eq!((acquire.wait(), acquire.keep_ms(), acquire.linger_ms()), (wait, keep, linger));
        // An option that comes twice is refused.
        if let Some((again, _)) = said.first() {
            words.extend(again.iter().cloned());
            let twice = Acquire::parse(AskedMode::Limited, args(&words));
            prop_assert_eq!(twice.map(|_| ()), Err(Error::RepeatedOption));
        }
    }

    #[test]
    fn any_words_are_read_without_a_panic(words in vec(word(), 0..9)) {
        let words: Vec<_> = words.iter().map(Vec::as_slice).collect();
        for command in Command::ALL {
            let _ = command.parse(&words);
        }
    }

    #[test]
    fn an_integer_is_read_only_as_it_is_printed(number in any::<u64>(), bytes in vec(prop_oneof![b'0'..=b'9', any::<u8>()], 0..22)) {
        prop_assert_eq!(integer(number.to_string().as_bytes()), Some(number));
        if let Some(read) = integer(&bytes) {
            prop_assert_eq!(read.to_string().into_bytes(), bytes);
        }
    }

    #[test]
    fn a_token_is_read_if_it_has_a_right_length(bytes in vec(any::<u8>(), 0..600)) {
        let read = Token::new(&bytes);
        prop_assert_eq!(read.is_ok(), (1..=512).contains(&bytes.len()));
        prop_assert!(read.is_err() || read.unwrap().as_bytes() == bytes);
    }
}
