#!/usr/bin/env bash
# Builds the documents as a book, target/book/html, and checks its links. The tools come from crates.io into .tools, once (minutes).
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
mdbook=0.5.4
mermaid=0.17.1
tools=$PWD/.tools/mdbook-$mdbook-$mermaid
book=${CARGO_TARGET_DIR:-target}/book

if [ ! -x "$tools/bin/mdbook-mermaid" ]; then
    echo "book: building mdbook $mdbook and mdbook-mermaid $mermaid"
    log=$(mktemp)
    for crate in "mdbook@$mdbook --no-default-features --features search" "mdbook-mermaid@$mermaid"; do
        # shellcheck disable=SC2086 # words of the crate
        cargo install --quiet --locked --root "$tools" $crate >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
    done
    rm -f "$log"
fi
export PATH=$tools/bin:$PATH

rm -rf "$book"
mkdir -p "$book/src"
scripts/book/sources.py copy "$book/src"
cp scripts/book/book.toml "$book/"
# It brings Mermaid itself, and would add to book.toml what is there.
mdbook-mermaid install "$book" >/dev/null 2>&1
mdbook build "$book"
scripts/book/sources.py check "$book/html"
