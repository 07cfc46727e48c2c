#!/usr/bin/env bash
# Makes a virtual environment with packages in it, by the machine's Python or else by Debian's.
#
#   scripts/setup/languages/python.sh FOLDER [REQUIREMENT…]
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../apt.sh"

venv=$1
shift
# A Python may be there without what makes environments: on Debian that is a package of its own.
has_python() { python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))'; }
need "Python 3.11 with venv and pip" has_python python3-venv ca-certificates

# One that was made by a Python which has gone, or halfway, is made anew.
"$venv/bin/python" -m pip --version >/dev/null 2>&1 || python3 -m venv --clear "$venv"
[ $# -eq 0 ] || [ "$(cat "$venv/installed" 2>/dev/null)" = "$*" ] || {
    echo "setup: installing $* into $venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$@"
    echo "$*" >"$venv/installed"
}
