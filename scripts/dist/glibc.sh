#!/usr/bin/env bash
# Says which glibc the shared object $1 needs: the newest version of a symbol that it asks for.
set -euo pipefail
LC_ALL=C readelf --wide --dyn-syms "$1" | { grep -oE "@GLIBC_[0-9.]+" || true; } | cut -d_ -f2 | sort -Vu | tail -n1
