#!/bin/sh
# The crate's own tests with each version of its client, beside the lock file: a row for each in MATRIX.tsv.
# Ends non-zero when a test fails. VERSIONS says which; REDIS_LOCK_SERVER, with which server.
set -u
cd "$(dirname "$0")"
versions=${VERSIONS:-"1.0.0 1.4.0 1.8.1"}
tests=${TESTS:?the names of the tests, as the Makefile has them}
rows=target/matrix/rows
mkdir -p target/matrix
# The tests look for both beside the crate.
ln -sfn "$PWD/../vectors" "$PWD/../testing" target/matrix/
printf 'language\tlibrary\tversion\tpassed\tfailed\tskipped\n' > "$rows"
failed_any=0
for version in $versions; do
    folder=target/matrix/$version
    rm -rf "$folder"
    mkdir -p "$folder"
    cp Cargo.toml Cargo.lock README.md "$folder/"
    for part in src tests examples; do
        ln -s "$PWD/$part" "$folder/$part"
    done
    log=$PWD/$folder/log
    (
        cd "$folder" || exit 1
        export CARGO_TARGET_DIR=../target REDIS_LOCK_SERVERS REDIS_LOCK_MODULE
        cargo update --quiet --package redis --precise "$version" &&
            # shellcheck disable=SC2086
            cargo test --no-fail-fast --locked --all-features --lib $tests -- --test-threads 12
    ) > "$log" 2>&1
    result=$?
    count() {
        sed -n "s/^test result:.* \([0-9]*\) $1;.*/\1/p" "$log" | awk '{ n += $1 } END { print n + 0 }'
    }
    passed=$(count passed) failed=$(count failed) skipped=$(count ignored)
    if [ "$result" -ne 0 ]; then
        failed_any=1
        # A version that does not compile has run nothing.
        [ "$passed" -eq 0 ] && failed=all
        grep -E '^error|panicked' "$log" | head -20 >&2
    fi
    printf 'rust\tredis\t%s\t%s\t%s\t%s\n' "$version" "$passed" "$failed" "$skipped" | tee -a "$rows"
done
mv "$rows" MATRIX.tsv
exit $failed_any
