//! Holds that end with connections (LINGER), over promotions.
//!
//! The client is honest. When its connection is lost, it counts on its hold for as long as that
//! lingers, and no longer. It asks again for a renewal, and believes the answer if its lease has
//! not ended meanwhile.
//!
//! A renewal that an honest client believes needs the rule only where the old primary lives on: it
//! ends the hold later than the new one has renewed it. A question ([`What::Check`]) needs it
//! always: the client asks because it does not know.

use super::dice::Kind;
use super::guard::{Rule, Settings as Guard};
use super::guarded::{FAILOVER, LONGEST_MS, QUORUM, RESTART};
use super::histories::{play, play_seeds, small, take, take_as, ONE, THREE};
use super::*;

pub(super) const fn bound(ttl: u64, linger: u64) -> What {
    take_as(Mode::Exclusive, ttl, Some(linger))
}

#[test]
fn where_nothing_is_lost_it_ends_for_its_client_first() {
    for kind in [ONE, THREE] {
        let kind = Kind {
            lingers: true,
            ..kind
        };
        let (tally, _) = play_seeds(0..600, 500, kind);
        println!("clients lose connections: {tally:?}");
        assert!(tally.disconnected > 1_000);
    }
}

/// The steps have a breach without the rule, and none with it.
fn breach(guard: Guard, steps: &[Step]) {
    let breaches = |without| {
        let settings = Settings {
            clocks: vec![Clocks::default(); 3],
            guard: Guard { without, ..guard },
            old_primaries_stop: guard.scope == guard::Scope::Failover,
            ..small(false)
        };
        let open = (0..LONGEST_MS / 100).flat_map(|_| [Step::Tick(200), Step::Flow]);
        let all: Vec<_> = open.chain(steps.iter().copied()).collect();
        let tally = play(&settings, &all);
        assert!(tally.believed > 0);
        tally.breaches
    };
    assert_eq!(breaches(None), 0, "{guard:?}");
    assert_eq!(breaches(Some(Rule::Linger)), 1, "{guard:?}");
}

#[test]
fn its_end_may_be_missing_after_a_promotion_or_a_start() {
    let ended = [
        Step::Ask(0, 0, bound(2_000, 0)),
        Step::Flow,
        Step::Disconnect(0),
        Step::Ask(1, 0, take(2_000)),
    ];
    let check = |s| Step::Ask(0, s, What::Check(0));
    for guard in [RESTART, FAILOVER, QUORUM] {
        if guard.scope != guard::Scope::Restart {
            let promoted = [&ended[..], &[Step::Promote(1), check(1)]].concat();
            breach(guard, &promoted);
        }
        let file = Disk::Lacks(2);
        let again = [Step::Crash(0), Step::Restart(0, file, true), check(0)];
        breach(guard, &[&ended[..], &again].concat());
    }
}

#[test]
fn an_old_primary_that_lives_on_ends_it_though_it_was_renewed() {
    let steps = [
        Step::Ask(0, 0, bound(3_000, 300)),
        Step::Ask(1, 0, take(2_000)),
        Step::Flow,
        Step::Promote(1),
        Step::Disconnect(0),
        Step::Ask(0, 1, What::Renew(0, 4_000)),
        Step::Tick(301),
        Step::Tick(0),
    ];
    breach(FAILOVER, &steps);
}
