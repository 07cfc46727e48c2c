//! Many waited keys of a slot that goes.

use crate::harness::{Cluster, Kind};

on_every_server![places_end_with_their_slot_and_no_others];

fn places_end_with_their_slot_and_no_others(kind: Kind) {
    let server = Cluster::node(kind, &["--cluster-require-full-coverage", "no"]);
    let mut c = server.client();
    let keys = (0..2_000).map(|n| format!("{{{}}}{n}", ["a", "b"][n % 2]));
    let lines = keys.flat_map(|key| {
        let hold = format!("LOCK.ACQUIRE {key} a 600000");
        [hold, format!("LOCK.ACQUIRE {key} b 600000 KEEP 600000")]
    });
    c.send_all(lines);
    let [gone, stays] = ["{a}0", "{b}1"].map(|key| {
        let line = format!("LOCK.ACQUIRE {key} blocked 60000 BLOCK 0");
        server.blocked(&line)
    });
    // One key has more places than are ended in one go.
    c.send_all((0..300).map(|n| format!("LOCK.ACQUIRE {{a}}0 t{n} 60000 KEEP 600000")));
    let slot = c.int("CLUSTER KEYSLOT a");
    c.text(&format!("CLUSTER DELSLOTS {slot}"));
    gone.error_of(&["TRYAGAIN ", "CLUSTERDOWN "]);
    c.until_info("lock_waiters", "1001");
    assert!(stays.is_pending());
    assert_eq!(c.int("LOCK.RELEASE {b}1 a"), 1);
    c.int("LOCK.ACQUIRE {b}1 b 60000");
    assert_eq!(c.int("LOCK.RELEASE {b}1 b"), 1);
    stays.fence();
}
