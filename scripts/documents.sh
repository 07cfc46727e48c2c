#!/usr/bin/env bash
# Copies the documents that go with the module into the folder $1, where they have the places that they have here, so that their links
# lead somewhere.
set -euo pipefail

into=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
{
    ls README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE redis.conf.example
    find docs -type f \( -name '*.md' -o -name '*.svg' -o -name '*.png' \)
    # What an operator's Prometheus and Grafana read.
    find packaging/monitoring -maxdepth 1 -type f ! -name '*_test.*'
} | while read -r file; do install -D -m 644 "$file" "$into/$file"; done
