# shellcheck shell=bash
# Private servers for the scripts that source this file. They listen on free ports of the loopback address.
#
#   start_server LOG COMMAND…    starts it, with --bind and --port behind the command, and waits until it answers. Sets `server`, its
#                                pid, and `port`.
#   stop_server                  ends it by its pid, and waits for that. Does nothing where none runs: call it in a trap for EXIT.
#   cli COMMAND…                 asks it
#
# `server_attempts` is the number of tenths of a second that a server may take to start.

server=
port=
server_attempts=${server_attempts:-300}
server_cli=${REDIS_LOCK_SERVERS:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/.servers}/redis-7.0.15/bin/redis-cli

cli() { "$server_cli" -p "$port" "$@" 2>/dev/null; }

# Another server may have taken the port first, and answer in its place. INFO is answered while data is loaded, PING is not.
server_answers() {
    [[ $(cli INFO server) == *"process_id:$server"$'\r'* ]] && [ "$(cli PING)" = PONG ]
}

start_server() {
    local log=$1 try
    shift
    for port in $(shuf -i 20000-32000 -n 10); do
        "$@" --bind 127.0.0.1 --port "$port" >"$log" 2>&1 &
        server=$!
        for ((try = 0; try < server_attempts; try++)); do
            kill -0 "$server" 2>/dev/null || break
            ! server_answers || return 0
            sleep 0.1
        done
        stop_server
        grep -q 'in use' "$log" || break
    done
    cat "$log" >&2
    echo "the server did not start: $*" >&2
    return 1
}

stop_server() {
    [ -n "$server" ] || return 0
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
}
