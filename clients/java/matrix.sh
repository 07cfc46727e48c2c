#!/usr/bin/env bash
# Runs all tests with each version of the drivers, on the classes that were compiled against the oldest ones.
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

# Adds up the classes that use the library, by their reports.
row() {
    local library=$1 version=$2 folder=$3 file all=0 bad=0 left=0
    for file in "$folder"/TEST-*.xml; do
        case $library-${file##*.redislock.} in
            jedis-Lettuce*) continue ;;
            jedis-* | lettuce-Lettuce* | lettuce-Drivers* | lettuce-Topology* | lettuce-Acl*) ;;
            lettuce-Fallback* | lettuce-Vectors* | lettuce-Lease*) ;;
            *) continue ;;
        esac
        all=$((all + $(grep -c '<testcase ' "$file")))
        bad=$((bad + $(grep -cE '<(failure|error)[ >]' "$file")))
        left=$((left + $(grep -c '<skipped' "$file")))
    done
    printf 'java\t%s\t%s\t%d\t%d\t%d\n' "$library" "$version" $((all - bad - left)) "$bad" "$left" | tee -a "$rows"
    [ "$all" -gt 0 ] && [ "$bad" -eq 0 ]
}

status=0
seen=
mvn -B -ntp -Dstyle.color=never -q test-compile || exit 1
for run in "${runs[@]}"; do
    read -r jedis lettuce netty <<<"$run"
    folder=$PWD/target/matrix/$jedis-$lettuce
    rm -rf "$folder"
    mkdir -p "$folder"
    mvn -B -ntp -Dstyle.color=never surefire:test -Djedis.run="$jedis" -Dlettuce.run="$lettuce" -Dnetty.version="$netty" \
        -Dreports="$folder" -DforkCount=2 >"$folder/log" 2>&1 || status=1
    row jedis "$jedis" "$folder" || status=1
    if [ "$seen" != "$lettuce" ]; then
        row lettuce "${lettuce%.RELEASE}" "$folder" || status=1
    fi
    seen=$lettuce
done
sort -V "$rows" >MATRIX.tsv
exit $status
