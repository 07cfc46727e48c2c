#!/usr/bin/env bash
# Installs the Go that the examples and the client need, when this machine lacks one that is new enough.
#
#   scripts/setup/languages/go.sh          installs what is missing
#   scripts/setup/languages/go.sh where    prints the go command to use
#
# Debian 12 has an old Go and, among its backports, a newer one that leaves the old one in peace: it lies in a folder of its own.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../apt.sh"

oldest=1.23

# Prints the first go that is new enough as it is, without a toolchain that it would fetch.
where() {
    local go
    for go in "$(command -v go || true)" /usr/local/go/bin/go /usr/lib/go-1.*/bin/go; do
        [ -x "$go" ] || continue
        if at_least "$(GOTOOLCHAIN=local "$go" version | sed -E 's/^go version go([0-9.]+).*/\1/')" $oldest; then
            echo "$go"
            return
        fi
    done
    return 1
}

# Installs $2… from the backports of release $1, which need not be among the machine's sources and do not become one of them.
from_backports() {
    local release=$1 mirror lists
    # shellcheck disable=SC2016 # These are apt's to expand.
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' |
        awk -v release="$release" '$2 == release { print $1; exit }')
    [ -n "$mirror" ] || { echo "setup: no source of Debian's $release is set up here" >&2; exit 1; }
    lists=$(mktemp -d)
    # shellcheck disable=SC2064 # The folder is known now.
    trap "rm -rf '$lists'" EXIT
    chmod 755 "$lists" # apt reads as a user of its own
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $release-backports main" >"$lists/sources.list"
    mkdir -p "$lists/lists/partial"
    local only=(-o "Dir::Etc::sourcelist=$lists/sources.list" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$lists/lists")
    apt_get "${only[@]}" update
    apt_get "${only[@]}" install --no-install-recommends "${@:2}"
    as_root rm -rf "$lists"
}

if [ "${1:-}" = where ]; then
    where || { echo "there is no Go >= $oldest: run scripts/setup/languages/go.sh" >&2; exit 1; }
    exit
fi

# The race detector of the tests needs a C compiler.
packages=()
command -v gcc >/dev/null || packages+=(gcc libc6-dev)
[ -e /etc/ssl/certs/ca-certificates.crt ] || packages+=(ca-certificates)
if ! where >/dev/null || [ ${#packages[@]} -gt 0 ]; then
    command -v apt-get >/dev/null || { echo "setup: this is no Debian; please install Go >= $oldest" >&2; exit 1; }
    echo "setup: installing Go"
    apt_get update
    backports=
    if ! where >/dev/null; then
        if at_least "$(candidate golang-go)" $oldest; then packages+=(golang-go); else backports=golang-$oldest-go; fi
    fi
    [ ${#packages[@]} -eq 0 ] || apt_get install --no-install-recommends "${packages[@]}"
    # shellcheck disable=SC1091
    [ -z "$backports" ] || from_backports "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$backports"
    where >/dev/null || { echo "setup: there is still no Go >= $oldest" >&2; exit 1; }
fi
