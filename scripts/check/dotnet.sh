#!/usr/bin/env bash
# Compiles examples/dotnet/RedisLocks.cs by Mono, against stand-ins of StackExchange.Redis, and plays it on a real server. NuGet and the SDK
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
. scripts/server.sh
trap 'stop_server; rm -rf "$temp"' EXIT

mcs -warnaserror -out:"$temp/story.exe" examples/dotnet/RedisLocks.cs scripts/check/dotnet/*.cs

start_server "$temp/log" "$servers/redis-7.0.15/bin/redis-server" --dir "$temp" --save "" --loadmodule "$module"
timeout 120 mono "$temp/story.exe" "$port"
