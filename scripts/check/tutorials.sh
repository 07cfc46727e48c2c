#!/usr/bin/env bash
# Plays the tutorials of docs/START.md: installs, builds and runs each as the page says, in a folder
# of its own.
#
#   scripts/check/tutorials.sh [python node go java rust]
#
# `make setup-examples` sets the clients up. A language without its toolchain fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export PATH=$PWD/.tools/node/bin:$PATH
. scripts/server.sh
work=$(mktemp -d)
tutorial=$work/tutorial
running=()
trap 'kill -KILL "${running[@]}" 2>/dev/null || true; stop_server; rm -rf "$work"' EXIT
fail() { echo "tutorials: $language: $*" >&2; cat "$work/story" "$work/errors" >&2 2>/dev/null; exit 1; }

# block FILE HEADING LANGUAGE [NUMBER]: the first or NUMBERth block of that below the heading
block() {
    awk -v heading="$2" -v fence="\`\`\`$3" -v number="${4:-1}" '
        $0 == heading { below = 1 }
        below && !inside && $0 == fence { inside = ++found == number; next }
        inside && $0 == "```" { exit }
        inside
    ' "$1" | sed "s|/tmp/tutorial|$tutorial|g"
}

# prepare LANGUAGE FILE: installs as the page says, saves its program, sets `run`, its command.
prepare() {
    local page=docs/START.md heading="### ${language^}" commands
    bash -euo pipefail -c "$(block $page "$heading" sh)" >"$work/errors" 2>&1 || fail "its install"
    block $page "$heading" "$1" >"$tutorial/$2"
    commands=$(block $page "$heading" sh 2)
    bash -euo pipefail -c "$(sed '$d' <<<"$commands")" >"$work/errors" 2>&1 || fail "its build"
    run=$(sed -n '$s|redis://127.0.0.1:6379 anna$||p' <<<"$commands")
    [ -n "$run" ] || fail "the page does not say how to run it"
}

# begin NAME: in the background. All lines go to one file, in their order.
begin() {
    bash -c "exec $run redis://127.0.0.1:$port $1" >>"$work/story" 2>>"$work/errors" &
    running+=($!)
}

until_true() {
    local try
    for ((try = 0; try < 300; try++)); do
        "$@" && return
        sleep 0.1
    done
    fail "waited in vain for: $*"
}
has() { grep -q "^$1 has the lock, fence [0-9]*\$" "$work/story"; }
is_done() { grep -q "^$1 is done\$" "$work/story"; }
someone_waits() { [[ $(cli --no-raw -3 LOCK.INFO tutorial) == *'"waiter-count" => (integer) 1'* ]]; }
is_free() { [ "$(cli EXISTS tutorial)" = 0 ]; }
# was ORDER: with fences that rise
was() {
    [ "$(sed -E 's/ has the lock, fence [0-9]+$/ has it/' "$work/story" | paste -sd,)" = "$1" ] || fail "not in this order: $1"
    sed -nE 's/.*fence ([0-9]+)$/\1/p' "$work/story" | sort -nuc || fail "the fences do not rise"
}

# Two in turn, and one behind an owner that dies.
play() {
    : >"$work/story"
    begin anna
    until_true has anna
    begin bert
    until_true is_done bert
    was "anna has it,anna is done,bert has it,bert is done"
    until_true is_free
    : >"$work/story"
    begin anna
    until_true has anna
    begin bert
    until_true someone_waits
    kill -KILL "${running[-2]}"
    wait "${running[-2]}" 2>/dev/null || true
    until_true is_done bert
    was "anna has it,bert has it,bert is done"
    until_true is_free
}

[ $# -gt 0 ] || set -- python node go java rust
language=server
start_module "$work"
for language; do
    rm -rf "$tutorial"
    mkdir "$tutorial"
    # What it needs beside the page: the toolchain, and the versions of the client's own lock file.
    case $language in
        python) prepare python tutorial.py ;;
        node) prepare js tutorial.mjs ;;
        go)
            PATH=$(dirname "$(scripts/setup/languages/go.sh where)"):$PATH
            cp clients/go/go.sum "$tutorial/"
            prepare go tutorial.go ;;
        java) prepare java Tutorial.java ;;
        rust)
            cp clients/rust/Cargo.lock "$tutorial/"
            mkdir -p target/tutorial
            ln -s "$PWD/target/tutorial" "$tutorial/target"
            prepare rust src/main.rs ;;
    esac
    play
    echo "tutorials: $language: in turn, and behind a dead owner"
done
