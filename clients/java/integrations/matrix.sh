#!/usr/bin/env bash
# Runs the tests on older and newer libraries, with the classes that were compiled for the newest ones: an application gets
# those classes, too. Prints and keeps one line per row, and fails when a row does: LANG library version passed failed skipped.
#
#   ROWS=spring-boot-3    only those whose name begins so; MATRIX.tsv stays as it is
set -uo pipefail
cd "$(dirname "$0")"
mkdir -p target
rows=target/matrix.tsv
: >"$rows"
ended=0

# A row: library, version, modules, the versions for Maven.
row() {
    local library=$1 version=$2 modules=$3
    shift 3
    [[ $library-$version == "${ROWS:-}"* ]] || return 0
    local log=target/matrix-$library-$version.log
    rm -rf ./*/target/surefire-reports examples/*/target/surefire-reports
    $MVN -pl "$modules" -fae surefire:test "$@" >"$log" 2>&1 || ended=1
    # Each suite's line: tests, errors, skipped, failures.
    find . -path '*/surefire-reports/TEST-*.xml' -exec grep -h -m 1 '<testsuite ' {} + |
        awk -v OFS='\t' -v library="$library" -v version="$version" '
            function of(name) { return match($0, " " name "=\"[0-9]+\"") ? substr($0, RSTART + length(name) + 3) + 0 : 0 }
            { tests += of("tests"); failed += of("errors") + of("failures"); skipped += of("skipped") }
            END { print "java", library, version, tests - failed - skipped, failed + (tests == 0), skipped }' |
        tee -a "$rows"
}

spring=redis-lock-spring-boot-starter,examples/once-per-tick,examples/guarded-stock
row shedlock 5.16.0 redis-lock-shedlock -Dshedlock.version=5.16.0
row shedlock 6.10.0 redis-lock-shedlock -Dshedlock.version=6.10.0
row shedlock 7.10.1 redis-lock-shedlock -Dshedlock.version=7.10.1
# Jedis, Lettuce, Spring Data Redis and Spring Integration are those that the Spring Boot names.
row spring-boot 3.3.13 $spring -Dspring-boot.version=3.3.13 -Dshedlock.version=5.16.0
row spring-boot 3.5.16 $spring -Dspring-boot.version=3.5.16 -Dshedlock.version=6.10.0
row spring-boot 4.0.9 $spring -Dspring-boot.version=4.0.9
row spring-boot 4.1.2 $spring -Dspring-boot.version=4.1.2

awk -F '\t' '$5 > 0 { failed = 1 } END { exit failed }' "$rows" || ended=1
[ -n "${ROWS:-}" ] || mv "$rows" MATRIX.tsv
[ $ended = 0 ] || echo "a row has failed: see target/matrix-*.log" >&2
exit $ended
