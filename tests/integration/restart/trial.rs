//! A server that is ended repeatedly under load, and compared after each restart.

use std::fmt;
use std::fs;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::checker::{instant_that_came_back, Fences};
use super::file::Account;
use super::journal::{Life, Order};
use super::load_clients::{Player, CLIENTS};
use super::observed::Observed;
use crate::harness::{aof, now_us, wait_for, Client, Kind, Reply, Server, SetWhenDropped};

pub struct Trial {
    pub server: Server,
    pub rng: StdRng,
    pub lives: Vec<Life>,
    pub tally: Tally,
    seed: u64,
    /// A base file that no manifest names, by its inode.
    orphan: Option<u64>,
    players: Vec<Player>,
    again: Vec<Option<Order>>,
    fences: Fences,
}

/// The figures of all lives.
#[derive(Default)]
pub struct Tally {
    pub kills: usize,
    pub shutdowns: usize,
    pub answered: usize,
    pub unanswered: usize,
    /// Grants of several keys in the last file, each in one transaction.
    pub several: usize,
    /// Delivered fences, each for one hold.
    pub fences: usize,
    /// Holds that were there after a restart.
    pub back: usize,
    /// Lives that ended while a child was writing a file.
    pub in_a_rewrite: usize,
    /// Completed rewrites.
    pub rewrites: usize,
    /// Lives that ended between the rename of the new base and that of the manifest.
    pub in_a_swap: usize,
    pub torn: usize,
    pub checked: usize,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            (self.kills, "kills"),
            (self.shutdowns, "shutdowns"),
            (self.in_a_rewrite, "of them while a file was being written"),
            (self.in_a_swap, "of them between two renames"),
            (self.rewrites, "rewrites completed"),
            (self.answered, "acknowledged requests"),
            (self.unanswered, "in flight"),
            (
                self.several,
                "grants of several keys in the last file, each whole",
            ),
            (self.fences, "fences, none twice"),
            (self.back, "holds back"),
            (self.torn, "torn tails"),
            (self.checked, "files accepted by the server's checker"),
        ];
        let done = all.into_iter().filter(|(count, _)| *count > 0);
        let done: Vec<_> = done
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        f.write_str(&done.join(", "))
    }
}

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Kill,
    /// While a child writes a file.
    KillInRewrite,
    /// After the first save.
    KillAfterSave,
    /// As soon as a rewritten file has been renamed.
    KillInSwap,
    /// After the server continues with a rewritten file.
    KillAfterRewrite,
    /// `SHUTDOWN` with its argument.
    Order(&'static str),
}

/// The activity beside the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    Nothing,
    /// BGREWRITEAOF, repeatedly.
    Rewrites,
    /// BGSAVE, repeatedly.
    Saves,
    /// The server saves on its own after a second.
    SavePoint,
    /// The length of the file is recorded.
    Meter,
}

/// Observations beside the clients.
#[derive(Default)]
pub struct Notes {
    pub began_us: u64,
    /// Just before the server was ended.
    pub struck_us: u64,
    /// The last successful save had not begun before this time.
    pub saved_us: Option<u64>,
    pub saves: usize,
    /// Between two instants the last part of the file had this length.
    pub lengths: Vec<(u64, u64, u64)>,
}

/// The end of a life comes after all of its replies.
pub const EVERYTHING: RangeInclusive<u64> = u64::MAX..=u64::MAX;

impl Trial {
    pub fn start(kind: Kind, options: &[&str]) -> Self {
        let seed = now_us();
        let mut players: Vec<_> = (0..CLIENTS).map(|n| Player::new(n, seed)).collect();
        players.iter_mut().for_each(|p| p.begin(Default::default()));
        Self {
            server: Server::start_with(kind, options),
            rng: StdRng::seed_from_u64(seed),
            lives: Vec::new(),
            tally: Tally::default(),
            seed,
            orphan: None,
            players,
            again: vec![None; CLIENTS],
            fences: Fences::default(),
        }
    }

    /// Runs the server under load until it is ended after this time.
    pub fn live(&mut self, ms: u64, ending: Ending, beside: Beside) -> Notes {
        let mut notes = Notes {
            began_us: now_us(),
            ..Notes::default()
        };
        let Self {
            server,
            players,
            again,
            rng,
            tally,
            ..
        } = self;
        let mut clients: Vec<_> = players.iter().map(|_| server.client()).collect();
        let (mut operator, dir) = (server.client(), server.dir().to_path_buf());
        let over = &AtomicBool::new(false);
        let pauses = StdRng::seed_from_u64(rng.random());
        thread::scope(|scope| {
            // Also if something here fails, because the scope waits for all of them.
            let over = SetWhenDropped(over);
            let is_over = over.0;
            for ((player, client), first) in players.iter_mut().zip(&mut clients).zip(again) {
                scope.spawn(|| player.play(client, first.take(), is_over));
            }
            let beside = scope.spawn(|| match beside {
                Beside::Nothing => Notes::default(),
                Beside::Rewrites => rewrite(&mut operator, pauses, is_over),
                Beside::Saves => save(&mut operator, pauses, &["BGSAVE"], is_over),
                Beside::SavePoint => {
                    let line = ["CONFIG", "SET", "save", "1 1"];
                    save(&mut operator, pauses, &line, is_over)
                }
                Beside::Meter => measure(&dir, is_over),
            });
            sleep(Duration::from_millis(ms) + Duration::from_micros(rng.random_range(0..1_000)));
            match ending {
                Ending::Kill | Ending::Order(_) => {}
                Ending::KillInRewrite => {
                    wait_for_a_child(&dir);
                    sleep(Duration::from_micros(rng.random_range(0..10_000)));
                    wait_for_a_child(&dir); // It may have ended in the meantime.
                }
                Ending::KillInSwap => {
                    wait_for_a_swap(&dir);
                    sleep(Duration::from_micros(rng.random_range(0..300)));
                }
                Ending::KillAfterRewrite => {
                    let before = rewrites(server);
                    wait_for("a rewrite to end", || {
                        (rewrites(server) > before).then_some(())
                    });
                    sleep(Duration::from_millis(rng.random_range(0..50)));
                }
                Ending::KillAfterSave => {
                    wait_for_a_child(&dir);
                    wait_for("the save to end", || {
                        files_in(&dir, "temp-").is_empty().then_some(())
                    });
                    // The server may or may not have noticed yet.
                    sleep(Duration::from_millis(rng.random_range(0..200)));
                }
            }
            let struck_us = now_us();
            tally.in_a_rewrite += usize::from(!files_in(&dir, "temp-").is_empty());
            match ending {
                Ending::Order(line) => {
                    tally.shutdowns += 1;
                    server.shut_down_by(line);
                }
                _ => {
                    tally.kills += 1;
                    server.kill();
                }
            }
            // They would keep the clients' connections open.
            end_children(server);
            drop(over);
            notes = Notes {
                began_us: notes.began_us,
                struck_us,
                ..beside.join().unwrap()
            };
        });
        self.close_life();
        notes
    }

    fn close_life(&mut self) {
        let parts: Vec<_> = self.players.iter_mut().map(Player::end).collect();
        for part in &parts {
            let answered = |answered| {
                let requests = part.requests.iter();
                requests.filter(|r| r.answers.is_some() == answered).count()
            };
            self.tally.answered += answered(true);
            self.tally.unanswered += answered(false);
        }
        self.again = parts.iter().map(Player::asks_again).collect();
        self.lives.push(Life { parts });
        let log = self.server.log();
        self.tally.rewrites = rewrites(&self.server);
        for word in ["BUG REPORT", "crashed", "Bad file format", "corrupt"] {
            assert!(!log.contains(word), "{word}: {log}");
        }
        for file in files_in(self.server.dir(), "temp-") {
            fs::remove_file(file).unwrap();
        }
    }

    /// Reads the append-only file of the ended server, and checks it with the servers' own checker,
    /// unless a kill has truncated a write.
    #[track_caller]
    pub fn read_file(&mut self) -> Account {
        let account = Account::read(self.server.dir());
        assert_eq!(account.torn, Vec::<String>::new(), "{}", self.context());
        self.tally.several = account.several;
        self.tally.torn += usize::from(!account.is_whole);
        if account.is_whole {
            self.check("aof", &aof::entrance(self.server.dir()));
        }
        self.note_swap();
        account
    }

    /// Records whether there is a new base that the manifest does not name yet.
    fn note_swap(&mut self) {
        let dir = self.server.dir();
        let (newest, known) = (newest_base(dir), aof::parts(dir));
        let orphan = newest.filter(|(_, base)| !known.contains(base));
        // One of an earlier life may still be there.
        let inode = orphan.and_then(|(_, base)| Some(fs::metadata(base).ok()?.ino()));
        self.tally.in_a_swap += usize::from(inode.is_some() && inode != self.orphan);
        self.orphan = inode;
    }

    /// Checks a file with the servers' own checker.
    #[track_caller]
    pub fn check(&mut self, of: &str, file: &Path) {
        let Some(checker) = self.server.kind.checker(of) else {
            return; // Some servers have none.
        };
        let run = Command::new(&checker).arg(file).output().unwrap();
        let said = String::from_utf8_lossy(&run.stdout);
        let context = self.context();
        assert!(run.status.success(), "{context}: {checker:?}: {said}");
        self.tally.checked += 1;
    }

    /// Restarts the server, and checks that it has the state of an instant in `allowed`.
    #[track_caller]
    pub fn come_back(&mut self, allowed: &RangeInclusive<u64>) -> Observed {
        self.server.start_again();
        let context = self.context();
        let mut c = self.server.client();
        let observed = Observed::at(&mut c);
        let life = self.lives.last().expect("a life");
        let checked = instant_that_came_back(life, &observed.holds, &observed.ms, allowed)
            .and_then(|_| self.fences.take(life));
        checked.unwrap_or_else(|why| panic!("{context}: {why}"));
        self.tally.fences = self.fences.len();
        self.tally.back += observed.len();
        let next = c.int("LOCK.ACQUIRE probe probe 60000");
        assert_eq!(c.int("LOCK.RELEASE probe probe"), 1);
        let next = u64::try_from(next).unwrap();
        let largest = observed.locks.values().flat_map(|lock| &lock.holders);
        let largest = largest.map(|holder| holder.fence).max().unwrap_or(0);
        let largest = largest.max(self.fences.largest);
        assert!(next > largest, "{context}: {next} after {largest}");
        self.fences.largest = next;
        for (player, holds) in self.players.iter_mut().zip(&observed.holds) {
            player.begin(holds.clone());
        }
        observed
    }

    pub fn context(&self) -> String {
        let (kind, life) = (self.server.kind, self.lives.len());
        format!("{kind:?}, life {life}, seed {}", self.seed)
    }
}

/// Requests rewrites of the file until the connection breaks.
fn rewrite(operator: &mut Client, mut pauses: StdRng, over: &AtomicBool) -> Notes {
    // It refuses while one is in progress.
    while operator.try_call("BGREWRITEAOF").is_ok() && !over.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(pauses.random_range(1..30)));
    }
    Notes::default()
}

/// Requests saves until the connection breaks.
fn save(operator: &mut Client, mut pauses: StdRng, line: &[&str], over: &AtomicBool) -> Notes {
    let mut notes = Notes::default();
    let mut idle_us = now_us();
    let mut saving_since_us = None;
    while !over.load(Ordering::Relaxed) {
        let asked_us = now_us();
        let Ok(Reply::Bulk(info)) = operator.try_call("INFO persistence") else {
            break;
        };
        let info = String::from_utf8_lossy(&info);
        let is_saving = info.contains("rdb_bgsave_in_progress:1");
        match (is_saving, saving_since_us) {
            (true, None) => saving_since_us = Some(idle_us),
            (false, Some(_)) => {
                assert!(info.contains("rdb_last_bgsave_status:ok"), "{info}");
                notes.saved_us = saving_since_us.take();
                notes.saves += 1;
            }
            _ => {}
        }
        if !is_saving {
            idle_us = asked_us;
            if pauses.random_bool(0.5) && operator.try_send(line).is_err() {
                break;
            }
        }
        sleep(Duration::from_millis(pauses.random_range(1..10)));
    }
    notes
}

/// Records the length of the last part of the file.
fn measure(dir: &Path, over: &AtomicBool) -> Notes {
    let mut notes = Notes::default();
    while !over.load(Ordering::Relaxed) {
        let from_us = now_us();
        let last = aof::parts(dir).pop().expect("a part");
        let len = fs::metadata(last).unwrap().len();
        notes.lengths.push((from_us, now_us(), len));
        sleep(Duration::from_millis(3));
    }
    notes
}

/// The number of completed rewrites in all lives.
fn rewrites(server: &Server) -> usize {
    let done = "AOF rewrite finished successfully";
    server.log().matches(done).count()
}

/// Waits for a file that a child writes.
fn wait_for_a_child(dir: &Path) {
    wait_for("a child that writes a file", || {
        (!files_in(dir, "temp-").is_empty()).then_some(())
    });
}

/// Waits for the moment at which a rewritten file is renamed.
fn wait_for_a_swap(dir: &Path) {
    // A base may replace one that a kill has left without a manifest: it has the same name.
    let inode = |file: &Path| fs::metadata(file).ok().map(|file| file.ino());
    let state = || {
        let base = newest_base(dir).and_then(|(_, base)| inode(&base));
        (base, inode(&dir.join("appendonly.aof")))
    };
    let (before, start) = (state(), Instant::now());
    while state() == before {
        assert!(start.elapsed() < Duration::from_secs(20), "no rewrite ends");
        sleep(Duration::from_micros(100));
    }
}

/// Ends the processes that write a file for an ended server.
fn end_children(server: &Server) {
    let log = server.log();
    let begun = log.lines().filter(|line| line.contains("started by pid"));
    for pid in begun.filter_map(|line| line.split(' ').next_back()) {
        let is_ours =
            fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == server.dir());
        if is_ours {
            Command::new("kill").args(["-9", pid]).status().ok();
            wait_for("a child to end", || {
                (!Path::new("/proc").join(pid).join("cwd").exists()).then_some(())
            });
        }
    }
}

/// The newest base of an append-only file of several parts, and its number.
fn newest_base(dir: &Path) -> Option<(u64, PathBuf)> {
    let bases = files_in(&dir.join("appendonlydir"), "appendonly.aof.");
    let numbered = bases.into_iter().filter_map(|file| {
        let name = file
            .file_name()?
            .to_str()?
            .strip_prefix("appendonly.aof.")?;
        let (number, _) = name.split_once(".base.")?;
        Some((number.parse().ok()?, file))
    });
    numbered.max()
}

fn files_in(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).into_iter().flatten();
    let files = files.filter_map(|file| Some(file.ok()?.path()));
    files
        .filter(|file| {
            file.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(prefix))
        })
        .collect()
}
