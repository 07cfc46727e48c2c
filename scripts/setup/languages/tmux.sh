#!/usr/bin/env bash
# tmux is the terminal in which locktop is tested.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../apt.sh"

has_tmux() { command -v tmux >/dev/null; }
need tmux has_tmux tmux
