#!/usr/bin/env bash
# Writes the badges of the README from the files that they speak of. tests/tidy.rs compares them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=.tools/badges
if [ ! -x $venv/bin/anybadge ]; then
    scripts/setup/languages/python.sh "$PWD/$venv"
    $venv/bin/pip install --quiet --disable-pip-version-check --only-binary :all: anybadge==1.16.0 packaging==25.0 setuptools==80.9.0
fi

of_manifest() { sed -nE "s/^$1 *= *\"(.*)\"/\1/p" Cargo.toml | head -n 1; }
tested=$(sed -nE 's/^suite=\((.*)\)/\1/p' scripts/setup/servers.sh)
of_kind() { tr ' ' '\n' <<<"$tested" | sed -nE "s/^$1-([0-9]+(\.[0-9]+)?).*/\1/p" | paste -sd ' '; }

badge() { $venv/bin/anybadge --label "$1" --value "$2" --color '#4c72b0' --file "docs/badges/$3.svg" --overwrite; }
mkdir -p docs/badges
badge license "$(of_manifest license)" license
badge Rust "$(of_manifest rust-version) or later" rust
badge Redis "$(of_kind redis)" redis
badge Valkey "$(of_kind valkey)" valkey
