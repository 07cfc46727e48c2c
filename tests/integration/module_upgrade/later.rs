//! This release after a later one: records of a later version of the format are refused, the log
//! says so, and all other records are taken. The later records are made out of this
//! release's bytes, by raising the numbers by which formats are told apart.

use std::fs;
use std::io::Write;
use std::path::Path;

use redis_lock::lock::codec::{encode_effect, encode_fence, encode_held, LATEST_VERSION};
use redis_lock::lock::{Deadline, Effect, Fence, Hold, Mode, Since, Token};

use crate::harness::{aof, module, now_ms, packed, Client, Kind, Server, SYNCED};
use crate::hostile::payload::{sealed, Payload, FOOTER};

on_every_server![
    a_payload_of_a_later_version_is_refused,
    an_rdb_of_a_later_version_is_refused,
    later_records_in_an_aof_are_left_out_and_said_to_be,
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
