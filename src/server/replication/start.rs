//! Whether the server has everything that it had before it started: `appendfsync always`, and an
//! append-only file that was loaded whole. Then no lease can be missing.
//!
//! A server that loads a file with a cut end cuts it there, too (`aof-load-truncated`). So the file
//! is as long after the load as it was before only if it was whole.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::planted::planted;
use crate::server::api::Caller;

/// What is known of the start.
#[derive(Debug, Default)]
pub(in crate::server) struct Start {
    /// Whether it is over: what is loaded later is not what the server had.
    is_over: Cell<bool>,
    /// The length of the append-only file when its load began.
    bytes: Cell<Option<u64>>,
}

impl Start {
    /// The load of an append-only file begins.
    pub(in crate::server) fn aof_begins(&self, caller: &mut Caller<'_>) {
        if !self.is_over.get() {
            self.bytes.set(len_of_aof(caller));
        }
    }

    /// A load has ended well. Answers whether nothing is missing.
    pub(in crate::server) fn ended(&self, caller: &mut Caller<'_>) -> bool {
        let before = self.bytes.take();
        let is_whole = planted("a-cut-file-is-whole") || before == len_of_aof(caller);
        let mut has = |name, value: &[u8]| caller.config_value(name).is_some_and(|is| is == value);
        // With the other setting nothing is synced while a child writes a file.
        before.is_some()
            && is_whole
            && has(c"appendfsync", b"always")
            && has(c"no-appendfsync-on-rewrite", b"no")
    }

    /// The server runs.
    pub(in crate::server) fn is_over(&self) {
        self.is_over.set(true);
    }
}

/// The bytes of the append-only file, or of all its parts from 7.0 on.
fn len_of_aof(caller: &mut Caller<'_>) -> Option<u64> {
    let mut path = |name| {
        let value = caller.config_value(name)?;
        Some(PathBuf::from(OsStr::from_bytes(&value)))
    };
    let dir = path(c"dir")?;
    let Some(parts) = path(c"appenddirname") else {
        let file = fs::metadata(dir.join(path(c"appendfilename")?));
        return file.ok().map(|file| file.len());
    };
    let entries = fs::read_dir(dir.join(parts)).ok()?;
    entries
        .map(|entry| Some(entry.ok()?.metadata().ok()?.len()))
        .try_fold(0, |sum: u64, len| Some(sum.saturating_add(len?)))
}
