#!/usr/bin/env bash
# Checks the language of the documents: the length of sentences, the passive, words and subjects that read as translated.
#
#   scripts/check/prose.sh            fails if a document has more findings of a rule than prose/counts.tsv allows
#   scripts/check/prose.sh write      writes the counts of today: after an improvement, never to let something pass
#   scripts/check/prose.sh list FILE… shows the findings of some files
#
# The linter is vale; its rules are in prose/styles. Counts may fall and not rise, so nobody has to mend a whole page at once.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
version=v3.21.0
vale=.tools/vale-$version/vale
rules=scripts/check/prose
counts=$rules/counts.tsv

if [ ! -x "$vale" ]; then
    scripts/setup/languages/go.sh
    echo "prose: building vale $version"
    log=$(mktemp)
    # A Go that is older than vale asks for fetches the one that it needs.
    GOBIN=$PWD/.tools/vale-$version GOTOOLCHAIN=auto GOFLAGS=-modcacherw "$(scripts/setup/languages/go.sh where)" \
        install "github.com/vale-cli/vale/v3/cmd/vale@$version" 2>"$log" || { cat "$log" >&2; exit 1; }
    rm -f "$log"
fi

documents() { git ls-files -- '*.md' ':!*/PEER-SUITE.md'; }

findings() { "$vale" --config "$rules/vale.ini" --no-exit --output line "$@"; }

if [ "${1:-}" = list ]; then
    findings "${@:2}"
    exit
fi

# Document, rule, number.
now() {
    documents | xargs "$vale" --config "$rules/vale.ini" --no-exit --output line |
        awk -F: '{ count[$1 "\t" $4]++ } END { for (each in count) print each "\t" count[each] }' | sort
}

if [ "${1:-}" = write ]; then
    now >"$counts"
    exit
fi

now | awk -F'\t' '
    NR == FNR { allowed[$1 "\t" $2] = $3; next }
    { total++; sum += $3 }
    $3 > allowed[$1 "\t" $2] + 0 {
        printf "prose: %s has %d findings of %s, and may have %d\n", $1, $3, $2, allowed[$1 "\t" $2]
        bad = 1
    }
    END {
        if (bad) print "prose: scripts/check/prose.sh list FILE shows them"
        else printf "prose: %d findings, none of them new\n", sum
        exit bad
    }
' "$counts" -
