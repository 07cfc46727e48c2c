#!/usr/bin/env bash
# Starts a private server with the module and plays the story on it. At a terminal the server then
# runs until Ctrl-C, so that you can try the commands by hand.
#
#   PORT=7000 scripts/run.sh        without PORT: the first free port from 6379
#   scripts/run.sh EXAMPLE ARG…     plays another example and ends
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/server.sh

temp=$(mktemp -d)
trap 'stop_server; rm -rf "$temp"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
# shellcheck disable=SC2034 # start_server reads it.
server_ports=${PORT:-$(seq 6379 6479)}
start_module "$temp" --appendonly no

# The story needs no compiler, so that a first look is soon there.
play=(examples/story.sh)
[ $# -eq 0 ] || play=(cargo run --quiet --release --locked --example "$1" --)
status=0
REDIS_LOCK_CLI=$server_cli "${play[@]}" 127.0.0.1 "$port" "${@:2}" || status=$?

if [ -t 1 ] && [ $# -eq 0 ]; then
    echo
    echo "The server runs until you press Ctrl-C. To try it, type in another terminal:"
    echo "    $server_cli -p $port LOCK.ACQUIRE my-lock me 30000"
    trap 'exit $status' INT
    wait "$server" || { echo "run: the server ended" >&2; exit 1; }
fi
exit "$status"
