//! What a setting is: a name, a value, and which values it takes.

use std::ffi::CStr;
use std::sync::atomic::{AtomicI64, Ordering};

use redis_lock_core::command::integer;

/// A setting. It is set at load and by CONFIG SET.
#[derive(Debug)]
pub(in crate::server) struct Setting {
    /// Its name as a load argument. As a setting of CONFIG it has the module's name as a prefix.
    pub(in crate::server) name: &'static CStr,
    value: AtomicI64,
    default: i64,
    pub(in crate::server) values: Values,
}

/// Which values a setting takes.
#[derive(Debug)]
pub(in crate::server) enum Values {
    /// Whole numbers, from the first to the second.
    Numbers(i64, i64),
    /// No is 0, yes is 1.
    YesOrNo,
    /// The number of a word.
    Words([&'static CStr; 4]),
}

impl Setting {
    /// A number of a range.
    pub(in crate::server) const fn number(
        name: &'static CStr,
        default: i64,
        (min, max): (i64, i64),
    ) -> Self {
        Self {
            name,
            value: AtomicI64::new(default),
            default,
            values: Values::Numbers(min, max),
        }
    }

    /// A switch that is on where nobody says otherwise.
    pub(in crate::server) const fn switch(name: &'static CStr) -> Self {
        Self {
            name,
            value: AtomicI64::new(1),
            default: 1,
            values: Values::YesOrNo,
        }
    }

    /// One of some words, at first the first of them.
    pub(in crate::server) const fn word(name: &'static CStr, words: [&'static CStr; 4]) -> Self {
        Self {
            name,
            value: AtomicI64::new(0),
            default: 0,
            values: Values::Words(words),
        }
    }

    pub(in crate::server) fn get(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }

    pub(in crate::server) fn is_on(&self) -> bool {
        self.get() != 0
    }

    pub(super) fn count(&self) -> usize {
        usize::try_from(self.get()).unwrap_or(usize::MAX)
    }

    /// Sets it to its default.
    pub(super) fn reset(&self) {
        self.value.store(self.default, Ordering::Relaxed);
    }

    /// Sets it. False if `value` is out of bounds.
    pub(super) fn set(&self, value: i64) -> bool {
        let fits = match self.values {
            Values::Numbers(min, max) => (min..=max).contains(&value),
            Values::YesOrNo | Values::Words(_) => true, // The server has looked the word up.
        };
        if fits {
            self.value.store(value, Ordering::Relaxed);
        }
        fits
    }

    /// Sets it to a value given as text. False if it takes no such value.
    pub(super) fn read(&self, text: &[u8]) -> bool {
        let is = |word: &CStr| text.eq_ignore_ascii_case(word.to_bytes());
        let value = match &self.values {
            Values::Numbers(..) => integer(text).and_then(|value| i64::try_from(value).ok()),
            Values::YesOrNo => [c"no", c"yes"].iter().position(|word| is(word)).map(number),
            Values::Words(words) => words.iter().position(|word| is(word)).map(number),
        };
        value.is_some_and(|value| self.set(value))
    }

    /// What the log says of another value.
    pub(super) fn why(&self) -> String {
        match &self.values {
            Values::Numbers(min, max) => format!("its value is not an integer from {min} to {max}"),
            Values::YesOrNo => "its value is neither yes nor no".into(),
            Values::Words(words) => {
                let [a, b, c, d] = words.map(CStr::to_string_lossy);
                format!("its value is not {a}, {b}, {c} or {d}")
            }
        }
    }
}

fn number(of_word: usize) -> i64 {
    i64::try_from(of_word).unwrap_or_default()
}
