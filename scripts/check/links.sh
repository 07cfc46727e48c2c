#!/usr/bin/env bash
# Prints the relative links in the documents below the folder $1 that lead nowhere: the document, a tab, and the target as it is written there.
set -euo pipefail

cd "$1"
find . -name '*.md' -type f | sort | while read -r document; do
    { grep -oE '\]\([^)#[:space:]]+' "$document" || true; } | cut -c3- | sort -u | while read -r target; do
        case $target in *://* | mailto:*) continue ;; esac
        [ -e "$(dirname "$document")/$target" ] || printf '%s\t%s\n' "${document#./}" "$target"
    done
done
