//! One server under the traffic of many clients: disturbed, or ended and started again on its files.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::RngExt;

use super::journal::Journal;
use super::log::Log;
use super::operator::{watch, Operator};
use super::plan::{Fault, Plan};
use super::traffic::{Client, CLIENTS};
use super::wire::{Field, Wire};
use crate::harness::dump::raise_fences_by_an_hour;
use crate::harness::{aof, wait_for, Kind, Server, SetWhenDropped, Setup};

const LOCKS: usize = 10;

/// Many clients are busy with one another after a start.
const FEW: usize = 12;

/// What `everysec` may lose, and a write that waits for a sync.
const TWO_SECONDS_US: u64 = 2_000_000;

/// All leases and waits of a round are over by then.
const FREE_WITHIN: Duration = Duration::from_secs(20);

struct Stage<'f> {
    server: Server,
    field: &'f Field<'f>,
    plan: &'f Plan,
    random: StdRng,
    log: Log,
    /// The look that the last save follows which has ended.
    saved: String,
}

pub fn play(plan: &Plan, journal: &Journal) {
    journal.note_at(0, "driver", 0, "round", &plan.told());
    if plan.kind == Kind::Valkey9 {
        // It reads its clock once a millisecond and counts on from there, a moment too far.
        journal.note("driver", 0, "lead", "1");
    }
    let server = Server::start_with(plan.kind, &options(plan));
    let clients = if plan.fault.is_disturbance() {
        CLIENTS
    } else {
        FEW
    };
    let field = &Field::new(journal, plan.seed, server.port, LOCKS, CLIENTS);
    let mut stage = Stage {
        log: Log::of(server.dir()),
        server,
        field,
        plan,
        random: plan.random(0),
        saved: String::new(),
    };
    if plan.fault == Fault::Killed {
        // From here on the clock alone would repeat fences.
        raise_fences_by_an_hour(&mut stage.server.client());
    }
    thread::scope(|scope| {
        // Also if something here fails, because the scope waits for all of them.
        let _over = SetWhenDropped(field.over());
        for number in 0..clients {
            scope.spawn(move || Client::new(field, number).live());
        }
        scope.spawn(|| watch(field));
        if plan.fault.is_disturbance() {
            scope.spawn(|| Operator::new(field, plan.fault).disturb());
        }
        match plan.fault {
            Fault::Busy | Fault::Flushed => sleep(Duration::from_millis(plan.single_ms())),
            Fault::Paused => stage.stop_and_go_on(),
            _ => {
                for life in 0..3 {
                    stage.live(life);
                }
                stage.pause(100..200);
            }
        }
    });
    stage.end();
}

fn options(plan: &Plan) -> Vec<&'static str> {
    let sync = match plan.fault {
        Fault::Everysec => "everysec",
        Fault::Killed | Fault::Shut | Fault::Rewritten | Fault::PowerCut => "always",
        _ => "no",
    };
    let preamble = if plan.seed % 2 == 0 { "yes" } else { "no" };
    let mut options = vec!["--appendonly", "yes", "--appendfsync", sync];
    options.extend([
        "--auto-aof-rewrite-percentage",
        "0",
        "--aof-use-rdb-preamble",
        preamble,
    ]);
    if matches!(plan.fault, Fault::Rewritten | Fault::Saved) {
        // A child writes for long enough that a kill can hit it.
        options.extend(["--rdb-key-save-delay", "3000"]);
    }
    // Redis 8.6 with such threads answers nobody any more after some seconds of this. It is not known why.
    let may_have_threads = plan.kind != Kind::Redis8_6;
    if plan.fault == Fault::Busy && plan.seed % 3 == 0 && may_have_threads {
        options.extend(["--io-threads", "4"]);
    }
    options
}

impl Stage<'_> {
    fn pause(&mut self, ms: std::ops::Range<u64>) {
        sleep(Duration::from_millis(self.random.random_range(ms)));
    }

    fn stop_and_go_on(&mut self) {
        let end = Instant::now() + Duration::from_millis(self.plan.single_ms());
        while Instant::now() < end {
            self.pause(20..150);
            self.server.signal("STOP");
            self.pause(5..80);
            self.server.signal("CONT");
        }
    }

    /// The server runs for a while, ends, and starts again.
    fn live(&mut self, life: u64) {
        let dir = self.server.dir().to_path_buf();
        let journal = self.field.journal;
        // Longer than the time that may be lost.
        let ms = match (self.plan.fault, life) {
            (Fault::Everysec, 1) => 2_100..2_300,
            _ => 150..700,
        };
        let until = Instant::now() + Duration::from_millis(self.random.random_range(ms));
        let mut lengths = Vec::new();
        while Instant::now() < until {
            match self.plan.fault {
                Fault::Rewritten => self.rewrite(),
                Fault::Saved => self.save(),
                Fault::PowerCut => {
                    let at_us = journal.now_us();
                    let len = fs::metadata(last_part(&dir)).unwrap().len();
                    lengths.push((at_us, len));
                }
                _ => {}
            }
            sleep(Duration::from_millis(3));
        }
        self.aim(life);
        let struck_us = journal.now_us();
        let order = match (self.plan.fault, life) {
            (Fault::Shut, 1) | (Fault::Saved, 1) => Some("SHUTDOWN SAVE"),
            (Fault::Shut, _) => Some("SHUTDOWN NOSAVE"),
            (Fault::Everysec, 2) => Some("SHUTDOWN"),
            _ => None,
        };
        match order {
            Some(line) => self.server.shut_down_by(line),
            None => self.server.kill(),
        }
        self.field.port.store(0, Ordering::SeqCst);
        end_children(&self.server);
        self.field.note("driver", "ended", order.unwrap_or("kill"));
        let mut promised_us = match self.plan.fault {
            Fault::Everysec if order.is_none() => struck_us.saturating_sub(TWO_SECONDS_US),
            _ => u64::MAX,
        };
        if self.plan.fault == Fault::PowerCut {
            promised_us = self.cut(&lengths);
        }
        let is_whole = self.log.write(&dir, journal, self.server.port);
        if is_whole && self.plan.fault != Fault::PowerCut {
            self.check("aof", &aof::entrance(&dir));
        }
        // `Saved` goes on from the RDB alone.
        if !is_whole && self.plan.fault != Fault::Saved {
            self.start_on_torn_file(&format!("answered {promised_us} {struck_us}"));
        }
        let kept = match (self.plan.fault, order) {
            (Fault::Saved, None) => format!("since {} {struck_us}", self.saved),
            _ => format!("answered {promised_us} {struck_us}"),
        };
        self.start_again(&kept);
    }

    fn start_again(&mut self, kept: &str) {
        let journal = self.field.journal;
        journal.note("log", self.server.port, "starts", kept);
        if self.plan.fault == Fault::Saved {
            self.start_on_rdb();
        } else {
            self.server.start_again();
        }
        for word in ["BUG REPORT", "crashed", "Bad file format"] {
            assert!(!self.server.log().contains(word), "{}", self.server.log());
        }
        self.field.lives.fetch_add(1, Ordering::SeqCst);
        // Nobody else has come yet.
        let raw = self.server.raw();
        let mut wire = Wire { raw, connection: 0 };
        self.field.look(&mut wire, "boot").expect("a look");
        self.field.port.store(self.server.port, Ordering::SeqCst);
    }

    /// The server must leave out what is not whole. It may keep the beginning of a transaction in its file,
    /// so the file is mended before anybody goes on with it.
    fn start_on_torn_file(&mut self, kept: &str) {
        let journal = self.field.journal;
        journal.note("log", self.server.port, "starts", kept);
        self.server.start_again();
        let raw = self.server.raw();
        let mut wire = Wire { raw, connection: 0 };
        let (look, _) = self.field.look(&mut wire, "torn").expect("a look");
        journal.note("log", self.server.port, "mark", &look);
        self.server.kill();
        let file = fs::File::options()
            .write(true)
            .open(last_part(self.server.dir()));
        file.unwrap().set_len(self.log.end()).unwrap();
    }

    /// On the RDB alone, and with a new append-only file then.
    fn start_on_rdb(&mut self) {
        let dir = self.server.dir().to_path_buf();
        let rdb = dir.join("dump.rdb");
        if rdb.exists() {
            self.check("rdb", &rdb);
        }
        fs::remove_dir_all(dir.join("appendonlydir")).unwrap();
        let mut options = options(self.plan);
        options[1] = "no";
        self.server.start_again_as(Setup::with_module(&options));
        let mut c = self.server.client();
        c.ok("CONFIG SET rdb-key-save-delay 0");
        c.ok("CONFIG SET appendonly yes");
        aof::until_rewritten(&mut c);
        c.ok("CONFIG SET rdb-key-save-delay 3000");
        self.log.begin_again(&dir);
        self.saved = String::new();
    }

    fn rewrite(&mut self) {
        let dir = self.server.dir().to_path_buf();
        self.log.keep_parts(&dir);
        // It refuses while one is going on.
        self.server.client().call("BGREWRITEAOF");
        self.log.keep_parts(&dir);
    }

    /// Begins a save, and notes the one before.
    fn save(&mut self) {
        let mut c = self.server.client();
        if c.info("rdb_bgsave_in_progress") == "1" {
            return;
        }
        let raw = self.server.raw();
        let mut wire = Wire { raw, connection: 0 };
        let (look, _) = self.field.look(&mut wire, "driver").expect("a look");
        c.call("BGSAVE");
        let until = Instant::now() + Duration::from_millis(self.random.random_range(0..200));
        while Instant::now() < until {
            if c.info("rdb_bgsave_in_progress") == "0" {
                assert_eq!(c.info("rdb_last_bgsave_status"), "ok");
                self.saved = look;
                return;
            }
            sleep(Duration::from_millis(2));
        }
    }

    /// Waits for a moment at which the end of the server hurts.
    fn aim(&mut self, life: u64) {
        if self.plan.fault != Fault::Rewritten {
            return;
        }
        let dir = self.server.dir().to_path_buf();
        let start = Instant::now();
        let state = || newest_base(&dir).map(|base| fs::metadata(base).map(|file| file.ino()).ok());
        let before = state();
        // While a child writes, or between two renames, or after them.
        let is_there = |life: u64| match life {
            0 => has_child(&dir),
            _ => state() != before,
        };
        while !is_there(life) && start.elapsed() < Duration::from_secs(5) {
            if !has_child(&dir) {
                self.rewrite();
            }
            sleep(Duration::from_micros(100));
        }
        let us = [10_000, 300, 50_000][life as usize % 3];
        sleep(Duration::from_micros(self.random.random_range(0..us)));
        self.log.keep_parts(&dir);
    }

    /// The file is as long as it was at some instant, or somewhat longer. Answers what was promised.
    fn cut(&mut self, lengths: &[(u64, u64)]) -> u64 {
        let (at_us, len) = lengths[self.random.random_range(0..lengths.len())];
        let file = fs::File::options()
            .write(true)
            .open(last_part(self.server.dir()));
        let file = file.unwrap();
        let whole = file.metadata().unwrap().len();
        file.set_len((len + self.random.random_range(0..200)).min(whole))
            .unwrap();
        at_us
    }

    /// Checks a file with the servers' own checker, if there is one.
    fn check(&self, of: &str, file: &Path) {
        if let Some(checker) = self.plan.kind.checker(of) {
            let run = Command::new(&checker).arg(file).output().unwrap();
            let said = String::from_utf8_lossy(&run.stdout);
            assert!(run.status.success(), "{checker:?}: {said}");
        }
    }

    /// All has been given up, or its time is over. Then the server starts once more.
    fn end(mut self) {
        let raw = self.server.raw();
        let connection = self.field.lives.load(Ordering::SeqCst);
        let mut wire = Wire { raw, connection };
        // The judges say what is wrong with those that are not.
        let until = Instant::now() + FREE_WITHIN;
        wait_for("all locks to be free", || {
            let (_, is_free) = self.field.look(&mut wire, "pulse").expect("a look");
            (is_free || Instant::now() > until).then_some(())
        });
        let blocked = self.server.blocked_clients();
        self.field.note("driver", "blocked", &blocked.to_string());
        let dir = self.server.dir().to_path_buf();
        // With `everysec` a kill would lose the end of the record.
        self.server.shut_down_by("SHUTDOWN NOSAVE");
        self.log.write(&dir, self.field.journal, self.server.port);
    }
}

fn last_part(dir: &Path) -> PathBuf {
    aof::parts(dir).pop().expect("a part")
}

fn has_child(dir: &Path) -> bool {
    let files = fs::read_dir(dir).unwrap().flatten();
    let mut names = files.map(|file| file.file_name());
    names.any(|name| name.to_string_lossy().starts_with("temp-"))
}

/// The newest base of the file, whether or not the manifest names it yet.
fn newest_base(dir: &Path) -> Option<PathBuf> {
    let files = fs::read_dir(dir.join("appendonlydir")).ok()?.flatten();
    let bases = files.filter_map(|file| {
        let name = file.file_name().into_string().ok()?;
        let (number, _) = name.strip_prefix("appendonly.aof.")?.split_once(".base.")?;
        Some((number.parse::<u64>().ok()?, file.path()))
    });
    bases.max().map(|(_, base)| base)
}

/// Ends the processes that write a file for an ended server.
fn end_children(server: &Server) {
    let log = server.log();
    let begun = log.lines().filter(|line| line.contains("started by pid"));
    for pid in begun.filter_map(|line| line.split(' ').next_back()) {
        let cwd = Path::new("/proc").join(pid).join("cwd");
        if fs::read_link(&cwd).is_ok_and(|cwd| cwd == server.dir()) {
            Command::new("kill").args(["-9", pid]).status().ok();
            wait_for("a child to end", || (!cwd.exists()).then_some(()));
        }
    }
    for file in fs::read_dir(server.dir()).unwrap().flatten() {
        if file.file_name().to_string_lossy().starts_with("temp-") {
            fs::remove_file(file.path()).ok();
        }
    }
}
