#!/usr/bin/env bash
# The licences of the crates in the module and in locktop, which their authors ask to be passed on with them: packaging/NOTICES and
# packaging/NOTICES.locktop.
#
#   scripts/dist/notices.sh write    makes the files anew, by cargo-about
#   scripts/dist/notices.sh check    fails if a file names other crates than its Cargo.lock: takes a second, and needs no cargo-about
#
# The files are committed because cargo-about takes minutes to build, and a package is made in each run of .ci/run.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
tools=${CARGO_TARGET_DIR:-$root/target}/tools
cargo_about=0.9.3
config=packaging/notices

fail() { echo "notices: $*" >&2; exit 1; }

# NAME VERSION of each crate that is built into what the manifest $1 makes, on any target of about.toml.
locked() {
    local target
    sed -nE 's/^ +"(.*-linux-.*)",$/\1/p' "$config/about.toml" | while read -r target; do
        cargo tree --manifest-path "$1" --locked --edges normal --target "$target" --prefix none --format '{p}'
    done | sed -nE 's/^([^ ]+) v([^ ]+).*/\1 \2/p' | grep -vE '^(redis-lock|locktop) ' | sort -u
}

# The same of a file: the lines between two rules.
named() { awk '/^=====/ { inside = !inside; next } inside && /^[^ ]/ { print $1, $2 }' "$1" | sort -u; }

# each COMMAND: with the manifest and the file of the module, and of locktop.
each() {
    "$1" Cargo.toml packaging/NOTICES
    "$1" clients/locktop/Cargo.toml packaging/NOTICES.locktop
}

check() {
    diff <(locked "$1") <(named "$2") >&2 || fail "$2 has not the crates of $1: run '$0 write', and look at what changed"
    echo "notices: $2: $(named "$2" | wc -l) crates, as in Cargo.lock"
}

generate() {
    cargo fetch --manifest-path "$1" --locked --quiet
    # Offline: the texts are those that the crates bring, and no service is asked.
    "$tools/bin/cargo-about" generate --manifest-path "$1" --frozen --fail --config "$config/about.toml" --output-file "$2" "$config/about.hbs"
}

write() {
    [ "$("$tools/bin/cargo-about" --version 2>/dev/null)" = "cargo-about $cargo_about" ] || {
        echo "notices: building cargo-about $cargo_about"
        CARGO_TARGET_DIR=$tools/build cargo install cargo-about --version "$cargo_about" --no-default-features --features cli \
            --locked --quiet --root "$tools"
        rm -rf "$tools/build"
    }
    each generate
    each check
}

case ${1:-} in
    write) write ;;
    check) each check ;;
    *) fail "write or check?" ;;
esac
