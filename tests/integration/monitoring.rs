//! Every metric in the dashboard, the alerts and the documents exists.

use std::collections::BTreeSet;

use crate::harness::{project_file, Kind, Server};

on_every_server![
    the_exporter_script_returns_the_fields_of_info,
    every_metric_of_the_dashboard_is_a_field_of_info,
];

/// The names of `INFO lock`.
fn fields(info: &str) -> BTreeSet<String> {
    let lines = info.lines().filter_map(|line| line.trim().split_once(':'));
    lines.map(|(name, _)| name.to_string()).collect()
}

fn the_exporter_script_returns_the_fields_of_info(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE key token 100000");
    let script = project_file("packaging/monitoring/redis-lock.lua");
    let reply = c.send(&["EVAL", script.as_str(), "0"]);
    let words: Vec<_> = reply.words();
    let names = words.chunks(2).map(|pair| pair[0].clone());
    let info = c.text("INFO lock");
    let mut numbers = fields(&info);
    assert!(numbers.remove("lock_guard"), "its one word");
    assert_eq!(names.collect::<BTreeSet<_>>(), numbers);
    let held = words.chunks(2).find(|pair| pair[0] == "lock_held_keys");
    assert_eq!(held.unwrap()[1], "1");
}

/// Every word of these files with the prefix of a field is a field, and the page of the metrics
/// explains every field.
fn every_metric_of_the_dashboard_is_a_field_of_info(kind: Kind) {
    let server = Server::start(kind);
    let fields = fields(&server.client().text("INFO lock"));
    let metrics = "docs/METRICS.md";
    let mut explained = BTreeSet::new();
    for document in [
        "packaging/monitoring/dashboard.json",
        "packaging/monitoring/alerts.yml",
        "packaging/monitoring/alerts_test.yml",
        "docs/OPERATIONS.md",
        metrics,
    ] {
        let text = project_file(document);
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        for word in words.filter(|word| word.starts_with("lock_")) {
            assert!(fields.contains(word), "{document}: {word}");
            if document == metrics {
                explained.insert(word.to_string());
            }
        }
    }
    // `_p50` … `_p999`, `_max` stand for the other fields of their kind.
    let is_percentile = |name: &&String| name.contains("_usec_");
    let missing: Vec<_> = fields
        .difference(&explained)
        .filter(|n| !is_percentile(n))
        .collect();
    assert!(missing.is_empty(), "{metrics} says nothing of {missing:?}");
}
