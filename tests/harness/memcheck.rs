//! Servers under valgrind's memcheck, which checks every memory access and, if the server exits
//! normally, leaks.
//!
//! `TEST_UNDER_VALGRIND` names a folder for reports and runs the servers of all tests this way
//! (`make valgrind`). A test fails if the report on its server blames the module.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The factor by which everything may take longer.
const SLOWER: u32 = 15;

/// The allocator of the servers is not that of libc. Without this option, memcheck would not see
/// the allocations.
const ALLOCATOR: &str = "--soname-synonyms=somalloc=*jemalloc*";

/// Findings in the servers themselves, without a frame of the module in the stack.
const SUPPRESSIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/valgrind.supp");

/// The file name that identifies the module in a stack.
const MODULE: &str = "libredis_lock";

/// Additional options of the server. Its compression reads memory that it has not written, on
/// purpose. Without compression, the data that the module saves is checked itself.
pub(super) const OPTIONS: [&str; 2] = ["--rdbcompression", "no"];

/// The folder for reports on the servers of all tests.
fn of_all_tests() -> Option<PathBuf> {
    std::env::var_os("TEST_UNDER_VALGRIND").map(PathBuf::from)
}

/// Whether the servers of all tests run under memcheck.
pub(super) fn is_for_all_tests() -> bool {
    of_all_tests().is_some()
}

/// A time limit that is long enough for a server of this run.
pub(super) fn patience(span: Duration) -> Duration {
    match of_all_tests() {
        Some(_) => span * SLOWER,
        None => span,
    }
}

/// The command line before that of a server in the folder `dir`.
pub(super) fn command(dir: &Path) -> Vec<String> {
    let reports = reports_of(dir);
    fs::create_dir_all(&reports).expect("a folder for the reports");
    let report = reports.join("%p");
    [
        "valgrind",
        &format!("--log-file={}", report.display()),
        ALLOCATOR,
        "--leak-check=full",
        "--show-leak-kinds=definite",
        "--errors-for-leak-kinds=definite",
        &format!("--suppressions={}", SUPPRESSIONS),
        // Deep stacks of server and module, so that no frame of the module is cut off.
        "--num-callers=40",
    ]
    .map(str::to_string)
    .to_vec()
}

/// The reports on a server: a file for each process, because a child that saves has its own.
fn reports_of(dir: &Path) -> PathBuf {
    match (of_all_tests(), dir.file_name()) {
        (Some(all), Some(name)) => all.join(name),
        _ => dir.join("memcheck"),
    }
}

/// The report of memcheck on a server and its children.
#[derive(Debug)]
pub struct Report {
    text: String,
}

impl Report {
    #[track_caller]
    pub(super) fn read(dir: &Path) -> Self {
        let reports = fs::read_dir(reports_of(dir)).expect("the reports of valgrind");
        let texts = reports.map(|entry| fs::read(entry.unwrap().path()).unwrap());
        let texts = texts.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let text = texts.collect::<Vec<_>>().join("\n");
        assert!(text.contains("Memcheck"), "no report of valgrind's");
        Self { text }
    }

    /// All findings, each with its stacks.
    fn findings(&self) -> Vec<String> {
        // Every line starts with the process. An empty line separates findings.
        let lines = self.text.lines().map(|line| {
            let line = line.strip_prefix("==").unwrap_or(line);
            line.split_once("== ").map_or("", |(_, text)| text)
        });
        let text: Vec<&str> = lines.collect();
        let blocks = text.split(|line| line.is_empty());
        let findings = blocks.filter(|block| block.iter().any(|line| is_frame(line)));
        findings.map(|block| block.join("\n")).collect()
    }

    /// Fails if memcheck blames the module for anything, or the server for an invalid access.
    #[track_caller]
    pub fn assert_clean(&self) {
        for finding in self.findings() {
            let is_leak = finding.contains(" lost in loss record ");
            assert!(is_leak && !finding.contains(MODULE), "{finding}");
        }
    }

    /// The number of allocations of the processes that exited normally. Leaks are known only for
    /// these.
    pub fn allocations(&self) -> u64 {
        let ends = self.text.split("total heap usage: ").skip(1);
        let numbers = ends.map(|rest| rest.split(' ').next().unwrap_or("").replace(',', ""));
        numbers.map(|number| number.parse::<u64>().unwrap()).sum()
    }
}

/// Whether a line belongs to a stack: `   at 0x4C2B0E: main (in …)`.
fn is_frame(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("at 0x") || line.starts_with("by 0x")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAN: &str = "\
==7== Memcheck, a memory error detector
==7== Command: server --loadmodule target/release/libredis_lock.so
==7== 
==7== HEAP SUMMARY:
==7==     in use at exit: 1,086,291 bytes in 15,167 blocks
==7==   total heap usage: 24,605 allocs, 9,438 frees, 1,967,635 bytes allocated
==7== 
==7== 5 bytes in 1 blocks are definitely lost in loss record 1 of 2
==7==    at 0x48407B4: malloc (vg_replace_malloc.c:381)
==7==    by 0x1234: main (in /bin/server)
==7== 
==7== ERROR SUMMARY: 1 errors from 1 contexts (suppressed: 0 from 0)
";

    fn report(more: &str) -> Report {
        let text = format!("{CLEAN}==7== \n{more}");
        Report { text }
    }

    fn is_clean(more: &str) -> bool {
        std::panic::catch_unwind(|| report(more).assert_clean()).is_ok()
    }

    #[test]
    fn findings_in_the_module_are_attributed_to_it() {
        assert!(is_clean(""));
        assert_eq!(report("").allocations(), 24_605);
        assert!(!is_clean(
            "==7== 5 bytes in 1 blocks are definitely lost in loss record 2 of 2\n\
             ==7==    at 0x48407B4: malloc (vg_replace_malloc.c:381)\n\
             ==7==    by 0x5F: redis_lock::f (in target/release/libredis_lock.so)\n"
        ));
        // The server reads memory that the module has freed.
        assert!(!is_clean(
            "==7== Invalid read of size 1\n\
             ==7==    at 0x1234: main (in /bin/server)\n\
             ==7==  Address 0x52 is 0 bytes inside a block of size 16 free'd\n\
             ==7==    at 0x5F: redis_lock::f (in target/release/libredis_lock.so)\n"
        ));
        assert!(!is_clean(
            "==7== Invalid read of size 1\n==7==    at 0x1234: main (in /bin/server)\n"
        ));
    }
}
