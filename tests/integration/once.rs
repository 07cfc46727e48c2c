//! LOCK.ONCE, as far as only a server shows it: rights, key specs, slots, the stream, scripts, and answers over several
//! turns. tests/scenarios/once.txt has the cases, and the simulation all histories.

use crate::harness::{
    start_by, wait_for, Client, Clock, Cluster, Kind, Later, Reply, Server, SHARDS,
};

on_every_server![
    many_who_wait_make_nothing,
    rights_are_those_of_both_keys,
    a_value_and_a_null_send_nothing,
    a_script_and_a_transaction_get_results,
    results_answer_under_a_guard_and_promotions_wait,
    the_slot_of_a_result_leaves,
];

fn waits(server: &Server, key: &str, n: usize) {
    let mut c = server.client();
    wait_for("the waiters", || (c.waiters(key).len() == n).then_some(()));
}

/// Long answers take several turns, and the lock is free meanwhile.
fn many_who_wait_make_nothing(kind: Kind) {
    const WAITERS: usize = 300;
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ONCE l r maker 60000");
    let all: Vec<Later> = (0..WAITERS)
        .map(|n| server.later(&format!("LOCK.ONCE l r w{n} 60000 BLOCK 0")))
        .collect();
    waits(&server, "l", WAITERS);
    let value = "x".repeat(10_000);
    let exec = ["LOCK.EXEC", "l", "maker", "SET", "r", &value].map(|word| word.as_bytes().to_vec());
    let release = ["LOCK.RELEASE", "l", "maker"].map(|word| word.as_bytes().to_vec());
    let replies = c.pipeline(&[exec.to_vec(), release.to_vec()]);
    assert_eq!(replies[1], Reply::Int(1));
    for one in all {
        assert_eq!(one.reply().as_bytes(), value.as_bytes());
    }
    assert_eq!(c.info("lock_acquired"), "1");
    assert_eq!(c.info("lock_results_answered"), WAITERS.to_string());
    assert_eq!(c.int("EXISTS l"), 0);
}

fn rights_are_those_of_both_keys(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.ok("SET r v");
    let may = "+@all %RW~l %R~r";
    let user = |name, rules| server.user(name, rules);
    assert_eq!(user("both", may).text("LOCK.ONCE l r t 60000"), "v");
    user("no-read", "+@all %RW~l %W~r").refused("LOCK.ONCE l r t 60000", "NOPERM");
    user("no-write", "+@all %R~l %R~r").refused("LOCK.ONCE l r t 60000", "NOPERM");
    // Its name is shown only to those who may read it.
    c.int("LOCK.ONCE l other maker 60000");
    let _waits = server.blocked("LOCK.ONCE l other t 60000 BLOCK 0");
    let field = |c: &mut Client| {
        let info = c.call("LOCK.INFO l").field("waiters");
        info.items()[0].get("result")
    };
    assert_eq!(field(&mut c), Some("other".into()));
    assert_eq!(field(&mut user("both", may)), None);
    let keys = c.call("COMMAND GETKEYSANDFLAGS LOCK.ONCE l r t 60000 BLOCK 0");
    let flags = keys.items().iter().map(|key| key.items()[1].words());
    let flags: Vec<Vec<String>> = flags.collect();
    assert_eq!(flags, [["RW", "update"], ["RO", "access"]]);
}

fn a_value_and_a_null_send_nothing(kind: Kind) {
    let (primary, replica) = Server::pair(kind, &[]);
    let mut c = primary.client();
    c.int("LOCK.ONCE l r maker 60000");
    let waits = primary.blocked("LOCK.ONCE l r t 60000 BLOCK 0");
    replica.wait_until_it_follows(&primary);
    c.ok("SET r v");
    let offset = |c: &mut Client| c.info("master_repl_offset").parse::<u64>().unwrap();
    let mut grown = |steps: &dyn Fn(&mut Client)| {
        let before = offset(&mut c);
        steps(&mut c);
        c.ok("SET none x");
        offset(&mut c) - before
    };
    let by_set = grown(&|_| {});
    let by_replies = grown(&|c| {
        assert_eq!(c.text("LOCK.ONCE l r u 60000"), "v");
        assert_eq!(c.call("LOCK.ONCE l r2 u 60000"), Reply::Nil);
    });
    assert_eq!(by_replies, by_set);
    assert_eq!(waits.reply(), "v".into());
    // Whoever has the release has the result.
    c.call("LOCK.EXEC l maker SET r new");
    c.int("LOCK.RELEASE l maker");
    replica.wait_until_it_follows(&primary);
    let mut there = replica.client();
    assert_eq!(there.text("GET r"), "new");
    assert_eq!(there.int("EXISTS l"), 0);
    there.refused("LOCK.ONCE l r t 60000", "READONLY");
}

fn a_script_and_a_transaction_get_results(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let eval = |token: &str| {
        format!("EVAL return{{redis.call('LOCK.ONCE',KEYS[1],KEYS[2],'{token}','60000','BLOCK','0')}} 2 l r")
    };
    assert!(c.call(&eval("maker")).items()[0].as_int() > 0);
    assert_eq!(c.call(&eval("other")), Reply::Array(vec![Reply::Nil]));
    c.call("MULTI");
    for line in [
        "LOCK.EXEC l maker SET r v",
        "LOCK.ONCE l r maker 60000",
        "LOCK.RELEASE l maker",
    ] {
        c.call(line);
    }
    let replies = c.call("EXEC");
    assert_eq!(replies.items()[1..], ["v".into(), Reply::Int(1)]);
    assert_eq!(c.call(&eval("other")), Reply::Array(vec!["v".into()]));
}

fn results_answer_under_a_guard_and_promotions_wait(kind: Kind) {
    let clock = Clock::ahead_by_us(0);
    let mut server = start_by(&clock, kind, &super::guard::RESTART);
    let mut c = server.client();
    super::guard::open(&clock, &mut c);
    c.int("LOCK.ONCE l r maker 120000");
    c.int("LOCK.ONCE l2 r2 maker 120000");
    c.text("SAVE");
    server.kill();
    server.start_again();
    let mut c = server.client();
    assert_eq!(c.info("lock_guard"), "restart");
    let one = server.blocked("LOCK.ONCE l r a 120000 BLOCK 0");
    let two = server.blocked("LOCK.ONCE l2 r2 a 120000 BLOCK 0");
    c.int("LOCK.RELEASE l2 maker");
    assert_eq!(
        c.call("LOCK.EXEC l maker SET r v"),
        Reply::Simple("OK".into())
    );
    assert_eq!(one.reply(), "v".into());
    assert_eq!(c.waiters("l2"), ["a"]);
    assert!(clock.reply(two).as_int() > 0);
}

fn the_slot_of_a_result_leaves(kind: Kind) {
    let cluster = Cluster::start_with(kind, &["--cluster-require-full-coverage", "no"]);
    let slot = cluster.slot("{k}");
    let from = cluster.shard_of(slot);
    let to = (from + 1) % SHARDS;
    let mut c = cluster.client(from);
    c.refused("LOCK.ONCE {k}l r t 60000", "CROSSSLOT");
    c.int("LOCK.ONCE {k}l {k}r maker 60000");
    let waits = cluster.nodes[from].later("LOCK.ONCE {k}l {k}r t 60000 BLOCK 0");
    wait_for("the waiter", || (c.waiters("{k}l") == ["t"]).then_some(()));
    let plain = cluster.blocked(from, "LOCK.ACQUIRE {k}l p 60000 BLOCK 0");
    cluster.begin_to_move(slot, from, to);
    // The result may be there already: whoever waits for it makes none here.
    c.int("LOCK.RELEASE {k}l maker");
    waits.error("TRYAGAIN ");
    assert!(plain.fence() > 0);
}
