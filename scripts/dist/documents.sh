#!/usr/bin/env bash
# Copies documents into a folder, where they have the places that they have here, so that their
# links lead somewhere. What is only in the source is linked to where the source is.
#
#   scripts/dist/documents.sh FOLDER [FILE…]      without a file: those that go with the module
set -euo pipefail

into=$(mkdir -p "$1" && cd "$1" && pwd)
shift
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
repository=$(sed -n 's/^repository //p' packaging/names)
if [ $# -eq 0 ]; then
    mapfile -t files < <(find docs -name '*.md' -o -name '*.svg' -o -name '*.png' -o -name '*.tsv'; find packaging/monitoring -maxdepth 1 -type f)
    set -- README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE redis.conf.example "${files[@]}"
fi
for file; do install -D -m 644 "$file" "$into/$file"; done

find "$into" -name '*.md' | while read -r document; do
    { grep -oE '\]\([^)#[:space:]]+' "$document" || true; } | cut -c3- | sort -u | while read -r target; do
        place=$(dirname "$document")/$target
        if [[ $target == *://* || $target == mailto:* || -e $place ]]; then continue; fi
        path=$(realpath --canonicalize-missing --relative-to="$into" "$place")
        [ -e "$path" ] || { echo "documents: $document links to $target, which is not there" >&2; exit 1; }
        sed -i "s|](${target//./\\.}\([)#]\)|](${repository}/tree/main/${path}\1|g" "$document"
    done
done
