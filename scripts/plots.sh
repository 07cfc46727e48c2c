#!/usr/bin/env bash
# Draws the plots of the documents from the TSV files in the folder $1 or docs/benchmarks, each for
# a light and for a dark page.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/setup/languages/python.sh .tools/plots matplotlib==3.10.7 numpy==2.3.4
exec .tools/plots/bin/python scripts/plots/plots.py "${1:-docs/benchmarks}"
