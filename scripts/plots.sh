#!/usr/bin/env bash
# Draws the plots of the documents from the figures beside them, each for a light and for a dark page.
#
#   scripts/plots.sh                   those of docs/benchmarks
#   scripts/plots.sh FOLDER            those whose TSV files are in FOLDER, into it
#
# matplotlib is installed once, into .tools. Where that is impossible the figures are there all the same.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

wanted=scripts/plots/requirements.txt
venv=.tools/plots
if ! cmp -s $wanted $venv/installed.txt; then
    echo "plots: installing matplotlib into $venv"
    log=$(mktemp)
    if ! { scripts/setup/languages/python.sh "$PWD/$venv" &&
        $venv/bin/pip install --quiet --disable-pip-version-check --only-binary :all: -r $wanted; } >"$log" 2>&1; then
        echo "plots: not drawn, because Python with pip and matplotlib is missing here: $(tail -n1 "$log")" >&2
        rm -f "$log"
        exit 1
    fi
    rm -f "$log"
    cp $wanted $venv/installed.txt
fi
exec $venv/bin/python scripts/plots/plots.py "${1:-docs/benchmarks}"
