//! Whether the server has everything that it had before it started: `appendfsync always`, and an
//! append-only file that was loaded whole. Then no lease can be missing.
//!
//! A server that loads a file with a cut end cuts it there, too (`aof-load-truncated`). So the file
//! is as long after the load as it was before only if it was whole.
//!
//! A process that ends while its guard is closed may lack leases, and so may the next one, although
//! it finds a whole file. So a small file beside the data says that the guard is closed, and why.

use std::cell::{Cell, OnceCell};
use std::ffi::{CStr, OsStr};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::engine::guard::Reason;
use crate::planted::planted;
use crate::server::api::{Caller, Level};

/// More bytes than the name of any reason has.
const LONGEST_REASON: u64 = 32;

/// The log line of a server that can note nothing.
const NOT_KEPT: &CStr =
    c"guard: no file can be written in `dir`, so every start is guarded for its whole time";

/// What is known of the start.
#[derive(Debug, Default)]
pub(in crate::server) struct Start {
    /// Whether it is over: what is loaded later is not what the server had.
    is_over: Cell<bool>,
    /// The length of the append-only file when its load began.
    bytes: Cell<Option<u64>>,
    /// The marker's path when the process began. CONFIG SET may change it, and the next start may
    /// look here again.
    marker: OnceCell<PathBuf>,
    /// Whether the guard was closed when the process before this one ended.
    was_guarded: Cell<bool>,
}

impl Start {
    /// The module is loaded.
    pub(in crate::server) fn is_loaded(&self, caller: &mut Caller<'_>) {
        if let Some(marker) = marker(caller) {
            let _ = self.marker.set(marker);
        }
    }

    /// A process with a guard begins. Whether the one before it was promoted, and had not waited to
    /// the end.
    pub(in crate::server) fn begins(&self, caller: &mut Caller<'_>) -> bool {
        let (before, is_kept) = self.remember(caller, Some(Reason::Restart));
        if !is_kept {
            caller.context().log(Level::Warning, NOT_KEPT);
        }
        // Where nothing can be noted, the guard may have been closed.
        self.was_guarded.set(before.is_some() || !is_kept);
        before == Some(Reason::Promotion)
    }

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
            && !self.was_guarded.get()
            && has(c"appendfsync", b"always")
            && has(c"no-appendfsync-on-rewrite", b"no")
    }

    /// Notes why the guard is closed, or that it is open, for the next start. Answers what was
    /// noted before, and whether it is noted now.
    pub(in crate::server) fn remember(
        &self,
        caller: &mut Caller<'_>,
        closed_by: Option<Reason>,
    ) -> (Option<Reason>, bool) {
        let first = self.marker.get();
        let present = marker(caller).filter(|present| Some(present) != first);
        let markers = first.into_iter().chain(&present);
        let markers: Vec<_> = markers.map(|marker| (marker, noted_in(marker))).collect();
        let before = markers.iter().filter_map(|(_, noted)| *noted);
        let before = before.max_by_key(|reason| *reason == Reason::Promotion);
        let now = Reason::to_remember(before, closed_by);
        let mut is_noted = false;
        for (marker, noted) in markers {
            is_noted |= match now {
                None => fs::remove_file(marker).is_ok(),
                now if now == noted => true,
                Some(reason) => write_to_disk(marker, reason.name().to_bytes()).is_ok(),
            };
        }
        (before, is_noted)
    }

    /// The server runs.
    pub(in crate::server) fn is_over(&self) {
        self.is_over.set(true);
    }
}

/// How a marker is opened. What is no file must not stop the server.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(libc::O_NONBLOCK);
    options
}

/// The reason that a marker has. One that a loss of power has left empty has the gravest.
fn noted_in(marker: &Path) -> Option<Reason> {
    let mut why = Vec::new();
    let file = options().read(true).open(marker).ok()?;
    file.take(LONGEST_REASON).read_to_end(&mut why).ok()?;
    let is_restart = why == Reason::Restart.name().to_bytes();
    Some(match is_restart {
        true => Reason::Restart,
        false => Reason::Promotion,
    })
}

/// Writes a file that outlasts a loss of power.
fn write_to_disk(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = options()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)?;
    file.write_all(text)?;
    file.sync_all()?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// The file that is there while the guard is closed. Servers that share a directory have data files
/// of different names.
fn marker(caller: &mut Caller<'_>) -> Option<PathBuf> {
    let dir = path(caller, c"dir")?;
    let mut name = path(caller, c"dbfilename")?.into_os_string();
    name.push(".guarded");
    Some(dir.join(name))
}

/// A setting that is a path, or a part of one.
fn path(caller: &mut Caller<'_>, name: &CStr) -> Option<PathBuf> {
    let value = caller.config_value(name)?;
    Some(PathBuf::from(OsStr::from_bytes(&value)))
}

/// The bytes of the append-only file, or of all its parts from 7.0 on.
fn len_of_aof(caller: &mut Caller<'_>) -> Option<u64> {
    let mut path = |name| path(caller, name);
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
