#!/usr/bin/env bash
# Compiles the file in docs/DOTNET.md by Mono, against stand-ins of StackExchange.Redis, and plays it on a real server. NuGet and the SDK
# of .NET need a registry of their own.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
servers=${REDIS_LOCK_SERVERS:-$root/.servers}
module=${REDIS_LOCK_MODULE:-${CARGO_TARGET_DIR:-$root/target}/release/libredis_lock.so}
for program in mcs mono; do
    command -v "$program" >/dev/null || { echo "dotnet: left out: there is no $program (Debian: apt-get install mono-mcs)"; exit; }
done

temp=$(mktemp -d)
server=
clean_up() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    [ -z "$server" ] || wait "$server" 2>/dev/null || true
    rm -rf "$temp"
}
trap clean_up EXIT

# The first block is the file; the second one shows its use.
awk '/^```csharp$/ { n++; next } /^```$/ { if (n == 1) exit } n == 1' docs/DOTNET.md >"$temp/RedisLocks.cs"
mcs -warnaserror -out:"$temp/story.exe" "$temp/RedisLocks.cs" scripts/check/dotnet/*.cs

for port in $(shuf -i 20000-40000 -n 10); do
    "$servers/redis-7.0.15/bin/redis-server" --bind 127.0.0.1 --port "$port" --dir "$temp" --save "" --loadmodule "$module" >"$temp/log" 2>&1 &
    server=$!
    for _ in {1..100}; do
        kill -0 "$server" 2>/dev/null || break
        [ "$("$servers/redis-7.0.15/bin/redis-cli" -p "$port" PING 2>/dev/null)" != PONG ] || break 2
        sleep 0.1
    done
    grep -q 'in use' "$temp/log" || { cat "$temp/log" >&2; exit 1; }
done
timeout 120 mono "$temp/story.exe" "$port"
