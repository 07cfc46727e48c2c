#!/usr/bin/env bash
# Runs all tests with each version of the drivers, on the classes that were compiled against the oldest ones.
# A test that fails is run once more, as a busy machine is late at times.
# Writes a row per library and version to MATRIX.tsv: LANG, library, version, passed, failed, skipped.
set -uo pipefail
cd "$(dirname "$0")"

# Jedis, Lettuce, and the Netty of that Lettuce's time. Each version stands in one run at least.
runs=(
    "5.0.2 6.3.2.RELEASE 4.1.118.Final"
    "5.2.0 6.8.2.RELEASE 4.1.118.Final"
    "6.2.0 7.7.0.RELEASE 4.2.16.Final"
    "7.5.3 7.7.0.RELEASE 4.2.16.Final"
    "8.0.2 7.7.0.RELEASE 4.2.16.Final"
)
rows=$(mktemp)
trap 'rm -f "$rows"' EXIT

# Adds up the reports of the classes that use the library.
row() {
    local library=$1 version=$2 folder=$3 report tests=0 failed=0 skipped=0 counts
    for report in "$folder"/TEST-*.xml; do
        case "$library:$report" in
            jedis:*.Lettuce*) continue ;;
            lettuce:*.Lettuce* | lettuce:*.DriversTest.xml | lettuce:*.TopologyTest.xml) ;;
            lettuce:*.AclTest.xml | lettuce:*.FallbackTest.xml | lettuce:*.ServersTest.xml) ;;
            lettuce:*) continue ;;
        esac
        counts=$(grep -m1 '<testsuite ' "$report")
        tests=$((tests + $(count tests "$counts")))
        failed=$((failed + $(count failures "$counts") + $(count errors "$counts")))
        skipped=$((skipped + $(count skipped "$counts")))
    done
    printf 'java\t%s\t%s\t%d\t%d\t%d\n' \
        "$library" "$version" $((tests - failed - skipped)) "$failed" "$skipped" | tee -a "$rows"
    [ "$tests" -gt 0 ] && [ "$failed" = 0 ]
}

count() { sed -E "s/.* $1=\"([0-9]+)\".*/\1/" <<<"$2"; }

status=0
seen=
mvn -B -ntp -Dstyle.color=never -q test-compile || exit 1
for run in "${runs[@]}"; do
    read -r jedis lettuce netty <<<"$run"
    folder=$PWD/target/matrix/$jedis-$lettuce
    rm -rf "$folder"
    mkdir -p "$folder"
    mvn -B -ntp -Dstyle.color=never surefire:test -Djedis.run="$jedis" -Dlettuce.run="$lettuce" -Dnetty.version="$netty" \
        -Dreports="$folder" -DforkCount=2 -Dsurefire.rerunFailingTestsCount=1 >"$folder/log" 2>&1 || status=1
    row jedis "$jedis" "$folder" || status=1
    if [ "$seen" != "$lettuce" ]; then
        row lettuce "${lettuce%.RELEASE}" "$folder" || status=1
    fi
    seen=$lettuce
done
sort -V "$rows" >MATRIX.tsv
exit $status
