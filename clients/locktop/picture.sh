#!/usr/bin/env bash
# Draws docs/locktop.svg: a real run of locktop in tmux, over two servers with clients at work.
# The numbers differ from run to run, so it is drawn when the screen has changed, and by hand.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
setup=../../scripts/setup

$setup/languages/tmux.sh
$setup/servers.sh redis-7.0.15 valkey-9
cargo build --quiet --locked
target=${CARGO_TARGET_DIR:-target}
venv=$target/picture
$setup/languages/python.sh "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check redis==6.4.0 rich==14.2.0
"$venv/bin/python" picture.py "$target/debug/locktop" ../../docs/locktop.svg
