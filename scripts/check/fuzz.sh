#!/usr/bin/env bash
# Coverage-guided fuzzing: each target for FUZZ_SECONDS, or those that are named.
#
#   scripts/check/fuzz.sh [codec] [parser] [queue] [restore]
#
# A finding ends it and is kept in fuzz/artifacts. With a nightly Rust, FUZZ_SANITIZER=address looks at memory as well.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
seconds=${FUZZ_SECONDS:-60}
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(codec parser queue restore)
# Inputs that the fuzzer finds stay out of the repository; what is worth keeping is put into fuzz/corpus by hand.
found=${CARGO_TARGET_DIR:-target}/fuzz-corpus

cargo fuzz --version >/dev/null 2>&1 || {
    echo "fuzz: installing cargo-fuzz"
    cargo install cargo-fuzz --locked --quiet
}

work=$(mktemp -d)
. scripts/server.sh
trap 'stop_server; rm -rf "$work"' EXIT

# A server for the target that needs one: it says where it is in FUZZ_PORT.
start_target() {
    start_server "$work/log" "${REDIS_LOCK_SERVERS:-$root/.servers}/redis-7.0.15/bin/server" --dir "$work" --save '' --rdbcompression no \
        --loglevel warning --loadmodule "${REDIS_LOCK_MODULE:-$root/target/release/libredis_lock.so}"
    export FUZZ_PORT=$port
}

for target in "${targets[@]}"; do
    [ "$target" != restore ] || start_target
    mkdir -p "$found/$target"
    cargo fuzz run --sanitizer "${FUZZ_SANITIZER:-none}" "$target" "$found/$target" "fuzz/corpus/$target" -- \
        -max_total_time="$seconds" -max_len=4096 -print_final_stats=1 2>"$work/out" || {
        cat "$work/out" >&2
        exit 1
    }
    awk -v target="$target" -v seconds="$seconds" '
        /number_of_executed_units/ { units = $2 }
        / cov: / { for (i = 1; i < NF; i++) if ($i == "cov:") cov = $(i + 1) }
        END { printf "fuzz: %-7s %s executions in %s s, %s edges covered, nothing found\n", target, units, seconds, cov }
    ' "$work/out"
done
