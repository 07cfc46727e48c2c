#!/usr/bin/env bash
# What is written in other languages: clients/LANG and examples/LANG. With Rust comes clients/locktop.
#
#   scripts/examples.sh setup       installs what is missing, toolchains and packages
#   scripts/examples.sh clients     the lints and tests of the clients (LOCKTOP=: without it)
#   scripts/examples.sh examples    sets all up, and plays the examples and the tutorials
#   scripts/examples.sh matrix      the clients with each version of the libraries that they allow
#
# EXAMPLES=python,go chooses languages. One after the other: a test of timeouts has the machine to itself. Each
# folder has a Makefile that knows its language. Whatever fails is named at the end.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
# Where setup puts a Node.js, if Debian's is too old.
export PATH=$PWD/.tools/node/bin:$PATH
export EXAMPLES=${EXAMPLES:-python,node,go,java,rust}
IFS=', ' read -ra languages <<<"$EXAMPLES"
declare -A more=([rust]=${LOCKTOP-clients/locktop})
failed=()

# try NAME COMMAND…
try() {
    local begun=$SECONDS
    echo "== $1"
    "${@:2}" || failed+=("$1")
    echo "== $1: $((SECONDS - begun)) s"
}

# has FOLDER TARGET
has() { grep -qs "^$2:" "$1/Makefile"; }

for language in "${languages[@]}"; do
    for folder in "clients/$language" ${more[$language]:-} "examples/$language"; do
        [[ -e $folder/Makefile ]] || continue
        case ${1:-}:$folder in
            setup:* | examples:*) try "$folder: setup" make -C "$folder" setup ;;
            clients:clients/*)
                ! has "$folder" check || try "$folder: lints" make -C "$folder" check
                try "$folder: tests" make -C "$folder" test
                ;;
            matrix:*) ! has "$folder" matrix || try "$folder: matrix" make -C "$folder" matrix ;;
        esac
    done
done
case ${1:-} in
    setup | clients) ;;
    matrix) try "docs/COMPATIBILITY.md" scripts/matrix.py ;;
    examples)
        filters=(oversell::)
        for language in "${languages[@]}"; do filters+=("::${language}_"); done
        try "examples" cargo test --locked --test examples -- --test-threads 4 "${filters[@]}"
        for language in "${languages[@]}"; do
            try "docs/START.md: $language" scripts/check/tutorials.sh "$language"
        done
        ;;
    *) sed -n 's/^#   //p' "$0" >&2 && exit 2 ;;
esac
((${#failed[@]} == 0)) || { printf 'FAILED: %s\n' "${failed[@]}"; exit 1; }
