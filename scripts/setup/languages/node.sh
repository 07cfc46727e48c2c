#!/usr/bin/env bash
# Installs Node.js and npm when this machine lacks them or has older ones than the examples and the adapter run on.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../apt.sh"

oldest=18

has_node() {
    command -v npm >/dev/null && command -v node >/dev/null &&
        [ "$(node -p 'process.versions.node.split(".")[0]' 2>/dev/null || echo 0)" -ge $oldest ]
}

! has_node || exit 0
if ! command -v apt-get >/dev/null; then
    echo "setup: this is no Debian; please install Node.js $oldest or newer with npm" >&2
    exit 1
fi
echo "setup: installing nodejs npm"
apt_get update
# What it recommends is a compiler for native packages: nothing here needs one.
apt_get install --no-install-recommends nodejs npm ca-certificates
hash -r
has_node || { echo "setup: still no Node.js $oldest or newer" >&2; exit 1; }
