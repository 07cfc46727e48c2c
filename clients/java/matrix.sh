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

# Adds up the classes that use the library. The first line of a class has its tests, the last one what still failed when it
# was run once more.
row() {
    local library=$1 version=$2 log=$3
    awk -v library="$library" -v version="$version" '
        / Tests run: .* -- in / {
            class = $NF
            sub(/.*\./, "", class)
            if (library == "jedis" && class ~ /^Lettuce/) next
            if (library == "lettuce" && class !~ /^(Lettuce|Drivers|Topology|Acl|Fallback|Servers)/) next
            gsub(/,/, "")
            for (at = 1; at < NF; at++) {
                if ($at == "run:" && !(class in tests)) tests[class] = $(at + 1)
                if ($at == "Failures:") failed[class] = $(at + 1)
                if ($at == "Errors:") failed[class] += $(at + 1)
                if ($at == "Skipped:" && !(class in skipped)) skipped[class] = $(at + 1)
            }
        }
        END {
            for (class in tests) {
                all += tests[class]
                bad += failed[class]
                left += skipped[class]
            }
            printf "java\t%s\t%s\t%d\t%d\t%d\n", library, version, all - bad - left, bad, left
            exit all == 0 || bad > 0
        }' "$log" | tee -a "$rows"
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
        -Dreports="$folder" -DforkCount=2 -Dsurefire.rerunFailingTestsCount=1 >"$folder/log" 2>&1 || status=1
    row jedis "$jedis" "$folder/log" || status=1
    if [ "$seen" != "$lettuce" ]; then
        row lettuce "${lettuce%.RELEASE}" "$folder/log" || status=1
    fi
    seen=$lettuce
done
sort -V "$rows" >MATRIX.tsv
exit $status
