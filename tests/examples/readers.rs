//! Readers and writers.

use crate::fixture::{Fixture, LOCK};

with_every_worker![two_read_together_while_a_writer_waits];

fn two_read_together_while_a_writer_waits(mut fixture: Fixture) {
    fixture.write_as("before", 1);
    let gate = format!("RWLOCK.RLOCK {LOCK} gate 60000");
    assert!(fixture.control.int(&gate) > 0);
    let options = "--ttl 1500 --block 15000 --writes 12 --pause 150 --shared --token";
    let mut readers = ["R1", "R2"].map(|token| fixture.worker(&format!("{options} {token}")));
    for reader in &mut readers {
        reader.granted();
    }
    let mut holders = fixture.control.holders(LOCK);
    holders.sort();
    assert_eq!(holders, ["R1", "R2", "gate"]);
    let mut writer = fixture.worker("--ttl 1000 --block 15000 --writes 3 --pause 20 --token W");
    fixture.wait_until_waiting("W");
    fixture.release_as("gate");
    for reader in readers {
        let ended = reader.finish();
        ended.assert_done(0);
        assert_eq!(ended.reads(), ["1"; 12], "{ended:?}");
    }
    let (_, fence) = writer.granted();
    writer.finish().assert_done(3);
    let written = fixture.written_by("W");
    assert_eq!(written.len(), 3);
    assert!(written.iter().all(|entry| entry.fence == fence));
    fixture.assert_free();
}
