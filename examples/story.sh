#!/usr/bin/env bash
# The overselling story, played on a live server by redis-cli: `examples/story.sh 127.0.0.1 6379`, or `make run`.
#
# Ten workers sell from one stock, each step under the lock. Then come the problems of real life: a stranger tries to
# release, a slow owner renews, a crashed owner never releases. Every answer is checked, and a wrong one ends the story.
set -euo pipefail

host=${1:-127.0.0.1} port=${2:-6379}
cli=(${REDIS_LOCK_CLI:-redis-cli} -h "$host" -p "$port")
workers=10 stock=50 lock=lock:stock
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT

fail() { echo "story: expected $*" >&2; exit 1; }
heading() { printf '\n# %s\n' "$*"; }

# run WORD…: prints the command and its answer as a terminal shows them; the answer is in `reply`.
run() {
    reply=$("${cli[@]}" --no-raw "$@")
    printf '%s:%s> %s\n%s\n' "$host" "$port" "$*" "$reply"
}
expect() { run "${@:2}" && [ "$reply" = "$1" ] || fail "$1 from ${*:2}"; }
# fence WORD…: the answer is a fence above the last one.
fence() {
    run "$@"
    [ "${reply#(integer) }" -gt "${last:-0}" ] || fail "a fence above ${last:-0} from $*"
    last=${reply#(integer) }
}

# Sells until nothing is left, and writes a line for each sale: the fence, and what is left.
work() {
    local fence left
    while fence=$("${cli[@]}" LOCK.ACQUIRE "$lock" "$1" 10000 BLOCK 30000) && [ -n "$fence" ]; do
        # Another worker would read the same number in the pause between the two.
        left=$("${cli[@]}" GET stock)
        if [ "$left" -gt 0 ]; then
            "${cli[@]}" SET stock $((left - 1)) >/dev/null
            "${cli[@]}" INCR sold >/dev/null
            echo "$fence $((left - 1))"
        fi
        [ "$("${cli[@]}" LOCK.RELEASE "$lock" "$1")" = 1 ] || fail "an owner that can release"
        [ "$left" -gt 0 ] || return 0
    done
    fail "the lock in time"
}

heading "$workers workers sell $stock items from one stock. Each sale reads the stock, pauses and writes it back. Without a lock they would oversell."
run SET stock "$stock"
run SET sold 0
printf '\n  each worker:  LOCK.ACQUIRE %s worker-N 10000 BLOCK 30000   GET stock, SET stock, INCR sold   LOCK.RELEASE %s worker-N\n\n' "$lock" "$lock"
running=()
for ((n = 1; n <= workers; n++)); do
    work "worker-$n" >"$temp/$n" &
    running+=($!)
done
for ((n = 1; n <= workers; n++)); do
    wait "${running[n - 1]}"
    sold=$(wc -l <"$temp/$n")
    printf '  worker-%-2d sold %2d\n' "$n" "$sold"
    # The queue is fair: nobody waits for more than one sale of each of the others.
    [ "$sold" -gt 0 ] || fail "a sale by every worker"
done
diff <(sort -n "$temp"/* | cut -d' ' -f2) <(seq $((stock - 1)) -1 0) >/dev/null || fail "sales in the order of their fences"
[ -z "$(sort -n "$temp"/* | cut -d' ' -f1 | uniq -d)" ] || fail "fences that rise"
echo
expect '"0"' GET stock
expect "\"$stock\"" GET sold
printf '\n  Nothing is oversold: %d items, %d sales, and each sale has a larger fence than the one before.\n' "$stock" "$stock"

heading "Alice holds the lock. A stranger cannot release, take or renew it."
fence LOCK.ACQUIRE "$lock" alice 30000
expect "(integer) 0" LOCK.RELEASE "$lock" mallory
expect "(nil)" LOCK.ACQUIRE "$lock" mallory 30000
expect "(integer) 0" LOCK.RENEW "$lock" mallory 30000

heading "Alice's work takes longer than expected. She renews the lock, finishes and releases it."
expect "(integer) 1" LOCK.RENEW "$lock" alice 60000
run PTTL "$lock"
run LOCK.INFO "$lock"
expect "(integer) 1" LOCK.RELEASE "$lock" alice

heading "Bob takes the lock for 300 ms and crashes. Carol waits, and gets it when his 300 ms are over. Bob's late renewal and release do nothing."
fence LOCK.ACQUIRE "$lock" bob 300
fence LOCK.ACQUIRE "$lock" carol 30000 BLOCK 5000
expect "(integer) 0" LOCK.RENEW "$lock" bob 30000
expect "(integer) 0" LOCK.RELEASE "$lock" bob
expect "(integer) 1" LOCK.RELEASE "$lock" carol

printf '\nEvery reply was as expected.\n'
