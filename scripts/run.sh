#!/usr/bin/env bash
# Starts a private server with the module and plays the story on it. At a terminal the server then runs
# until Ctrl-C, so that you can try the commands by hand.
#
#   PORT=7000 scripts/run.sh        without PORT: the first free port from 6379
#   scripts/run.sh EXAMPLE ARG…     plays another example and ends
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=${REDIS_LOCK_SERVERS:-$root/.servers}/redis-7.0.15/bin
module=${REDIS_LOCK_MODULE:-$root/target/release/libredis_lock.so}
cd "$root"

fail() { echo "run: $*" >&2; exit 1; }

taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

[ -x "$bin/redis-server" ] || fail "there is no server in $bin: run 'make servers'"
[ -e "$module" ] || fail "there is no module $module: run 'make build'"

if [ -n "${PORT:-}" ]; then
    ! taken "$PORT" || fail "port $PORT is taken"
else
    PORT=6379
    while taken "$PORT"; do PORT=$((PORT + 1)); done
fi

server=
temp=$(mktemp -d)
clean_up() {
    if [ -n "$server" ]; then
        kill "$server" 2>/dev/null || true
        # It has nothing to save. If it does not end within five seconds, it never will.
        for _ in {1..50}; do kill -0 "$server" 2>/dev/null || break; sleep 0.1; done
        kill -KILL "$server" 2>/dev/null || true
    fi
    rm -rf "$temp"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

"$bin/redis-server" --bind 127.0.0.1 --port "$PORT" --save "" --appendonly no --dir "$temp" \
    --logfile "$temp/log" --loadmodule "$module" >"$temp/out" 2>&1 &
server=$!

answers() { [ "$("$bin/redis-cli" -h 127.0.0.1 -p "$PORT" PING 2>/dev/null)" = PONG ]; }

deadline=$((SECONDS + 20))
until answers; do
    if ! kill -0 "$server" 2>/dev/null || [ $SECONDS -ge $deadline ]; then
        cat "$temp/out" "$temp/log" >&2 || true
        fail "the server did not start on port $PORT; its log is above"
    fi
    sleep 0.1
done
# Another server may have taken the port meanwhile. Then that one has answered.
kill -0 "$server" 2>/dev/null || { cat "$temp/log" >&2; fail "the server ended; its log is above"; }

# The story needs no compiler, so that a first look is soon there.
play=(examples/story.sh)
[ $# -eq 0 ] || play=(cargo run --quiet --release --locked --example "$1" --)
status=0
REDIS_LOCK_CLI=$bin/redis-cli "${play[@]}" 127.0.0.1 "$PORT" "${@:2}" || status=$?

if [ -t 1 ] && [ $# -eq 0 ]; then
    echo
    echo "The server runs until you press Ctrl-C. To try it, type in another terminal:"
    echo "    $bin/redis-cli -p $PORT LOCK.ACQUIRE my-lock me 30000"
    trap 'exit $status' INT
    wait "$server" || fail "the server ended"
fi
exit "$status"
