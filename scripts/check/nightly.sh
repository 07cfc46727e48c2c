#!/usr/bin/env bash
# Runs the tests that the gate leaves to the night, on the servers of the suite and on those between them. A server
# that cannot be had for this machine is skipped and named.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

declare -A tests=([redis-7.2.4]=redis_7_2 [redis-7.4.1]=redis_7_4 [valkey-8.1]=valkey_8_1)
filters=() skipped=()
for server in "${!tests[@]}"; do
    scripts/setup/servers.sh "$server" && continue
    skipped+=("$server")
    filters+=(--skip "::${tests[$server]}")
done
status=0
cargo test --locked --no-fail-fast --test integration -- --ignored --test-threads "$(nproc)" "${filters[@]}" || status=$?
echo "nightly: ${#skipped[@]} servers skipped ${skipped[*]}"
exit "$status"
