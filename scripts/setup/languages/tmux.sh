#!/usr/bin/env bash
# Installs tmux, the terminal in which locktop is tested, when this machine lacks it.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../apt.sh"

! command -v tmux >/dev/null || exit 0
command -v apt-get >/dev/null || { echo "setup: this is no Debian; please install tmux" >&2; exit 1; }
echo "setup: installing tmux"
apt_get update
apt_get install --no-install-recommends tmux
command -v tmux >/dev/null || { echo "setup: there is still no tmux" >&2; exit 1; }
