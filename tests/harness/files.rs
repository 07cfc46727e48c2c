//! Files that the tests need besides the servers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::kind::Kind;
use super::server::module;

/// A file of the project.
pub fn project_file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"))
}

/// A redis-cli, which works with any server. `make test` fetches this one.
pub fn redis_cli() -> PathBuf {
    let program = Kind::Redis7_0.folder().join("redis-cli");
    assert!(program.exists(), "{program:?}: run `make servers`");
    program
}

/// Another build of the same source: that of the test profile, with other optimizations and checks.
pub fn other_build() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let path = tests.with_file_name("libredis_lock.so");
    assert!(path.exists(), "{path:?} comes with the tests");
    assert_ne!(fs::read(&path).unwrap(), fs::read(module()).unwrap());
    path
}

/// Builds a module of the tests, beside the test binary. The caller removes it.
pub fn built_module(source: &str, kind: Kind, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let binary = std::env::current_exe().unwrap();
    let process = std::process::id();
    let library = binary.with_file_name(format!("lib{name}-{}-{process}.so", kind.name()));
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o"])
        .args([&library, &source])
        .status();
    assert!(built.is_ok_and(|status| status.success()), "cc {source:?}");
    library
}

/// Copies a folder with its subfolders.
pub fn copy_files(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap_or_else(|error| panic!("{from:?}: {error}")) {
        let from = entry.unwrap().path();
        let to = to.join(from.file_name().unwrap());
        if from.is_dir() {
            fs::create_dir_all(&to).unwrap();
            copy_files(&from, &to);
        } else {
            fs::copy(&from, &to).unwrap();
        }
    }
}
