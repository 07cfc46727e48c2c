#!/usr/bin/env bash
# Makes the Debian package out of the same build as the tarballs: dist/redis-lock_VERSION_ARCHITECTURE.deb in the target folder.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
umask 022
dist=${CARGO_TARGET_DIR:-$root/target}/dist
tools=${CARGO_TARGET_DIR:-$root/target}/tools
# Debian has no package of it; this version is built once, beside the project's own builds.
cargo_deb=3.8.0

scripts/dist/dist.sh stage

[ "$("$tools/bin/cargo-deb" --version 2>/dev/null)" = "cargo-deb $cargo_deb" ] || {
    echo "deb: building cargo-deb $cargo_deb"
    # It runs for a second, so it need not be fast.
    CARGO_TARGET_DIR=$tools/build CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off \
        cargo install cargo-deb --version "$cargo_deb" --locked --quiet --root "$tools"
    rm -rf "$tools/build"
}

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
# The settings as in redis.conf.example, from its first section on; only what is the module's own is in force.
{
    cat packaging/deb/redis-lock.conf.head
    sed -e '1,/^$/{/^$/!d}' -e 's|/usr/local/lib/redis/|/usr/lib/redis/|' -e '/^\(#\|loadmodule \|lock\.\|$\)/!s/^/#/' redis.conf.example
} >"$made/redis-lock.conf"

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
rm -f "$dist"/*.deb
CARGO_TARGET_DIR=$dist/build "$tools/bin/cargo-deb" deb --no-build --locked --output "$dist/"
