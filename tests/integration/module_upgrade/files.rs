//! `make install` and `make uninstall`, into a folder of their own.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::harness::{follow_links, module};

/// A folder that is removed with the test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("redis-lock-folder-{}-{n}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// All files below it, as paths in it.
    fn files(&self) -> Vec<String> {
        let (mut files, mut folders) = (Vec::new(), vec![self.0.clone()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let name = path.strip_prefix(&self.0).unwrap();
                    files.push(name.to_str().unwrap().to_string());
                }
            }
        }
        files.sort();
        files
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// Runs one of the Makefile's targets that put files below `destination`.
#[track_caller]
pub fn make(target: &str, destination: &Path, prefix: &str, module: &Path) {
    let output = Command::new("make")
        .arg("--no-print-directory")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .arg(target)
        .arg(format!("DESTDIR={}", destination.display()))
        .arg(format!("PREFIX={prefix}"))
        .arg(format!("REDIS_LOCK_MODULE={}", module.display()))
        // Variables of the outer make must not reach this one.
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL")
        .output()
        .expect("make");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "make {target}: {said}");
}

const PREFIX: &str = "/opt/locks";

#[test]
fn make_uninstall_removes_all_that_make_install_installed() {
    let folder = Folder::new();
    // Files of others stay.
    let other = folder.path().join("opt/locks/lib/redis/modules/other.so");
    fs::create_dir_all(other.parent().unwrap()).unwrap();
    fs::write(&other, "another module").unwrap();

    make("install", folder.path(), PREFIX, &module());
    let files = folder.files();
    for name in [
        "lib/redis/modules/libredis_lock.so",
        "share/doc/redis-lock/LICENSE-APACHE",
        "share/doc/redis-lock/LICENSE-MIT",
        "share/doc/redis-lock/README.md",
        "share/doc/redis-lock/docs/UPGRADING.md",
        "share/doc/redis-lock/redis.conf.example",
    ] {
        let name = format!("opt/locks/{name}");
        assert!(files.contains(&name), "no {name} among {files:?}");
    }
    let installed = folder
        .path()
        .join("opt/locks/lib/redis/modules/libredis_lock.so");
    assert_eq!(fs::read(&installed).unwrap(), fs::read(module()).unwrap());
    // Servers load no file that lacks execute permission, and they run as another user than the
    // installer.
    assert_eq!(fs::metadata(&installed).unwrap().mode() & 0o777, 0o755);
    assert_links_lead_somewhere(&folder, &files);
    let conf = folder
        .path()
        .join("opt/locks/share/doc/redis-lock/redis.conf.example");
    let conf = fs::read_to_string(conf).unwrap();
    let load = "loadmodule /opt/locks/lib/redis/modules/libredis_lock.so";
    assert!(conf.lines().any(|line| line.starts_with(load)), "{conf}");
    assert!(!conf.contains("/usr/local"), "{conf}");

    make("uninstall", folder.path(), PREFIX, &module());
    assert_eq!(folder.files(), ["opt/locks/lib/redis/modules/other.so"]);
    fs::remove_file(other).unwrap();
    make("install", folder.path(), PREFIX, &module());
    make("uninstall", folder.path(), PREFIX, &module());
    assert!(folder.files().is_empty());
}

/// Not every link target of the documents is installed with them.
#[track_caller]
fn assert_links_lead_somewhere(folder: &Folder, files: &[String]) {
    let documents = files.iter().filter(|name| name.ends_with(".md"));
    let seen: usize = documents
        .map(|name| follow_links(&folder.path().join(name)))
        .sum();
    assert!(seen >= 50, "only {seen} links");
}
