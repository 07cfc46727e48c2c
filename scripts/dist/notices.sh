#!/usr/bin/env bash
# The licences of the crates in the module, which their authors ask to be passed on with it: packaging/NOTICES.
#
#   scripts/dist/notices.sh write    makes the file anew, by cargo-about
#   scripts/dist/notices.sh check    fails if the file names other crates than Cargo.lock: takes a second, and needs no cargo-about
#
# The file is committed because cargo-about takes minutes to build, and a package is made in each run of .ci/run.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
tools=${CARGO_TARGET_DIR:-$root/target}/tools
cargo_about=0.9.3
config=packaging/notices
notices=packaging/NOTICES

fail() { echo "notices: $*" >&2; exit 1; }

# NAME VERSION of each crate in Cargo.lock that is built into the module, on any target of about.toml.
locked() {
    local target
    sed -nE 's/^ +"(.*-linux-.*)",$/\1/p' "$config/about.toml" | while read -r target; do
        cargo tree --locked --edges normal --target "$target" --prefix none --format '{p}'
    done | sed -nE 's/^([^ ]+) v([^ ]+).*/\1 \2/p' | grep -v '^redis-lock ' | sort -u
}

# The same of the file: the lines between two rules.
named() { awk '/^=====/ { inside = !inside; next } inside && /^[^ ]/ { print $1, $2 }' "$notices" | sort -u; }

check() {
    diff <(locked) <(named) >&2 || fail "$notices has not the crates of Cargo.lock: run 'make notices', and look at what changed"
    echo "notices: $(named | wc -l) crates, as in Cargo.lock"
}

write() {
    [ "$("$tools/bin/cargo-about" --version 2>/dev/null)" = "cargo-about $cargo_about" ] || {
        echo "notices: building cargo-about $cargo_about"
        CARGO_TARGET_DIR=$tools/build cargo install cargo-about --version "$cargo_about" --no-default-features --features cli \
            --locked --quiet --root "$tools"
        rm -rf "$tools/build"
    }
    cargo fetch --locked --quiet
    # Offline: the texts are those that the crates bring, and no service is asked.
    "$tools/bin/cargo-about" generate --frozen --fail --config "$config/about.toml" --output-file "$notices" "$config/about.hbs"
    check
}

case ${1:-} in
    write | check) "$1" ;;
    *) fail "write or check?" ;;
esac
