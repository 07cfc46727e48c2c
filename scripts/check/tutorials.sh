#!/usr/bin/env bash
# Plays the tutorials of docs/START.md and the example of README.md: installs, builds and runs each as the page says, in a folder of its own.
#
#   scripts/check/tutorials.sh [python node go java rust]
#
# `make test-examples` sets the clients up. A language without its toolchain fails: name those that are there.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
export PATH=$root/.tools/node/bin:$PATH
page=docs/START.md
. scripts/server.sh
work=$(mktemp -d)
tutorial=$work/tutorial
running=
trap 'kill -KILL $running 2>/dev/null || true; stop_server; rm -rf "$work"' EXIT
fail() { echo "tutorials: $language: $*" >&2; cat "$work/story" "$work/errors" >&2 2>/dev/null; exit 1; }

# block FILE HEADING LANGUAGE [NUMBER]: the first block in that language below the heading, or the NUMBERth
block() {
    awk -v heading="$2" -v fence="\`\`\`$3" -v number="${4:-1}" '
        $0 == heading { below = 1 }
        below && !inside && $0 == fence { inside = ++found == number; next }
        inside && $0 == "```" { exit }
        inside
    ' "$1"
}

# What a language needs beside the page: the page's folder with the versions of the client's own lock file, and the toolchain.
prepare_python() { :; }
prepare_node() { :; }
prepare_go() {
    PATH=$(dirname "$(scripts/setup/languages/go.sh where)"):$PATH
    cp clients/go/go.sum "$tutorial/"
}
prepare_java() { :; }
prepare_rust() {
    cp clients/rust/Cargo.lock "$tutorial/"
    mkdir -p target/tutorial
    ln -s "$root/target/tutorial" "$tutorial/target"
}

# prepare HEADING LANGUAGE FILE: installs as the page says, saves its program, and sets `run`, the words that start it.
prepare() {
    local heading="### $1" commands
    rm -rf "$tutorial"
    mkdir "$tutorial"
    "prepare_$language"
    commands=$(block $page "$heading" sh | sed "s|/tmp/tutorial|$tutorial|g")
    bash -euo pipefail -c "$commands" >"$work/errors" 2>&1 || fail "its install"
    block $page "$heading" "$2" >"$tutorial/$3"
    commands=$(block $page "$heading" sh 2 | sed "s|/tmp/tutorial|$tutorial|g")
    bash -euo pipefail -c "$(sed '$d' <<<"$commands")" >"$work/errors" 2>&1 || fail "its build"
    run=$(sed -n '$s|redis://127.0.0.1:6379 anna$||p' <<<"$commands")
    [ -n "$run" ] || fail "the page does not say how to run it"
}

# begin NAME: in the background. All lines go to one file, in their order.
begin() {
    bash -c "exec $run redis://127.0.0.1:$port $1" >>"$work/story" 2>>"$work/errors" &
    running="$running $!"
    process=$!
}

# until_true WHAT COMMAND…
until_true() {
    local what=$1 try
    shift
    for ((try = 0; try < 300; try++)); do
        "$@" && return
        sleep 0.1
    done
    fail "waited in vain for $what"
}
has() { grep -q "^$1 has the lock, fence [0-9]*\$" "$work/story"; }
is_done() { grep -q "^$1 is done\$" "$work/story"; }
someone_waits() { [[ $(cli --no-raw -3 LOCK.INFO tutorial) == *'"waiter-count" => (integer) 1'* ]]; }
is_free() { [ "$(cli EXISTS tutorial)" = 0 ]; }
order() { sed -E 's/ has the lock, fence [0-9]+$/ has it/' "$work/story" | paste -sd, -; }
fences_rise() { sed -nE 's/.*fence ([0-9]+)$/\1/p' "$work/story" | sort -nuc 2>/dev/null; }

play() {
    : >"$work/story"
    begin anna
    until_true "the end of one alone" is_done anna
    until_true "its release" is_free
    : >"$work/story"
    begin anna
    until_true "the first of two" has anna
    begin bert
    until_true "the second of two" is_done bert
    [ "$(order)" = "anna has it,anna is done,bert has it,bert is done" ] || fail "in turn: $(order)"
    fences_rise || fail "the fences do not rise"
    until_true "their release" is_free
    : >"$work/story"
    begin anna
    local doomed=$process
    until_true "the one that is to die" has anna
    begin bert
    until_true "a waiter" someone_waits
    kill -KILL "$doomed"
    wait "$doomed" 2>/dev/null || true
    until_true "the one behind a dead owner" is_done bert
    [ "$(order)" = "anna has it,bert has it,bert is done" ] || fail "after a death: $(order)"
    until_true "the last release" is_free
}

# README's example, with a resource that answers as it is told.
play_readme() {
    block README.md "## Use it" python >"$work/readme.py"
    cat >"$work/requests.py" <<'END'
import os
from types import SimpleNamespace

calls = []


def put(url, json, headers):
    assert int(headers["Fence"]) > 0
    calls.append(json)
    if os.environ.get("FAIL"):
        raise OSError("no route")
    return SimpleNamespace(
        status_code=412 if os.environ.get("REFUSE") and json == 2 else 200,
        raise_for_status=lambda: None,
    )
END
    {
        printf 'import redis, requests\nfor_url = redis.Redis.from_url\nredis.Redis = lambda: for_url("redis://127.0.0.1:%s")\npages, url = [1, 2, 3], "http://other.example"\n' "$port"
        cat "$work/readme.py"
        echo 'print(requests.calls)'
    } >"$work/readme_run.py"
    local python=$root/clients/python/.venv/bin/python said
    said=$("$python" "$work/readme_run.py")
    [ "$said" = "[1, 2, 3]" ] || fail "the README's example said: $said"
    until_true "the README's release" is_free_readme
    said=$(REFUSE=1 "$python" "$work/readme_run.py" 2>&1) && fail "the README's example passed a refusal: $said"
    [ "$said" = "a newer owner is at work" ] || fail "the README's example said: $said"
    is_free_readme || fail "the README's example keeps the lock after a refusal"
    said=$(FAIL=1 "$python" "$work/readme_run.py" 2>&1) && fail "the README's example passed a failure: $said"
    is_free_readme || fail "the README's example keeps the lock after a request that failed"
}
is_free_readme() { [ "$(cli EXISTS sync:customer:7)" = 0 ]; }

languages=("$@")
[ $# -gt 0 ] || languages=(python node go java rust)
language=server
program=${REDIS_LOCK_SERVERS:-$root/.servers}/redis-7.0.15/bin/redis-server
start_server "$work/log" "$program" --save '' --dir "$work" --loadmodule "${REDIS_LOCK_MODULE:-$root/target/release/libredis_lock.so}"
for language in "${languages[@]}"; do
    case $language in
        python) prepare Python python tutorial.py ;;
        node) prepare Node js tutorial.mjs ;;
        go) prepare Go go tutorial.go ;;
        java) prepare Java java Tutorial.java ;;
        rust) prepare Rust rust src/main.rs ;;
    esac
    play
    [ "$language" != python ] || play_readme
    echo "tutorials: $language: alone, in turn, and behind a dead owner"
done
