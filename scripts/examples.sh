#!/usr/bin/env bash
# Sets up and tests what is written in other languages: examples/LANG and clients/LANG. With Rust comes clients/locktop.
#
#   scripts/examples.sh setup|test|matrix
#
#   EXAMPLES=python,go    only these
#   PRESENT_ONLY=1        leave out what the machine has no toolchain for, instead of installing it
#
# Each folder has a Makefile that knows its language: `setup` installs what is missing, toolchain and packages, and
# does nothing when all is there; in clients/LANG, `check` is the language's own lints and types, where it has any
# beside its compiler, `test` runs the tests, and `matrix` runs them with each version of the libraries that the client
# allows. Those of the examples are tests/examples. In the end the clients of
# all languages take one lock in turns.
set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
. scripts/setup/apt.sh
# Where setup puts a Node.js, if Debian's is too old.
export PATH=$PWD/.tools/node/bin:$PATH
# Those whose tests take the longest come first.
all=(rust go node java python)
chosen=("${all[@]}")
[ -z "${EXAMPLES:-}" ] || IFS=', ' read -ra chosen <<<"$EXAMPLES"
for language in "${chosen[@]}"; do
    [[ " ${all[*]} " == *" $language "* ]] || { echo "examples: there is no $language; there are: ${all[*]}" >&2; exit 1; }
done

# Whether the toolchain is there, and new enough; as in scripts/setup/languages/.
present() {
    case $1 in
        python) python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' ;;
        node) command -v npm && node -e 'process.exit(process.versions.node.split(".")[0] < 20 ? 1 : 0)' ;;
        go) scripts/setup/languages/go.sh where ;;
        java) command -v mvn && javac -version && [ "$(javac -version 2>&1 | sed -E 's/^javac ([0-9]+).*/\1/')" -ge 17 ] ;;
        rust) at_least "$(cargo --version | awk '{ print $2 }')" "$(sed -nE 's/^rust-version *= *"([0-9.]+)".*/\1/p' clients/rust/Cargo.toml)" ;;
    esac >/dev/null 2>&1
}

# The folders of language $1 that are there.
folders() {
    local folder more=()
    [ "$1" != rust ] || more=(clients/locktop)
    for folder in "examples/$1" "clients/$1" "${more[@]}"; do
        [ ! -e "$folder/Makefile" ] || echo "$folder"
    done
}

ready=()
# What each language did: its output, what there is to report, and whether it is ready or has failed.
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
log=$out/log

# report LANGUAGE TEXT…
report() { printf '  %-8s %s\n' "$1" "${*:2}" >>"$out/$1.report"; }

# fail LANGUAGE TEXT…
fail() {
    touch "$out/$1.failed"
    report "$@"
}

set_up() {
    local folder
    for folder in $(folders "$1"); do
        echo "== $folder: setup"
        make -C "$folder" setup || return 1
    done
}

# Shows the tests' output as it comes, and keeps it to be quoted.
shown() { "$@" 2>&1 | tee "$log"; }

# attempt TEST LANGUAGE FOLDER: runs one of the tests below. Many run at once, with tests of many waiters and of
# timeouts among them, and a machine may stand still for a moment. So what fails runs once more, alone, when the
# others have ended. A second failure counts.
attempt() { "$@" || echo "$*" >>"$out/again"; }

attempt_again() {
    local test
    while read -ra test <&3; do
        echo "== once more, alone: ${test[*]:2}"
        # With AGAIN, a Makefile may run only what has failed.
        AGAIN=1 "${test[@]}" || fail "${test[1]}" "${test[*]:2}: FAILED"
    done 3< <(cat "$out/again" 2>/dev/null)
}

# passed LANGUAGE TEXT…
passed() { report "$1" "${*:2}${AGAIN:+, in the second run}"; }

test_examples() {
    echo "== $2"
    EXAMPLES_REQUIRED=$1 shown cargo test --locked --quiet --test examples -- --test-threads 4 "$1_" &&
        passed "$1" "$2: $(sed -nE 's/^test result: ok\. ([0-9]+) passed.*/\1 tests passed/p' "$log")"
}

test_client() {
    echo "== $2"
    # How a language's runner counts is its own affair.
    shown make -C "$2" test && passed "$1" "$2: tests passed"
}

# The tutorial in language $1.
test_tutorial() {
    echo "== tutorial: $1"
    shown scripts/check/tutorials.sh "$1" && passed "$1" "$2: played"
}

# The lints of a client, where it has any.
check_client() {
    if grep -q '^check:' "$2/Makefile"; then
        echo "== $2: lints"
        make -C "$2" check || fail "$1" "$2: lints FAILED"
    fi
}

# Each version that the client in language $1 allows.
test_matrix() {
    if ! grep -q '^matrix:' "clients/$1/Makefile"; then
        report "$1" "clients/$1: left out: it has no target matrix"
        return
    fi
    echo "== clients/$1: matrix"
    if shown make -C "clients/$1" matrix; then
        report "$1" "clients/$1: $(grep -c . "clients/$1/MATRIX.tsv") rows of versions passed"
    else
        fail "$1" "clients/$1: matrix FAILED"
    fi
}

# All languages that are ready, on one lock, and the overselling demonstration.
test_mixed() {
    echo "== clients of $2 together"
    EXAMPLES_REQUIRED=$2 shown cargo test --locked --quiet --test examples -- --nocapture mixed:: oversell:: &&
        passed together "$(sed -nE 's/^[.]*([0-9]+ grants in order: .*)/\1/p' "$log")"
}

what=${1:-}
[[ $what == setup || $what == test || $what == matrix ]] || { echo "usage: scripts/examples.sh setup|test|matrix" >&2; exit 1; }

# Sets up, one after the other, because they share the system's packages. Whoever is left is not ready.
for language in "${chosen[@]}"; do
    if [ -z "$(folders "$language")" ]; then
        report "$language" "left out: there is no examples/$language"
    elif [ -n "${PRESENT_ONLY:-}" ] && ! present "$language"; then
        report "$language" "left out: its toolchain is not on this machine, or too old"
    elif ! set_up "$language"; then
        fail "$language" "FAILED to be set up"
    else
        ready+=("$language")
    fi
done

# test_language LANGUAGE: all of it.
test_language() {
    local folder log=$out/$1.log begun=$SECONDS
    [ ! -e "examples/$1/run" ] || attempt test_examples "$1" "examples/$1"
    for folder in $(folders "$1"); do
        [[ $folder == clients/* ]] || continue
        check_client "$1" "$folder"
        attempt test_client "$1" "$folder"
    done
    attempt test_tutorial "$1" docs/START.md
    report "$1" "$((SECONDS - begun)) s in all"
}

# They mostly wait for servers, so three languages are tested at one time. Each shows its output when it ends.
test_languages() {
    local language
    for language in "${ready[@]}"; do
        while [ "$(jobs -rp | wc -l)" -ge 3 ]; do wait -n; done
        (
            test_language "$language" >"$out/$language.out" 2>&1
            cat "$out/$language.out"
        ) &
    done
    wait
}

case $what in
    setup)
        for language in "${ready[@]}"; do report "$language" "ready"; done
        ;;
    matrix)
        for language in "${ready[@]}"; do
            [ ! -e "clients/$language/Makefile" ] || test_matrix "$language"
        done
        scripts/matrix.py
        ;;
    test)
        test_languages
        [ ${#ready[@]} = 0 ] || attempt test_mixed together "$(IFS=,; echo "${ready[*]}")"
        attempt_again
        ;;
esac

echo "== examples and clients: $what"
for name in "${chosen[@]}" together; do
    [ ! -e "$out/$name.report" ] || cat "$out/$name.report"
done
! compgen -G "$out/*.failed" >/dev/null
