#!/usr/bin/env bash
# Runs this module's tests on each version of each library in testdata/matrix.txt, and writes MATRIX.tsv. Each row has a go.mod of its own
# in target/, so that no pinned version changes. ROWS=rueidis runs only the rows that contain this, and does not write the file.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
go=$(../../scripts/setup/languages/go.sh where)
target=$(cd ../.. && pwd)/target/go/matrix
mkdir -p "$target"

# row LIBRARY VERSION PATH: its line goes to $target/LIBRARY-VERSION.tsv.
row() {
    local library=$1 version=$2 path=$3 work=$target/$1-$2 driver status=0
    rm -rf "$work"
    mkdir -p "$work"
    cp go.mod "$work/row.mod"
    cp go.sum "$work/row.sum"
    "$go" mod edit -require="$path@$version" "$work/row.mod"
    driver=
    [ "$library" != rueidis ] || driver=rueidisdriver
    if [ -n "$driver" ]; then
        local module=github.com/redis-lock/redis-lock/clients/go/$driver
        "$go" mod edit -require="$module@v0.4.0" -replace="$module=./$driver" "$work/row.mod"
    fi
    export DRIVERS_MOD=$work/row.mod DRIVERS_WORK=$work REDIS_LOCK_DRIVER=$library
    if GOFLAGS=-mod=mod ./drivers.sh test -c -o "$work/tests" . >"$work/log" 2>&1; then
        # Another version than the one that is named would be a row of lies.
        GOFLAGS=-mod=mod ./drivers.sh list -m -f '{{.Version}}' "$path" | grep -qx "$version" || status=1
        "$work/tests" -test.v -test.timeout 300s >>"$work/log" 2>&1 || status=1
    else
        status=1
    fi
    count() { grep -cE "^--- $1:" "$work/log" || true; }
    printf 'go\t%s\t%s\t%s\t%s\t%s\n' "$library" "$version" "$(count PASS)" "$(count FAIL)" "$(count SKIP)" | tee "$work.tsv"
    rm -f "$work/tests"
    [ "$status" = 0 ] || { echo "matrix: $library $version failed: $work/log" >&2; touch "$work.failed"; }
}

rm -f "$target"/*.tsv "$target"/*.failed
running=0
while read -r library version path; do
    case "$library $version" in \#* | ' ') continue ;; *"${ROWS:-}"*) ;; *) continue ;; esac
    row "$library" "$version" "$path" &
    running=$((running + 1))
    [ "$((running % ${MATRIX_JOBS:-2}))" -ne 0 ] || wait
done <testdata/matrix.txt
wait
if [ -z "${ROWS:-}" ]; then
    while read -r library version _; do
        case $library in \#* | '') ;; *) cat "$target/$library-$version.tsv" ;; esac
    done <testdata/matrix.txt >MATRIX.tsv
fi
[ -z "$(ls "$target"/*.failed 2>/dev/null)" ]
