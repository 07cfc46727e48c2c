#!/usr/bin/env bash
# Runs a go command on this module with the driver of the other module laid beside its tests, and the newest version of each library:
#
#   drivers.sh test -race .
#   drivers.sh vet .
#
# The module itself neither has that file nor requires that library, so that a user of go-redis does not depend on them. What go writes
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
replaced=
if grep -q "/rueidisdriver " "$DRIVERS_MOD"; then
    replaced="\"$PWD/rueidis_test.go\": \"$PWD/testdata/rueidis_test.go\""
fi
printf '{"Replace": {%s}}\n' "$replaced" >"$overlay.$$"
mv "$overlay.$$" "$overlay"
export GOFLAGS="-modfile=$DRIVERS_MOD -overlay=$overlay ${GOFLAGS:-}"
exec "$go" "$@"
