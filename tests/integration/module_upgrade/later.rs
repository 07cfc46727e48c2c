//! This release beside a later one, and after it: records of a later version of the format are
//! refused, the log says so, and all other records are taken. The later records are made out of this
//! release's bytes, by raising the numbers by which formats are told apart.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;

use redis_lock::lock::codec::{encode_effect, encode_fence, encode_held, LATEST_VERSION};
use redis_lock::lock::{Deadline, Effect, Fence, Hold, Mode, Since, Token};

use crate::harness::{aof, module, now_ms, packed, wait_for, Client, Kind, Server, SYNCED};
use crate::hostile::payload::{sealed, Payload, FOOTER};

on_every_server![
    a_payload_of_a_later_version_is_refused,
    an_rdb_of_a_later_version_is_refused,
    an_aof_preamble_of_a_later_version_is_refused,
    later_records_in_an_aof_are_left_out_and_said_to_be,
    a_replica_leaves_out_later_records_and_says_so,
    a_replica_refuses_later_data,
];

/// The version of the format in which a lock without newer features and a fence are written.
const WRITTEN_VERSION: u8 = 1;

/// The version of the type in RDB files, which never changes.
const TYPE_VERSION: u8 = 1;

/// The module's own words in the log.
const SAID: &str = "in a format that this version of the module does not know";

/// Files without compression and checksum, so that they can be changed, and with a lock whose fence
/// marks its record.
const PLAIN: [&str; 4] = ["--rdbcompression", "no", "--rdbchecksum", "no"];

/// The numbers that a later version may have raised.
#[derive(Clone, Copy, Debug)]
enum Raised {
    /// The version of the type in the RDB, with the largest fence.
    TypeOfFence,
    /// The same with a lock.
    TypeOfLock,
    /// The version of the record that is the largest fence.
    Fence,
    /// The version of the record that is a lock.
    Lock,
}

const ALL: [Raised; 4] = [
    Raised::TypeOfFence,
    Raised::TypeOfLock,
    Raised::Fence,
    Raised::Lock,
];

impl Raised {
    /// Raises the number in an RDB that has one lock, `fence`. `type_id` is the type as DUMP writes
    /// it.
    #[track_caller]
    fn raise(self, rdb: &mut [u8], type_id: &[u8], fence: i64) {
        let places = |bytes: &[u8]| -> Vec<usize> {
            let windows = rdb.windows(bytes.len()).enumerate();
            let found = windows.filter(|(_, window)| *window == bytes);
            found.map(|(at, _)| at).collect()
        };
        let last_of_id = type_id.len() - 1;
        let (types, fences) = (places(type_id), places(&fence.to_le_bytes()));
        // The largest fence comes first, then the lock. The lock's record has two more bytes before
        // the fence.
        assert_eq!((types.len(), fences.len()), (2, 2));
        let (at, written, later) = match self {
            Raised::TypeOfFence => (types[0] + last_of_id, TYPE_VERSION, TYPE_VERSION + 1),
            Raised::TypeOfLock => (types[1] + last_of_id, TYPE_VERSION, TYPE_VERSION + 1),
            Raised::Fence => (fences[0] - 2, WRITTEN_VERSION, LATEST_VERSION + 1),
            Raised::Lock => (fences[1] - 3, WRITTEN_VERSION, LATEST_VERSION + 1),
        };
        assert_eq!(rdb[at], written, "{self:?}");
        rdb[at] = later;
    }
}

/// Acquires the only lock. Returns its fence, and the type's name and version as DUMP writes them.
#[track_caller]
fn take_one(c: &mut Client) -> (i64, Vec<u8>) {
    let fence = c.int("LOCK.ACQUIRE k me 100000000");
    let payload = c.call("DUMP k");
    (fence, payload.as_bytes()[1..10].to_vec())
}

/// Fails the test unless the server refuses its own files with a message of the module, and without
/// a crash.
#[track_caller]
fn assert_refused(kind: Kind, dir: &Path, options: &[&str], when: &str) {
    let (module, dir) = (module(), dir.to_str().unwrap());
    let load = ["--loadmodule", module.to_str().unwrap(), "--dir", dir];
    // Its status may even be 0: the server runs its checker on the file, which finds no fault with
    // it.
    let (log, _) = Server::start_that_ends(kind, &[&load[..], options].concat());
    assert!(log.contains(SAID), "{when}: {log}");
    assert!(!log.contains("BUG REPORT"), "{when}: {log}");
}

fn a_payload_of_a_later_version_is_refused(kind: Kind) {
    let server = Server::start_with(kind, &["--rdbcompression", "no"]);
    let mut c = server.client();
    take_one(&mut c);
    let dump = c.call("DUMP k");
    let dump = dump.as_bytes();
    let mut later_record = Payload::read(dump);
    later_record.record[0] = LATEST_VERSION + 1;
    let (body, footer) = dump.split_at(dump.len() - FOOTER);
    let mut later_type = body.to_vec();
    later_type[9] = TYPE_VERSION + 1;
    let later_type = sealed(later_type, [footer[0], footer[1]]);
    for payload in [later_record.write(), later_type] {
        let refused = c.restore("other 0", &payload);
        let error = refused.as_error();
        assert!(error.contains("Bad data format"), "{error}");
        assert_eq!(c.int("EXISTS other"), 0);
    }
    // The unchanged payload is accepted, so it is the version that was refused.
    c.restore("other 0", dump).assert_ok();
    // The reply has the reason. Input from clients is not logged.
    assert!(!server.log().contains(SAID), "{}", server.log());
}

fn an_rdb_of_a_later_version_is_refused(kind: Kind) {
    for raised in ALL {
        let mut server = Server::start_with(kind, &PLAIN);
        let (fence, type_id) = take_one(&mut server.client());
        server.shut_down_saving();
        let file = server.dir().join("dump.rdb");
        let as_it_was = fs::read(&file).unwrap();
        let mut rdb = as_it_was.clone();
        raised.raise(&mut rdb, &type_id, fence);
        fs::write(&file, rdb).unwrap();
        assert_refused(kind, server.dir(), &[], &format!("{raised:?}"));
        fs::write(&file, as_it_was).unwrap();
        server.start_again();
        assert_eq!(server.client().holders("k"), ["me"]);
    }
}

fn an_aof_preamble_of_a_later_version_is_refused(kind: Kind) {
    let mut server = Server::start_with(kind, &[&PLAIN[..], &SYNCED].concat());
    let mut c = server.client();
    let (fence, type_id) = take_one(&mut c);
    wait_for("the rewrite", || {
        c.call("BGREWRITEAOF");
        let base = aof::parts(server.dir())[0].clone();
        let bytes = fs::read(base).unwrap_or_default();
        let has_it = bytes.windows(8).any(|at| at == fence.to_le_bytes());
        (aof::is_rdb(&bytes) && has_it).then_some(())
    });
    server.kill();
    let base = &aof::parts(server.dir())[0];
    let as_it_was = fs::read(base).unwrap();
    for raised in ALL {
        let mut bytes = as_it_was.clone();
        raised.raise(&mut bytes, &type_id, fence);
        fs::write(base, bytes).unwrap();
        assert_refused(kind, server.dir(), &SYNCED, &format!("an AOF, {raised:?}"));
    }
    fs::write(base, as_it_was).unwrap();
    server.start_again();
    assert_eq!(server.client().holders("k"), ["me"]);
}

/// How many of the commands that [`from_a_later_release`] makes are in a later version.
const LATER_RECORDS: usize = 6;

/// What a later release might send, for a server on which `me` holds `k`: one command with a record of
/// a later version for each kind of record, then one of this version, and a write of the server's own.
fn from_a_later_release() -> Vec<u8> {
    let later = |mut record: Vec<u8>| {
        record[0] = LATEST_VERSION + 1;
        record
    };
    let effect = |effect: &Effect<'_>| {
        let mut record = Vec::new();
        encode_effect(effect, &mut record);
        record
    };
    let now_ms = now_ms().unsigned_abs();
    let (me, you) = (Token::new(b"me").unwrap(), Token::new(b"you").unwrap());
    let hold = Hold {
        fence: Fence::new(now_ms * 1000).unwrap(),
        deadline: Deadline::from_millis(now_ms + 100_000_000).unwrap(),
        since: Since::at(now_ms),
    };
    let given = effect(&Effect::Hold {
        now_ms,
        mode: Mode::Exclusive,
        token: you,
        hold,
    });
    // The version, the kind of a whole lock, and what a record of a hold has behind the time.
    let state = [&[WRITTEN_VERSION, 1], &given[10..]].concat();
    let released = effect(&Effect::Release { now_ms, token: me });
    let capped = effect(&Effect::Cap {
        deadline: Deadline::from_millis(now_ms + 1_000_000).unwrap(),
    });
    let fence = encode_fence(Fence::new(Fence::MAX).unwrap()).to_vec();
    let held = later(
        encode_held(now_ms, Mode::Exclusive, &hold)
            .as_bytes()
            .to_vec(),
    );
    let commands: [&[&[u8]]; LATER_RECORDS + 2] = [
        &[b"LOCK._APPLY", b"later:state", &later(state)],
        &[b"LOCK._APPLY", b"later:hold", &later(given.clone())],
        &[b"LOCK._APPLY", b"later:held", b"you", &held],
        &[b"LOCK._APPLY", b"k", &later(released)],
        &[b"LOCK._APPLY", b"k", &later(capped)],
        &[b"LOCK._APPLY", b"k", &later(fence)],
        &[b"LOCK._APPLY", b"plain", &given],
        &[b"SET", b"text", b"stays"],
    ];
    commands.iter().flat_map(|words| packed(words)).collect()
}

/// The server reports each record that it could not carry out, and goes on. It does so with every
/// command that fails there. docs/UPGRADING.md says what to do then.
#[track_caller]
fn assert_left_out(server: &Server) {
    let mut c = server.client();
    c.until("GET text", "stays");
    assert_eq!(c.int("EXISTS later:state later:hold later:held"), 0);
    assert_eq!(c.holders("plain"), ["you"]);
    // Neither released nor shortened.
    assert_eq!(c.holders("k"), ["me"]);
    assert!(c.int("PTTL k") > 1_000_000);
    let log = server.log();
    let lines = log
        .lines()
        .filter(|line| line.contains("CRITICAL") && line.contains("unknown version"))
        .inspect(|line| {
            let names_it = line.to_ascii_lowercase().contains("lock._apply");
            assert!(names_it, "{line}");
        });
    assert_eq!(lines.count(), LATER_RECORDS, "{log}");
}

/// The largest fence in a record of a later version was not taken over: fences are left to give.
#[track_caller]
fn assert_fences_go_on(c: &mut Client) {
    let fence = c.int("LOCK.ACQUIRE next me 1000");
    assert!(fence.unsigned_abs() < Fence::MAX, "{fence}");
}

fn later_records_in_an_aof_are_left_out_and_said_to_be(kind: Kind) {
    let mut server = Server::start_with(kind, &SYNCED);
    take_one(&mut server.client());
    server.kill();
    let last = aof::parts(server.dir()).pop().unwrap();
    let mut file = fs::File::options().append(true).open(last).unwrap();
    file.write_all(&from_a_later_release()).unwrap();
    let (module, dir) = (module(), server.dir().to_str().unwrap().to_string());
    let load = ["--loadmodule", module.to_str().unwrap(), "--dir", &dir];
    // Redis 8.6 hangs in the test of the memory that its report of the panic makes.
    let strict = [
        "--propagation-error-behavior",
        "panic",
        "--crash-memcheck-enabled",
        "no",
    ];
    let (log, status) = Server::start_that_ends(kind, &[&load[..], &SYNCED, &strict].concat());
    assert!(log.contains("unknown version"), "{log}");
    assert!(!status.success());
    server.start_again();
    assert_left_out(&server);
    assert_fences_go_on(&mut server.client());
}

/// A primary that sends these bytes to each replica that connects: its RDB and what follows it.
struct Primary {
    port: u16,
}

impl Primary {
    fn start(rdb: Vec<u8>, commands: Vec<u8>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // Some tests wait for a replica to disconnect.
                Self::serve(stream, &rdb, &commands).ok();
            }
        });
        Self { port }
    }

    fn serve(mut stream: TcpStream, rdb: &[u8], commands: &[u8]) -> std::io::Result<()> {
        let (mut bytes, mut done) = (Vec::new(), 0);
        let mut buffer = [0; 4096];
        loop {
            let len = stream.read(&mut buffer)?;
            if len == 0 {
                return Ok(());
            }
            bytes.extend(&buffer[..len]);
            let asked: Vec<_> = aof::commands(&bytes[done..])
                .map(|command| (command.args[0].to_ascii_uppercase(), command.end))
                .collect();
            for (name, _) in &asked {
                match name.as_slice() {
                    b"PING" => stream.write_all(b"+PONG\r\n")?,
                    b"PSYNC" => {
                        let id = "0".repeat(40);
                        write!(stream, "+FULLRESYNC {id} 0\r\n${}\r\n", rdb.len())?;
                        stream.write_all(rdb)?;
                        stream.write_all(commands)?;
                    }
                    _ => stream.write_all(b"+OK\r\n")?,
                }
            }
            done += asked.last().map_or(0, |(_, end)| *end);
        }
    }
}

/// The saved file of a server with one lock, and the data that `Raised::raise` needs.
fn rdb_of_one(kind: Kind) -> (Vec<u8>, Vec<u8>, i64) {
    let server = Server::start_with(kind, &PLAIN);
    let mut c = server.client();
    let (fence, type_id) = take_one(&mut c);
    c.call("SAVE");
    let rdb = fs::read(server.dir().join("dump.rdb")).unwrap();
    (rdb, type_id, fence)
}

fn a_replica_leaves_out_later_records_and_says_so(kind: Kind) {
    let (rdb, ..) = rdb_of_one(kind);
    let primary = Primary::start(rdb, from_a_later_release());
    let port = primary.port.to_string();
    let replica = Server::start_with(kind, &["--replicaof", "127.0.0.1", &port]);
    assert_left_out(&replica);
    let mut c = replica.client();
    c.call("REPLICAOF NO ONE");
    assert_fences_go_on(&mut c);
}

/// The replica ends. Servers do so with every file that a module does not load. It does not serve
/// half of the data.
fn a_replica_refuses_later_data(kind: Kind) {
    for raised in ALL {
        let (mut rdb, type_id, fence) = rdb_of_one(kind);
        raised.raise(&mut rdb, &type_id, fence);
        let primary = Primary::start(rdb, Vec::new());
        let mut replica = Server::start(kind);
        replica.follow_port(primary.port);
        wait_for("the replica to end", || replica.has_ended().then_some(()));
        let log = replica.log();
        assert!(log.contains(SAID), "{raised:?}: {log}");
        assert!(!log.contains("BUG REPORT"), "{raised:?}: {log}");
    }
}
