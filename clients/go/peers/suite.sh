#!/usr/bin/env bash
# Runs redsync's own tests, as they are in its module, against this client, and counts them. ../PEER-SUITE.md says what is left out.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
go=$(../../../scripts/setup/languages/go.sh where)
left_out=(TestMutexQuorum)

"$go" mod download github.com/go-redsync/redsync/v4
module=$("$go" list -m -f '{{.Dir}}' github.com/go-redsync/redsync/v4)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# mutex_test.go and error_test.go untouched. redsync_test.go is the harness for six drivers, in whose place harness_test.go
# is, and one test, which is taken out of it.
{
    printf 'package redsync\n\nimport (\n\t"context"\n\t"testing"\n)\n\n'
    awk '/^func TestRedsync\(/, /^}/' "$module/redsync_test.go"
} >"$work/redsync_test.go"

# The files are seen beside those in redsync/ without being there.
cat >"$work/overlay.json" <<JSON
{"Replace": {
  "$PWD/redsync/mutex_test.go": "$module/mutex_test.go",
  "$PWD/redsync/error_test.go": "$module/error_test.go",
  "$PWD/redsync/redsync_test.go": "$work/redsync_test.go"
}}
JSON

skip=$(IFS='|'; echo "^(${left_out[*]})\$")
status=0
"$go" test -overlay "$work/overlay.json" -count=1 -v -vet=off -skip "$skip" ./redsync | tee "$work/log" || status=$?
count() { grep -cE "^--- $1:" "$work/log" || true; }
total=$(cat "$module"/{mutex,error,redsync}_test.go | grep -cE '^func Test[A-Z].*testing\.T\)')
echo "redsync $("$go" list -m -f '{{.Version}}' github.com/go-redsync/redsync/v4): of $total tests" \
    "$(count PASS) passed, $(count FAIL) failed, $(count SKIP) skipped, ${#left_out[@]} left out (${left_out[*]})"
[ "$(($(count PASS) + $(count FAIL) + $(count SKIP) + ${#left_out[@]}))" -eq "$total" ] || { echo "some did not run" >&2; exit 1; }
exit $status
