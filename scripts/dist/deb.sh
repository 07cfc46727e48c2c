#!/usr/bin/env bash
# Makes the Debian package out of the build of the tarballs: dist/*.deb in the target folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
umask 022
dist=${CARGO_TARGET_DIR:-$PWD/target}/dist
tools=${CARGO_TARGET_DIR:-$PWD/target}/tools
scripts/dist/dist.sh stage
# Debian has no package of it. It runs for a second, so it need not be fast.
[ -x "$tools/bin/cargo-deb" ] || CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off \
    cargo install cargo-deb --version 3.8.0 --locked --quiet --root "$tools"

# What Cargo.toml names by target/release/deb.
made=$dist/build/release/deb
rm -rf "$made"
scripts/dist/documents.sh "$made/doc"
# Debian has the licences and names the changelog in its own way.
rm "$made"/doc/LICENSE-* "$made/doc/CHANGELOG.md"
find "$made/doc" -name '*.md' -exec sed -i 's|\(](\(\.\./\)*\)CHANGELOG\.md|\1changelog.gz|g' {} +
sed -i 's|/usr/local/lib/redis/|/usr/lib/redis/|' "$made/doc/redis.conf.example"
gzip -9 --no-name <CHANGELOG.md >"$made/doc/changelog.gz"
for notices in NOTICES NOTICES.locktop; do gzip -9 --no-name <"$dist/stage/$notices" >"$made/doc/$notices.gz"; done
gzip -9 --no-name <packaging/deb/locktop.1 >"$made/locktop.1.gz"
# The settings of redis.conf.example; only what is the module's own is in force.
{
    cat packaging/deb/redis-lock.conf.head
    sed -e '1,/^$/{/^$/!d}' -e 's|/usr/local/lib/redis/|/usr/lib/redis/|' -e '/^\(#\|loadmodule \|lock\.\|$\)/!s/^/#/' redis.conf.example
} >"$made/redis-lock.conf"

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
rm -f "$dist"/*.deb
CARGO_TARGET_DIR=$dist/build "$tools/bin/cargo-deb" deb --no-build --locked --output "$dist/"
