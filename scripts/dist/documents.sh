#!/usr/bin/env bash
# Copies the documents that go with the module into the folder $1, where they have the places that they have here, so that their links
# lead somewhere. What is only in the source is linked to where the source is.
set -euo pipefail

into=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
repository=$(sed -nE 's/^repository *= *"(.*)"/\1/p;T;q' Cargo.toml)
{
    ls README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE redis.conf.example
    find docs -type f \( -name '*.md' -o -name '*.svg' -o -name '*.png' -o -name '*.tsv' \)
    # What an operator's Prometheus and Grafana read.
    find packaging/monitoring -maxdepth 1 -type f
} | while read -r file; do install -D -m 644 "$file" "$into/$file"; done

scripts/check/links.sh "$into" | while IFS=$'\t' read -r document target; do
    path=$(realpath --canonicalize-missing --relative-to=. "$(dirname "$document")/$target")
    [ -e "$path" ] || { echo "documents: $document links to $target, which is not there" >&2; exit 1; }
    sed -i "s|](${target//./\\.}\([)#]\)|](${repository}/tree/main/${path}\1|g" "$into/$document"
done
