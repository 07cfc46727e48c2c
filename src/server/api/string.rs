//! Strings that the server owns: the words of a command, and names of keys.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr;

use redis_module::raw;

use super::call;

/// A string of the server, alive as long as its context.
#[derive(Clone, Copy)]
pub(crate) struct Arg<'c> {
    raw: *mut raw::RedisModuleString,
    call: PhantomData<&'c raw::RedisModuleString>,
}

/// The words of the running command. The first one is its name.
#[derive(Clone, Copy)]
pub(crate) struct Argv<'c> {
    /// `len` strings of the server.
    start: *mut *mut raw::RedisModuleString,
    len: usize,
    call: PhantomData<&'c raw::RedisModuleString>,
}

impl<'c> Arg<'c> {
    /// # Safety
    /// `raw` is a string that the server passed to a callback, and `'c` does not outlive that
    /// callback.
    pub(crate) const unsafe fn new(raw: *mut raw::RedisModuleString) -> Self {
        Self {
            raw,
            call: PhantomData,
        }
    }

    pub(crate) const fn as_ptr(self) -> *mut raw::RedisModuleString {
        self.raw
    }

    pub(crate) fn bytes(self) -> &'c [u8] {
        let mut len = 0;
        // SAFETY: the string is alive as long as its context.
        let start = unsafe { call!(RedisModule_StringPtrLen(self.raw, &mut len)) };
        if start.is_null() {
            return &[];
        }
        // SAFETY: the string has `len` bytes. They do not change while it is alive, because only
        // this module uses it now.
        unsafe { std::slice::from_raw_parts(start.cast::<u8>(), len) }
    }
}

impl<'c> Argv<'c> {
    /// How many words [`Argv::with_words`] can exchange: more than any command of ours takes.
    pub(crate) const MAX_LEN: usize = 14;

    /// No words.
    pub(crate) const NONE: Self = Self {
        start: ptr::null_mut(),
        len: 0,
        call: PhantomData,
    };

    /// # Safety
    /// `argv` and `argc` are what the server passed to a command's handler, and `'c` does not
    /// outlive that handler.
    pub(crate) unsafe fn new(argv: *mut *mut raw::RedisModuleString, argc: c_int) -> Self {
        let len = usize::try_from(argc).unwrap_or_default();
        Self {
            start: argv,
            len: if argv.is_null() { 0 } else { len },
            call: PhantomData,
        }
    }

    /// How many words the command has.
    pub(crate) const fn len(self) -> usize {
        self.len
    }

    /// The key: the first argument after the name.
    pub(crate) fn key(self) -> Option<Arg<'c>> {
        self.word(1)
    }

    /// The argument after the key, which is a token in every command that has one.
    pub(crate) fn token(self) -> Option<Arg<'c>> {
        self.word(2)
    }

    /// The words from one of them on.
    pub(crate) fn words_from(self, first: usize) -> Vec<Arg<'c>> {
        (first..self.len).filter_map(|at| self.word(at)).collect()
    }

    /// All arguments, where a command has no key.
    pub(crate) fn after_name(self) -> impl Iterator<Item = &'c [u8]> {
        (1..self.len).filter_map(move |at| self.word(at).map(Arg::bytes))
    }

    /// The arguments after the key.
    pub(crate) fn after_key(self) -> impl Iterator<Item = &'c [u8]> {
        (2..self.len).filter_map(move |at| self.word(at).map(Arg::bytes))
    }

    /// One of the words.
    pub(crate) fn word(self, at: usize) -> Option<Arg<'c>> {
        // SAFETY: there are `len` strings, and they live as long as the call.
        (at < self.len).then(|| unsafe { Arg::new(*self.start.add(at)) })
    }

    /// Replaces the words of the command while `act` runs. `words` are the new ones from the first
    /// word on; `None` keeps the command's own. The places after them get `filler`. The command has
    /// no more than [`Argv::MAX_LEN`] words.
    pub(crate) fn with_words(self, words: &[Option<Arg<'_>>], filler: Arg<'_>, act: impl FnOnce()) {
        let mut own = [ptr::null_mut(); Self::MAX_LEN];
        for (at, own) in own.iter_mut().enumerate().take(self.len) {
            let word = words.get(at).copied().unwrap_or(Some(filler));
            // SAFETY: there are `len` places. The vector is the server's own, and the command may
            // change it while it runs.
            unsafe {
                let place = self.start.add(at);
                *own = *place;
                if let Some(word) = word {
                    *place = word.raw;
                }
            }
        }
        act();
        for (at, own) in own.iter().enumerate().take(self.len) {
            // SAFETY: as above. Every place gets its own string back, so the server's reference
            // counts stay right.
            unsafe { *self.start.add(at) = *own };
        }
    }
}
