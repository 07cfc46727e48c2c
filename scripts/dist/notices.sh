#!/usr/bin/env bash
# The licences of the crates in the module and in locktop, which their authors ask to be passed on
# with them: packaging/NOTICES and packaging/NOTICES.locktop. They are committed because cargo-about
# takes minutes to build.
#
#   scripts/dist/notices.sh write    makes the files anew, by cargo-about
#   scripts/dist/notices.sh check    fails if a file names other crates than its Cargo.lock
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=${CARGO_TARGET_DIR:-$PWD/target}/tools
config=packaging/notices

# NAME VERSION of each crate that is built into what the manifest $1 makes, on any target of
# about.toml.
locked() {
    local target
    sed -nE 's/^ +"(.*-linux-.*)",$/\1/p' $config/about.toml | while read -r target; do
        cargo tree --manifest-path "$1" --locked --edges normal --target "$target" --prefix none --format '{p}'
    done | sed -nE 's/^([^ ]+) v([^ ]+).*/\1 \2/p' | grep -vE '^(redis-lock|redis-lock-core|locktop) ' | sort -u
}

# The same of a file: the lines between two rules.
named() { awk '/^=====/ { inside = !inside; next } inside && /^[^ ]/ { print $1, $2 }' "$1" | sort -u; }

[ "${1:-}" != write ] || [ -x "$tools/bin/cargo-about" ] ||
    cargo install cargo-about --version 0.9.3 --no-default-features --features cli --locked --quiet --root "$tools"
while read -r manifest file; do
    # Offline: the texts are those that the crates bring, and no service is asked.
    [ "${1:-}" != write ] || "$tools/bin/cargo-about" generate --manifest-path "$manifest" --frozen --fail --config $config/about.toml \
        --output-file "$file" $config/about.hbs
    diff <(locked "$manifest") <(named "$file") || { echo "notices: run '$0 write', and look at what changed in $file" >&2; exit 1; }
done <<<'Cargo.toml packaging/NOTICES
clients/locktop/Cargo.toml packaging/NOTICES.locktop'
