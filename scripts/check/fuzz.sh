#!/usr/bin/env bash
# Coverage-guided fuzzing: each target for FUZZ_SECONDS, or those that are named.
#
#   scripts/check/fuzz.sh [codec] [parser] [queue] [restore]
#
# A finding ends it and is kept in fuzz/artifacts. With a nightly Rust, FUZZ_SANITIZER=address looks
# at memory as well.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
[ $# -gt 0 ] || set -- codec parser queue restore
# Inputs that the fuzzer finds. What is worth keeping is put into fuzz/corpus by hand.
found=${CARGO_TARGET_DIR:-target}/fuzz-corpus
cargo fuzz --version >/dev/null 2>&1 || cargo install cargo-fuzz --locked --quiet

work=$(mktemp -d)
. scripts/server.sh
trap 'stop_server; rm -rf "$work"' EXIT
# For the target `restore`.
start_module "$work" --rdbcompression no --loglevel warning
export FUZZ_PORT=$port

for target; do
    echo "fuzz: $target"
    mkdir -p "$found/$target"
    cargo fuzz run --sanitizer "${FUZZ_SANITIZER:-none}" "$target" "$found/$target" "fuzz/corpus/$target" -- \
        -max_total_time="${FUZZ_SECONDS:-60}" -max_len=4096 -print_final_stats=1 2>"$work/out" || { cat "$work/out" >&2; exit 1; }
    grep -E '\bDONE\b|number_of_executed_units' "$work/out"
done
