#!/usr/bin/env bash
# Runs the short tests (tests/integration/nightly.rs) on the servers between those of the suite. One that
# cannot be had for this machine is skipped and named. Without any the run fails.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

declare -A tests=([redis-7.2.4]=redis_7_2 [redis-7.4.1]=redis_7_4 [valkey-8.1]=valkey_8_1)
filters=() skipped=()
for server in "${!tests[@]}"; do
    if scripts/setup/servers.sh "$server"; then
        filters+=("nightly::${tests[$server]}::")
    else
        skipped+=("$server")
    fi
done
status=1
((${#filters[@]} == 0)) || { cargo test --locked --test integration -- --ignored "${filters[@]}"; status=$?; }
echo "nightly: ${#filters[@]} servers tested, ${#skipped[@]} skipped ${skipped[*]}"
exit "$status"
