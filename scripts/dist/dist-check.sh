#!/usr/bin/env bash
# Builds the release once more, from a clone in another folder and with another home of cargo, and compares it with what `make dist`
# has just made, byte for byte.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
dist=${CARGO_TARGET_DIR:-$root/target}/dist

fail() { echo "dist-check: $*" >&2; exit 1; }

[ -f "$dist/SHA256SUMS" ] || fail "there is nothing to compare with: run 'make dist'"
grep -qF "commit: $(git rev-parse HEAD)" "$dist/stage/BUILDINFO" || fail "$dist is of another commit: run 'make dist'"
! grep -q -- -dirty "$dist/stage/BUILDINFO" || fail "there are changes that are not committed: a clone does not have them"

dead=$(scripts/check/links.sh "$dist/stage")
[ -z "$dead" ] || fail "links that lead nowhere:"$'\n'"$dead"

temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
# Longer and deeper than any checkout, in case only lengths differ.
other=$temp/somewhere/else/entirely/with-another-name
git clone --quiet --no-hardlinks "$root" "$other"
git -C "$other" checkout --quiet --detach "$(git rev-parse HEAD)"
# The crates need not be fetched again to be elsewhere.
mkdir -p "$temp/cargo-home"
for entry in "${CARGO_HOME:-$HOME/.cargo}"/*; do ln -s "$entry" "$temp/cargo-home/"; done

env -u SOURCE_DATE_EPOCH CARGO_HOME="$temp/cargo-home" CARGO_TARGET_DIR="$temp/target" "$other/scripts/dist/dist.sh" >"$temp/log" 2>&1 || {
    cat "$temp/log" >&2
    fail "the second build failed"
}

diff "$dist/SHA256SUMS" "$temp/target/dist/SHA256SUMS" || {
    diff --brief --recursive "$dist/stage" "$temp/target/dist/stage" >&2 || true
    fail "two builds, two results"
}
(cd "$dist" && sha256sum --quiet --check SHA256SUMS) || fail "a tarball is not what SHA256SUMS says"
echo "dist-check: $(wc -l <"$dist/SHA256SUMS") tarballs, two builds in two folders, one checksum each"
