//! A replica whose link breaks in the middle of a grant of several keys, and that is then promoted.

use std::collections::BTreeSet;

use crate::harness::{figure, scale, wait_for, Client, CutLink, Kind, Later, Server, AT_ONCE};

on_every_server![a_replica_cut_off_anywhere_has_all_keys_or_none];

const KEYS: [&str; 3] = ["a", "b", "c"];

/// The link breaks at this many places of a grant.
const CUTS: u64 = 12;

struct Fixture {
    primary: Server,
    link: CutLink,
    replica: Server,
}

impl Fixture {
    fn start(kind: Kind) -> Self {
        let primary = Server::start_with(kind, &AT_ONCE);
        let link = CutLink::to(primary.port);
        let replica = Server::start_with(kind, &AT_ONCE);
        Self {
            primary,
            link,
            replica,
        }
    }

    /// The replica has the same as the primary, which has no locks.
    fn begin(&self) {
        self.primary.client().call("FLUSHALL");
        self.replica.follow_port(self.link.port);
        self.replica.wait_until_it_follows(&self.primary);
    }

    /// Promotes the replica.
    fn promoted(&self) -> Client {
        let mut c = self.replica.client();
        c.ok("REPLICAOF NO ONE");
        self.link.mend();
        c
    }
}

/// How a grant of three keys comes about.
#[derive(Clone, Copy)]
enum Grant {
    AtOnce,
    /// In the step that frees the last key.
    HandOver,
}

const LINE: &str = "LOCK.MACQUIRE 3 a b c me 60000";

impl Grant {
    /// Everything before the grant, on both servers.
    fn prepare(self, fixture: &Fixture) -> Option<Later> {
        fixture.begin();
        match self {
            Self::AtOnce => None,
            Self::HandOver => {
                fixture.primary.client().int("LOCK.ACQUIRE b x 60000");
                let waits = fixture.primary.blocked(&format!("{LINE} BLOCK 0"));
                fixture.replica.wait_until_it_follows(&fixture.primary);
                Some(waits)
            }
        }
    }

    fn happen(self, c: &mut Client) {
        let done = match self {
            Self::AtOnce => c.int(LINE),
            Self::HandOver => c.int("LOCK.RELEASE b x"),
        };
        assert!(done > 0);
    }
}

/// The number of keys that the promoted replica has of the grant.
fn held(promoted: &mut Client) -> usize {
    let all = KEYS.map(|key| promoted.holds(key)).concat();
    let of_grant: Vec<_> = all.iter().filter(|(token, _)| token == "me").collect();
    let fences = of_grant.iter().map(|(_, fence)| fence);
    assert!(fences.collect::<BTreeSet<_>>().len() <= 1, "{all:?}");
    of_grant.len()
}

fn a_replica_cut_off_anywhere_has_all_keys_or_none(kind: Kind) {
    let fixture = Fixture::start(kind);
    let mut c = fixture.primary.client();
    let cuts = CUTS * scale() as u64;
    for grant in [Grant::AtOnce, Grant::HandOver] {
        let measured = [(); 3].map(|()| {
            let _waits = grant.prepare(&fixture);
            let before = fixture.link.passed();
            grant.happen(&mut c);
            fixture.replica.wait_until_it_follows(&fixture.primary);
            let len = fixture.link.passed() - before;
            // A link that is not cut loses nothing.
            assert_eq!(held(&mut fixture.promoted()), KEYS.len());
            len
        });
        // The server may send a PING beside it.
        let len = *measured.iter().min().unwrap();
        for cut in 0..cuts {
            let _waits = grant.prepare(&fixture);
            fixture.link.break_after(len * cut / cuts);
            grant.happen(&mut c);
            // The replica has read everything that came before the end of its connection.
            let what = format!("the link to break after {cut}/{cuts} of {measured:?} bytes");
            let mut replica = fixture.replica.client();
            wait_for(&what, || {
                (replica.info("master_link_status") == "down").then_some(())
            });
            assert_eq!(held(&mut fixture.promoted()), 0, "{what}");
        }
    }
    figure(
        kind,
        &format!("links cut at {} places of grants of three keys: the promoted replica had all keys or none", 2 * cuts),
    );
}
