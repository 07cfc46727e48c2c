#!/usr/bin/env bash
# The gate: first what only computes, before any server starts, then the tests on real servers. Without an argument
# on the oldest and the newest server, with short simulations; with `all` on every server of the suite, with all
# histories; with `build` it only builds. A test that fails has failed: nothing is run again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# A test mostly waits for its servers, and those have stepped clocks.
filters=(--test-threads "${TEST_THREADS:-$((4 * $(nproc)))}")
if [[ ${1:-} != all ]]; then
    export TEST_SHORT=1
    for server in redis_8_2 redis_8_6 valkey_8_0; do filters+=(--skip "::$server"); done
fi
targets=(--test integration --test campaign)
cargo test --workspace --locked --no-run --lib --test tidy --test libraries "${targets[@]}"
[[ ${1:-} != build ]] || exit 0
cargo test --workspace --locked --no-fail-fast --lib --test tidy --test libraries
cargo test --locked --no-fail-fast "${targets[@]}" -- "${filters[@]}"
