//! A full disk: the process's file size limit is set to its current size. That needs no special
//! rights.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::client::Reply;
use super::server::{wait_for, Server, Setup};

/// The process gets an error instead of a signal.
pub fn without_signal(mut setup: Setup) -> Setup {
    setup.under = vec!["env".into(), "--ignore-signal=XFSZ".into()];
    setup
}

/// The limit applies to all files, and the log must stay below it.
pub fn leave_room_for_logs(server: &Server) {
    let text = "x".repeat(200_000);
    server.client().text(&format!("SET filler {text}"));
}

fn append_only_file(server: &Server) -> PathBuf {
    let folder = server.dir().join("appendonlydir");
    if !folder.exists() {
        return server.dir().join("appendonly.aof");
    }
    let files = fs::read_dir(folder).unwrap().flatten();
    let mut files = files.map(|file| file.path());
    let is_growing = |file: &PathBuf| file.to_str().unwrap().ends_with(".incr.aof");
    files.find(is_growing).expect("the file that grows")
}

/// Lets the append-only file grow by this many bytes and no more.
pub fn leave_room(server: &Server, bytes: u64) {
    let size = fs::metadata(append_only_file(server)).unwrap().len();
    limit_files(server, &format!("{}:", size + bytes));
}

pub fn have_room_again(server: &Server) {
    limit_files(server, "unlimited:");
}

fn limit_files(server: &Server, soft: &str) {
    let (pid, limit) = (server.pid().to_string(), format!("--fsize={soft}"));
    let status = Command::new("prlimit")
        .args(["--pid", &pid, &limit])
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "prlimit {limit}"
    );
}

/// Makes the server notice, by a write that it accepts and cannot persist.
pub fn fill_disk(server: &Server) {
    leave_room(server, 0);
    let mut c = server.client();
    wait_for("the disk to be full", || {
        let refused =
            matches!(c.call("SET filler2 x"), Reply::Error(e) if e.starts_with("MISCONF "));
        refused.then_some(())
    });
}
