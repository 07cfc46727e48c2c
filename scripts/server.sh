# shellcheck shell=bash
# Private servers, on free ports of the loopback address, for the scripts that source this file.
#
#   start_server LOG COMMAND…      starts it, with --bind and --port behind the command, and waits
#                                  until it answers. Sets `server`, its pid, and `port`, the first
#                                  free one of `server_ports`.
#   start_module FOLDER ARGUMENT…  starts Redis 7.0 with the module, its log and data in the folder
#   stop_server                    ends it by its pid, if one runs: call it in a trap for EXIT
#   cli COMMAND…                   asks it
#
# `server_attempts` is the number of tenths of a second that a server may take to start.

server=
port=
server_attempts=${server_attempts:-300}
server_ports=$(shuf -i 20000-32000 -n 10)
server_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
server_cli=${REDIS_LOCK_SERVERS:-$server_root/.servers}/redis-7.0.15/bin/redis-cli

cli() { "$server_cli" -p "$port" "$@" 2>/dev/null; }

# Another server may have taken the port first, and answer in its place. INFO is answered while data
# is loaded, PING is not.
server_answers() {
    [[ $(cli INFO server) == *"process_id:$server"$'\r'* ]] && [ "$(cli PING)" = PONG ]
}

start_server() {
    local log=$1 try
    shift
    for port in $server_ports; do
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

start_module() {
    start_server "$1/log" "${server_cli%redis-cli}redis-server" --dir "$1" --save '' \
        --loadmodule "${REDIS_LOCK_MODULE:-${CARGO_TARGET_DIR:-$server_root/target}/release/libredis_lock.so}" "${@:2}"
}

stop_server() {
    [ -n "$server" ] || return 0
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
}
