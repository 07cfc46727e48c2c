#!/usr/bin/env bash
# Builds the release once more, from a clone in another folder and with another home of cargo, and
# compares it with what `make dist` has just made, byte for byte.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
dist=${CARGO_TARGET_DIR:-$PWD/target}/dist
grep -qxF "commit: $(git rev-parse HEAD)" "$dist/stage/BUILDINFO" || { echo "dist-check: $dist is not of this commit: run 'make dist'" >&2; exit 1; }

temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
# Longer and deeper than any checkout, in case only lengths differ.
other=$temp/somewhere/else/entirely/with-another-name
git clone --quiet --no-hardlinks . "$other"
git -C "$other" checkout --quiet --detach "$(git rev-parse HEAD)"
# The crates need not be fetched again to be elsewhere.
mkdir -p "$temp/cargo-home"
for entry in "${CARGO_HOME:-$HOME/.cargo}"/*; do ln -s "$entry" "$temp/cargo-home/"; done
env -u SOURCE_DATE_EPOCH CARGO_HOME="$temp/cargo-home" CARGO_TARGET_DIR="$temp/target" "$other/scripts/dist/dist.sh"
diff "$dist/SHA256SUMS" "$temp/target/dist/SHA256SUMS" || {
    diff --brief --recursive "$dist/stage" "$temp/target/dist/stage" >&2
    exit 1
}
echo "dist-check: two builds in two folders, one checksum for each tarball"
