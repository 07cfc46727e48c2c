#!/usr/bin/env bash
# Runs the tests of Redis 7.0 with every server under valgrind's memcheck.
#
#   scripts/check/valgrind.sh [FILTER…]       as of `cargo test`; all of redis_7_0 when there is none
#
# A test fails when memcheck finds an access that is not right, in the server or in the module, or
# something lost of the module's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
[ $# -gt 0 ] || set -- redis_7_0
reports=$(mktemp -d)
trap 'rm -rf "$reports"' EXIT

# Tests that cannot run so, and why.
skip=()
while read -r name _; do skip+=(--skip "$name"); done <<'TESTS'
waiters_of_a_lock_that_ends_in_a_migrating_slot         a lease of a fraction of a second is over before the next step
a_busy_server_delays_a_hand_off_but_loses_none          the same
an_expired_lock_counts_as_one_expired_key               the same
module_loadex_sets_the_limits                           the server loses what it makes for a module that it then refuses
configuration::arguments::redis_7_0::module_load        the same
memory::growth                                          counts bytes of the allocator that memcheck takes the place of
no_command_is_slow_beside_many_readers                  measures time
TESTS

status=0
TEST_UNDER_VALGRIND=$reports cargo test --locked --test integration -- "$@" --test-threads 2 "${skip[@]}" || status=$?
grep -rhoE 'ERROR SUMMARY: [0-9]+ errors' "$reports" | sort | uniq -c | sed 's/^/valgrind: processes with /' || true
exit $status
