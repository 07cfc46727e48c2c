//! The folder of the results, the environment that every table names, and how a document shows a
//! picture.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the results. It is created if it is missing.
pub fn folder(quick: bool) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // A quick run must not replace real results.
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let folder = match quick {
        true => target.join("benchmarks"),
        false => root.join("docs/benchmarks"),
    };
    fs::create_dir_all(&folder).expect("to make the folder of the results");
    folder
}

/// The markup of a picture with a file for each theme. `make plots` draws them.
pub fn picture(name: &str, alt: &str) -> String {
    format!(
        "<picture>\n  <source media=\"(prefers-color-scheme: dark)\" srcset=\"{name}-dark.svg\">\n  \
         <img alt=\"{alt}\" src=\"{name}.svg\">\n</picture>"
    )
}

/// How the line begins that names the build.
pub const BUILD: &str = "Build ";

/// Build, time and machine, in a line.
pub fn shown() -> String {
    Environment::look().shown()
}

/// The last commit that changed the module, and whether its sources have changed since then. All
/// commits with the same sources make the same build.
pub fn build() -> (String, bool) {
    let sources = ["core", "src", "Cargo.toml", "Cargo.lock"];
    let git = |words: &[&str]| said("git", &[words, &["--"], &sources].concat());
    let commit = git(&["log", "-1", "--format=%h", "--abbrev=8"]);
    let changed = !git(&["status", "--porcelain", "--untracked-files=no"]).is_empty();
    (commit, changed)
}

/// What a program prints, without the spaces around it.
fn said(program: &str, args: &[&str]) -> String {
    let mut command = Command::new(program);
    let output = command
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string());
    text.unwrap_or_default()
}

struct Environment {
    commit: String,
    date: String,
    machine: String,
}

impl Environment {
    fn look() -> Self {
        let (commit, changed) = build();
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let mut models = cpus.lines().filter(|line| line.starts_with("model name"));
        let model = models.next().and_then(|line| line.split_once(": "));
        Self {
            commit: format!("{commit}{}", if changed { " with changes" } else { "" }),
            date: said("date", &["-u", "+%F %H:%M UTC"]),
            machine: format!(
                "{} x {}, Linux {}",
                cpus.matches("model name").count(),
                model.map_or("a processor", |model| model.1),
                said("uname", &["-r"]),
            ),
        }
    }

    fn shown(&self) -> String {
        let Self {
            commit,
            date,
            machine,
        } = self;
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        // The documents say once that each has a core of its own.
        let unpinned = match status.contains("Cpus_allowed_list:\t1\n") {
            true => "",
            false => " The server and the clients ran on any core.",
        };
        format!("{BUILD}{commit}, {date}, {machine}.{unpinned}\n")
    }
}
