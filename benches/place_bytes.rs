//! The memory of a place without a blocked client.

use crate::fixture::{name, Fixture};
use crate::places::{Keys, Meter, Places, Way};
use crate::report::{Bound, Report};
use crate::stats::Spread;
use crate::Run;

/// A table that doubles would be more than half empty at the second one.
const COUNTS: [usize; 3] = [1_000, 115_000, 1_000_000];
const GOAL: &str = "bytes of a place without a blocked client";

pub fn measure(with: &Run) {
    let mut report = Report::new(
        "place-bytes",
        "Memory of places without a blocked client",
        with.quick,
    );
    report.say(
        "The table shows bytes of used_memory for each place, with that many places in one queue, or one in each of as many queues. Keys have 16 bytes, tokens 36. There is one channel and one connection for all.",
    );
    let counts = &COUNTS[..if with.quick { 2 } else { COUNTS.len() }];
    let mut rows = Vec::new();
    for &kind in &with.kinds {
        for keys in [Keys::One, Keys::Own] {
            for way in [Way::Notify, Way::Absent] {
                let shape = format!("{}, {}", keys.name(), way.name());
                let mut row = vec![
                    name(kind).to_string(),
                    keys.name().into(),
                    way.name().into(),
                ];
                for &count in counts {
                    let mut meter = Meter::Cpu(Box::new(Fixture::start(kind, &[])));
                    let (_, bytes) = Places::form(&mut meter, count, keys, way);
                    let subject = format!("{count} places, {shape}");
                    let spread = Spread::of(&[bytes]);
                    report.goal(kind, GOAL, &subject, Bound::AtMost(300.0), spread);
                    row.push(format!("{bytes:.0}"));
                }
                println!("{}", row.join(" | "));
                rows.push(row);
            }
        }
    }
    let mut header: Vec<String> = ["server", "keys", "listener"].map(String::from).to_vec();
    header.extend(counts.iter().map(ToString::to_string));
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    report.table(&header, &rows);
    report.write();
}
