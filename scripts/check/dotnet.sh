#!/usr/bin/env bash
# Compiles examples/dotnet/RedisLocks.cs by Mono, against stand-ins of StackExchange.Redis, and plays it on a real server. NuGet and the SDK
# of .NET need a registry of their own.
#
#   scripts/check/dotnet.sh mono     tells whether Mono is there, and installs it where apt has it
#   scripts/check/dotnet.sh
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
servers=${REDIS_LOCK_SERVERS:-$root/.servers}
module=${REDIS_LOCK_MODULE:-${CARGO_TARGET_DIR:-$root/target}/release/libredis_lock.so}
has_mono() { command -v mcs >/dev/null && command -v mono >/dev/null; }
if [ "${1:-}" = mono ]; then
    . scripts/setup/apt.sh
    has_mono || (apt_get install --no-install-recommends mono-mcs) || true
    has_mono || { echo "dotnet: left out: there is no mcs and mono (Debian: apt-get install mono-mcs)"; exit 1; }
    exit
fi

temp=$(mktemp -d)
. scripts/server.sh
trap 'stop_server; rm -rf "$temp"' EXIT

mcs -warnaserror -out:"$temp/story.exe" examples/dotnet/RedisLocks.cs scripts/check/dotnet/*.cs

start_server "$temp/log" "$servers/redis-7.0.15/bin/redis-server" --dir "$temp" --save "" --loadmodule "$module"
timeout 120 mono "$temp/story.exe" "$port"
