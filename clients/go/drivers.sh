#!/usr/bin/env bash
# Runs a go command on this module with the drivers of the other modules laid beside its tests, and the newest version of each library:
#
#   drivers.sh test -race .
#   drivers.sh vet .
#
# The module itself neither has those files nor requires those libraries, so that a user of go-redis does not depend on them. What go writes
# goes to target/: the pinned versions in testdata/newest.mod change by hand.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
go=$(../../scripts/setup/languages/go.sh where)
work=${DRIVERS_WORK:-$(cd ../.. && pwd)/target/go}
mkdir -p "$work"
if [ -z "${DRIVERS_MOD:-}" ]; then
    cp testdata/newest.mod "$work/newest.mod"
    cp testdata/newest.sum "$work/newest.sum"
    DRIVERS_MOD=$work/newest.mod
fi
overlay=$work/overlay.json
{
    printf '{"Replace": {'
    separator=
    for library in rueidis valkey; do
        grep -q "/${library}driver " "$DRIVERS_MOD" || continue
        printf '%s"%s": "%s"' "$separator" "$PWD/${library}_test.go" "$PWD/testdata/${library}_test.go"
        separator=,
    done
    printf '}}\n'
} >"$overlay.$$"
mv "$overlay.$$" "$overlay"
export GOFLAGS="-modfile=$DRIVERS_MOD -overlay=$overlay ${GOFLAGS:-}"
exec "$go" "$@"
