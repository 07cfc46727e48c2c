#!/usr/bin/env bash
# Parses the Mermaid diagrams of the documents by Mermaid itself. A block that it refuses is shown as an error on the page.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# Where setup puts a Node.js, if Debian's is too old.
export PATH=$PWD/.tools/node/bin:$PATH
folder=scripts/check/mermaid

if ! [ $folder/node_modules/.package-lock.json -nt $folder/package-lock.json ]; then
    scripts/setup/languages/node.sh
    npm ci --prefix $folder --silent --ignore-scripts
    touch $folder/node_modules/.package-lock.json
fi
git ls-files -z -- '*.md' | xargs -0 node $folder/check.js
