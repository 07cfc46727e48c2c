//! The files of tests/scenarios, on real servers. The engine plays most of them in memory, too
//! (`cargo test -p redis-lock-core --lib scenes`).

#[path = "../scenarios/format.rs"]
mod format;
mod stage;

use crate::harness::Kind;
use format::{files, folder, Scenario, Servers};
use stage::RealServer;

const SCENARIOS: &str = "tests/scenarios";

/// Makes a test of each file for each of these servers.
macro_rules! scenarios {
    ($($group:ident, $servers:ident, $on:ident: [$($name:ident),* $(,)?];)*) => {
        $(mod $group {
            use crate::harness::Kind;
            $(fn $name(kind: Kind) { super::play(stringify!($name), kind); })*
            $on![$($name),*];
        })*
        const LISTED: &[(Servers, &[&str])] = &[
            $((Servers::$servers, &[$(stringify!($name)),*])),*
        ];
    };
}

scenarios! {
    everywhere, All, on_every_server: [
        caps,
        cycle_by_another_mode_of_a_channel,
        cycle_over_a_place_for_several_keys,
        deadline_grants_in_time,
        demotion_sends_waiters_away,
        exec_only_while_held,
        kept_place_for_several_keys_that_expire,
        lost_conversion_stays,
        patrol_sees_new_keys,
        persist_repairs_the_ttl,
        renamed_lock_causes_no_deadlock,
        request_that_becomes_an_upgrade,
        timer_rests_at_an_absent_upgrade,
        unheard_message_ends_the_places_of_its_channel,
        upgrade_passes_an_earlier_writer,
    ];
    oldest_and_newest, Ends, on_oldest_and_newest: [
        absent_permits,
        absent_places,
        basics,
        cancel,
        cancel_of_several_keys,
        conversions_at_places,
        counters,
        cycle_of_requests_for_several_keys,
        cycles,
        cycles_without_detection,
        ends_of_a_lock,
        ends_of_one_of_several_keys,
        ends_of_places,
        graces,
        grants_by_channel,
        hand_over,
        holds_of_lost_connections_end_one_by_one,
        kept_places,
        limit_of_absent_places,
        limit_of_several_keys,
        limit_of_waiters_of_a_key,
        limit_of_waiters_of_the_server,
        linger_of_waiters,
        linger_words,
        locks_that_change_under_waiters,
        lost_connection_ends_its_hold,
        lost_grants,
        lost_waiters,
        no_room_to_wait,
        permits,
        permits_in_the_queue,
        permits_with_other_limits,
        poller_waits_as_fairly,
        queue_order,
        release_gives_up_a_place,
        resumed_places,
        several_keys,
        several_keys_end,
        several_keys_in_a_chain,
        several_keys_wait,
        unheard_grants,
        upgrades_and_downgrades,
    ];
    real, Real, on_every_server: [
        demotion_in_a_transaction,
        graces_rest_while_writes_are_refused,
        limits_at_run_time,
        once,
        pauses,
        reload_keeps_waiters,
        scripts_do_not_wait,
        ttl_of_several_requests_for_several_keys,
    ];
}

fn play(name: &str, kind: Kind) {
    let path = folder().join(format!("{name}.txt"));
    let played = Scenario::read(&path).and_then(|scenario| {
        let mut stage = RealServer::start(kind, &scenario.settings);
        scenario.play(&mut stage)
    });
    if let Err(why) = played {
        panic!("{why}");
    }
}

/// A file says where it is played, and the lists above play it there.
#[test]
fn each_file_is_played_where_it_says() {
    let mut seen = 0;
    for path in files() {
        let servers = Scenario::read(&path)
            .unwrap_or_else(|why| panic!("{why}"))
            .servers;
        let name = path.file_stem().unwrap().to_str().unwrap();
        let lists = LISTED.iter().filter(|(_, names)| names.contains(&name));
        let lists: Vec<_> = lists.map(|(servers, _)| *servers).collect();
        let expected = match servers {
            Servers::None => vec![],
            servers => vec![servers],
        };
        assert_eq!(lists, expected, "{name}");
        seen += lists.len();
    }
    let listed: usize = LISTED.iter().map(|(_, names)| names.len()).sum();
    assert_eq!(listed, seen, "a file is listed that is not there");
}
