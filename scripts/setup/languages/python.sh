#!/usr/bin/env bash
# Makes a virtual environment in the folder $1, with Python's own packages from Debian where the machine lacks them.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../apt.sh"

venv=$1
oldest_python=3.11

# A Python may be there without what makes environments: on Debian that is a package of its own.
has_python() {
    python3 -c "import ensurepip, sys, venv; sys.exit(sys.version_info < (${oldest_python/./, }))" 2>/dev/null
}

if ! has_python; then
    if ! command -v apt-get >/dev/null; then
        echo "python: this is no Debian; please install Python $oldest_python or newer with venv and pip" >&2
        exit 1
    fi
    echo "python: installing python3-venv"
    apt_get update
    apt_get install --no-install-recommends python3-venv ca-certificates
    has_python || { echo "python: there is no Python $oldest_python with venv yet" >&2; exit 1; }
fi

# One that was made by a Python which has gone, or halfway, is made anew.
"$venv/bin/python" -m pip --version >/dev/null 2>&1 || python3 -m venv --clear "$venv"
