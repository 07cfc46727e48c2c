#!/usr/bin/env bash
# Runs the tests: on the oldest and the newest server, with the simulations in their short form; or with
# `all` everything, on all servers.
#
# Many tests run at once, and a machine may stand still for a moment. So up to ten tests that fail are run
# once more, one after the other. A test that fails again has failed. The others are named at the end.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

targets=(--test integration --test campaign --test tidy) filters=(--test-threads "${RUST_TEST_THREADS:-$((3 * $(nproc)))}")
if [[ ${1:-} == all ]]; then
    targets+=(--test libraries)
else
    export TEST_SHORT=1
    for server in redis_8_2 redis_8_6 valkey_8_0; do
        filters+=(--skip "::$server::")
    done
fi

log=$(mktemp) simulations=$(mktemp)
trap 'kill ${!:-} 2>/dev/null; rm -f "$log" "$simulations"' EXIT
cargo test --locked --no-run --lib "${targets[@]}" || exit
# The simulations only compute. They take the time that the others leave, which mostly wait for servers.
nice -n 19 cargo test --locked --lib >"$simulations" 2>&1 &
cargo test --locked --no-fail-fast "${targets[@]}" -- "${filters[@]}" 2>&1 | tee "$log"
status=${PIPESTATUS[0]}
wait $! || status=$?
tee -a "$log" <"$simulations"
((status == 0)) && exit

mapfile -t failed < <(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$log" | sort -u)
((${#failed[@]} >= 1 && ${#failed[@]} <= 10)) || exit "$status"
echo "== once more, one after the other: ${failed[*]}"
cargo test --locked --no-fail-fast --lib "${targets[@]}" -- --exact --test-threads 1 "${failed[@]}" || exit
echo "== failed once and passed alone: ${failed[*]}"
