//! Slots that move as a whole, by `CLUSTER MIGRATESLOTS` or `CLUSTER MIGRATION`. Imported keys hold
//! no locks at the target before the takeover, and nothing is lost during the move.

mod in_progress;
mod others;
mod snapshot;

use crate::harness::dump::raise_fences_by_an_hour;
use crate::harness::{wait_for, Client, Cluster, Kind, Reply, State, SHARDS};
use crate::stats::{held, stats};

on_servers![
    [redis_8_6 Redis8_6, valkey_9 Valkey9]
    locks_move_with_their_slots,
    fences_keep_rising_in_a_moved_slot_without_holds,
    the_computed_slot_of_a_key_matches_the_server,
];

// The server stops in the middle of the move.
on_servers![[valkey_9 Valkey9] a_hold_that_moves_with_its_slot_is_not_told_as_forced];

const FROM: usize = 0;
const TO: usize = 1;

/// A source, a target, and keys of one slot that moves.
struct Fixture {
    cluster: Cluster,
    slot: i64,
}

impl Fixture {
    fn start(kind: Kind) -> Self {
        let cluster = Cluster::start(kind);
        let [key] = &cluster.keys_of(FROM, 1)[..] else {
            panic!("a key");
        };
        let slot = cluster.slot(key);
        Self { cluster, slot }
    }

    /// Keys of the slot: one for each name.
    fn keys<const N: usize>(&self, names: [&str; N]) -> [String; N] {
        let tag = self.cluster.keys_of(FROM, 1).remove(0);
        names.map(|name| format!("{{{tag}}}{name}"))
    }

    /// The slots that move: the one of the keys and some others.
    fn slots(&self) -> [i64; 2] {
        let own = self.cluster.slots_of(FROM);
        [own.start.max(self.slot - 5), own.end.min(self.slot + 6) - 1]
    }

    fn source(&self) -> Client {
        self.cluster.client(FROM)
    }

    fn target(&self) -> Client {
        self.cluster.client(TO)
    }

    /// Starts the migration, and waits until the target has received everything. It does not own
    /// the slot yet.
    #[track_caller]
    fn set_out(&self) {
        self.cluster.prevent(FROM, "prevent-pause", true);
        self.cluster.begin_to_migrate(self.slots(), FROM, TO);
        self.cluster
            .wait_for_migration_state(FROM, "waiting-to-pause");
    }

    /// Lets the migration complete.
    #[track_caller]
    fn arrive(&self) {
        self.cluster.prevent(FROM, "prevent-pause", false);
        self.cluster.end_of_migration(FROM, TO);
    }

    #[track_caller]
    fn migrate(&self) {
        self.cluster.begin_to_migrate(self.slots(), FROM, TO);
        self.cluster.end_of_migration(FROM, TO);
    }

    /// The number of keys of the slot on a node, whether it owns the slot or not.
    fn keys_at(&self, node: usize) -> i64 {
        let line = format!("CLUSTER COUNTKEYSINSLOT {}", self.slot);
        self.cluster.client(node).int(&line)
    }

    /// Fails the test unless the replicas have the same data as their primaries.
    #[track_caller]
    fn replicas_agree(&self) {
        replicas_agree(&self.cluster);
    }
}

#[track_caller]
fn replicas_agree(cluster: &Cluster) {
    // A replica answers for the slots of its primary.
    cluster.wait_until_all_agree();
    for shard in 0..SHARDS {
        let (primary, replica) = (&cluster.nodes[shard], &cluster.nodes[shard + SHARDS]);
        replica.wait_until_it_follows(primary);
        let [mut one, mut other] = [primary, replica].map(|node| {
            let mut c = node.client();
            // Otherwise a replica answers for no key.
            c.ok("READONLY");
            c
        });
        let states = [&mut one, &mut other].map(State::of);
        states[0].assert_same(&states[1], &format!("shard {shard}"));
        // A lock with many shared holds is freed on another thread.
        wait_for("the gauges to be the same", || {
            (held(&mut one) == held(&mut other)).then_some(())
        });
    }
}

/// The value and the expiry of a key.
fn value(c: &mut Client, key: &str) -> (Reply, i64) {
    (
        c.call(&format!("DUMP {key}")),
        c.int(&format!("PEXPIRETIME {key}")),
    )
}

/// A lock with many shared holds is freed on another thread.
#[track_caller]
fn until_held(c: &mut Client, all: [u64; 4]) {
    wait_for("what has left to be freed", || {
        (held(c) == all).then_some(())
    });
}

/// A migration begins, and is broken off: so many times. Nothing is lost, and the next one succeeds.
fn never_arrives(mut fixture: Fixture, times: usize, begin_and_break: impl Fn(&mut Fixture)) {
    let [k, shared] = &fixture.keys(["k", "shared"]);
    let mut source = fixture.source();
    let fence = source.int(&format!("LOCK.ACQUIRE {k} a 60000"));
    for reader in 0..100 {
        source.int(&format!("RWLOCK.RLOCK {shared} r{reader} 60000"));
    }
    let [b, c] = ["b", "c"].map(|token| {
        let line = format!("LOCK.ACQUIRE {k} {token} 60000 BLOCK 0");
        fixture.cluster.blocked(FROM, &line)
    });
    for _ in 0..times {
        begin_and_break(&mut fixture);
        assert!(b.is_pending() && c.is_pending());
        assert_eq!(held(&mut source), [1, 100, 2, 0]);
    }
    assert_eq!(source.int(&format!("LOCK.ACQUIRE {k} a 60000")), fence);
    assert_eq!(source.int(&format!("LOCK.RELEASE {k} a")), 1);
    let fence_of_b = b.fence();
    assert!(fence_of_b > fence);
    fixture.migrate();
    c.error("TRYAGAIN ");
    let mut target = fixture.target();
    assert_eq!(target.int(&format!("LOCK.ACQUIRE {k} b 60000")), fence_of_b);
    assert_eq!(held(&mut target), [1, 100, 2, 0]);
    fixture.cluster.nodes[TO + SHARDS].wait_until_link_is_up();
    fixture.replicas_agree();
}

fn locks_move_with_their_slots(kind: Kind) {
    let fixture = Fixture::start(kind);
    let [exclusive, shared, short, capped] =
        &fixture.keys(["exclusive", "shared", "short", "capped"]);
    let (mut source, mut target) = (fixture.source(), fixture.target());
    let fence = source.int(&format!("LOCK.ACQUIRE {exclusive} a 60000"));
    for reader in ["a", "b"] {
        source.int(&format!("RWLOCK.RLOCK {shared} {reader} 60000"));
    }
    source.int(&format!("LOCK.ACQUIRE {short} a 60000"));
    source.int(&format!("LOCK.ACQUIRE {capped} a 60000"));
    source.int(&format!("PEXPIRE {capped} 40000"));
    let waiters = [
        format!("LOCK.ACQUIRE {exclusive} c 60000 BLOCK 0"),
        format!("RWLOCK.RLOCK {exclusive} d 60000 BLOCK 0"),
        format!("RWLOCK.WLOCK {shared} c 60000 BLOCK 0"),
        format!("LOCK.ACQUIRE {short} c 60000 BLOCK 0"),
    ];
    let waiters = waiters.map(|line| fixture.cluster.blocked(FROM, &line));
    let keys = [exclusive, shared, short, capped];
    let before = keys.map(|key| value(&mut source, key));
    fixture.migrate();
    waiters
        .into_iter()
        .for_each(|waiter| waiter.error("TRYAGAIN "));
    assert_eq!(keys.map(|key| value(&mut target, key)), before);
    assert_eq!(stats(&mut source)["waiters"], 0);
    // Redis frees them in its own time.
    wait_for("the source to free what has left", || {
        (held(&mut source) == [0, 0, 0, 0]).then_some(())
    });
    assert_eq!(held(&mut target), [3, 2, 4, 0]);
    fixture.replicas_agree();
    // The holder still has it, with the same fence and deadline.
    let again = format!("LOCK.ACQUIRE {exclusive} a 60000");
    source.refused(&again, "MOVED ");
    assert_eq!(target.int(&again), fence);
    assert_eq!(target.int(&format!("LOCK.RENEW {exclusive} a 60000")), 1);
    let c = fixture
        .cluster
        .blocked(TO, &format!("LOCK.ACQUIRE {exclusive} c 60000 BLOCK 0"));
    assert_eq!(target.int(&format!("LOCK.RELEASE {exclusive} a")), 1);
    assert!(c.fence() > fence);
    // A hold that is not released expires here, too.
    assert_eq!(target.int(&format!("LOCK.RENEW {short} a 300")), 1);
    let c = format!("LOCK.ACQUIRE {short} c 60000 BLOCK 0");
    assert!(fixture.cluster.nodes[TO].later(&c).fence() > fence);
    fixture.replicas_agree();
}

/// The source's fences are an hour ahead of every clock, and none of its locks is held.
fn fences_keep_rising_in_a_moved_slot_without_holds(kind: Kind) {
    let cluster = Cluster::start(kind);
    let slot = cluster.slot("ahead");
    let from = cluster.shard_of(slot);
    let to = (from + 1) % SHARDS;
    let mut last = raise_fences_by_an_hour(&mut cluster.client(from));
    // Moves the slot there and back.
    for (from, to) in [(from, to), (to, from)] {
        assert_eq!(cluster.client(from).int("DBSIZE"), 0);
        cluster.begin_to_migrate([slot; 2], from, to);
        cluster.end_of_migration(from, to);
        cluster.wait_until_all_agree();
        let mut c = cluster.client(to);
        for _ in 0..3 {
            let fence = c.int("LOCK.ACQUIRE ahead me 60000");
            assert!(fence > last, "{fence} after {last}");
            last = fence;
            assert_eq!(c.int("LOCK.RELEASE ahead me"), 1);
        }
        // The key that carried the fence is gone.
        assert_eq!(c.int("DBSIZE"), 0);
    }
    // The target's replica has received it, too.
    let replica = from + SHARDS;
    cluster.nodes[replica].wait_until_it_follows(&cluster.nodes[from]);
    cluster.fail_over(replica, "CLUSTER FAILOVER TAKEOVER");
    let fence = cluster.client(replica).int("LOCK.ACQUIRE ahead me 60000");
    assert!(fence > last, "{fence} after {last}");
}

fn the_computed_slot_of_a_key_matches_the_server(kind: Kind) {
    let server = crate::harness::Server::start_with(kind, &["--cluster-enabled", "yes"]);
    let mut c = server.client();
    let odd = ["{", "}", "{}", "{}{a}", "a{b", "a}b{c}", "{{a}}", "{a}{b}"].map(str::to_string);
    let numbers = (0..1_000).map(|n| format!("key:{n}"));
    for key in odd.into_iter().chain(numbers) {
        let slot = redis_lock::lock::slot::slot_of(key.as_bytes());
        assert_eq!(
            c.int(&format!("CLUSTER KEYSLOT {key}")),
            i64::from(slot),
            "{key}"
        );
    }
}

fn a_hold_that_moves_with_its_slot_is_not_told_as_forced(kind: Kind) {
    let fixture = Fixture::start(kind);
    let [held, shared, deleted] = &fixture.keys(["held", "shared", "deleted"]);
    let (mut c, slots) = (fixture.source(), fixture.slots());
    c.int(&format!("LOCK.ACQUIRE {held} me 600000"));
    c.int(&format!("LOCK.ACQUIRE {deleted} me 600000"));
    // The end of a lock with so many holds is counted before it is freed.
    for n in 0..100 {
        c.int(&format!("RWLOCK.RLOCK {shared} {n} 600000"));
    }
    let told = |c: &mut Client| (c.info("lock_forced"), c.call("LOCK.LOG").items().len());
    fixture.set_out();
    assert_eq!(c.int(&format!("DEL {deleted}")), 1);
    assert_eq!(
        told(&mut c),
        ("1".into(), 1),
        "a client's DEL during the move"
    );
    fixture.arrive();
    wait_for("the source to delete what has left", || {
        (fixture.keys_at(FROM) == 0).then_some(())
    });
    assert_eq!(told(&mut c), ("1".into(), 1), "the end of the move");
    // The slot comes back at once.
    fixture.cluster.begin_to_migrate(slots, TO, FROM);
    fixture.cluster.end_of_migration(TO, FROM);
    assert_eq!(c.int(&format!("DEL {held}")), 1);
    assert_eq!(told(&mut c), ("2".into(), 2), "after the return");
}
