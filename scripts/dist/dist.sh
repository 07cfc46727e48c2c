#!/usr/bin/env bash
# Builds what is released, so that the same commit and tools give the same bytes in any folder at
# any time, and packs it:
#
#   scripts/dist/dist.sh stage       what the packages hold, in dist/stage of the target folder
#   scripts/dist/dist.sh             that, and the tarballs with their checksums, in dist
#   scripts/dist/dist.sh for TARGET  the tarballs for a target of rustc, which may have its oldest
#                                    glibc behind it, by zig, in dist/prebuilt
#
# What may differ between two machines and shows in the bytes is in BUILDINFO: the compilers.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
umask 022
export LC_ALL=C TZ=UTC
# A build of its own: with the flags of another one all would be built anew each time.
target=${CARGO_TARGET_DIR:-$root/target}
dist=$(mkdir -p "$target/dist" && cd "$target/dist" && pwd)
stage=$dist/stage
triple=
name=redis-lock
version=$(sed -nE 's/^version *= *"(.*)"/\1/p;T;q' Cargo.toml)

fail() { echo "dist: $*" >&2; exit 1; }

# A repository around an unpacked source is another one.
export GIT_CEILING_DIRECTORIES=${root%/*}
# Every time that is written down is that of the commit.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)} ||
    fail "this is no checkout of git, so SOURCE_DATE_EPOCH has to say when the source was made"
export SOURCE_DATE_EPOCH
commit=$(git describe --always --abbrev=40 --exclude '*' --dirty 2>/dev/null || echo unknown)
[[ $commit != *-dirty ]] || echo "dist: there are changes that are not committed: nobody else can build these bytes" >&2

# The folders of this machine that would be in messages of panics, each with another name.
remaps() {
    # Where cargo keeps the crates: its home, or a folder of vendored ones.
    cargo metadata --locked --format-version 1 | python3 -c '
import json, os, sys
folders = {os.path.dirname(os.path.dirname(p["manifest_path"])) for p in json.load(sys.stdin)["packages"] if p["source"]}
print("\n".join(f"{folder}=/crates" for folder in sorted(folders)))'
    echo "$(rustc --print sysroot)/lib/rustlib/src/rust=/rustc/$(rustc -vV | sed -n 's/^commit-hash: //p')"
    printf '%s\n' "$dist/build=/target" "$root=/$name"
}

# build FLAG… -- ARGUMENT…: by cargo with these arguments, and with these flags of rustc.
build() {
    local flags=() remap how=(build)
    while [ "$1" != -- ]; do flags+=("$1"); shift; done
    while read -r remap; do flags+=("--remap-path-prefix=$remap"); done < <(remaps)
    [ -z "$triple" ] || how=(zigbuild --target "$triple")
    # What the environment would add to the compilers' flags is not part of the release. zig names
    # its own files from the folder that it runs in, where they are below it, and libclang then
    # looks for them from another one: hence a folder that does not hold them.
    (
        [ -z "$triple" ] || cd "$dist"
        env -u RUSTFLAGS -u CFLAGS -u CPPFLAGS CARGO_TARGET_DIR="$dist/build" CARGO_INCREMENTAL=0 \
            CARGO_ENCODED_RUSTFLAGS="$(IFS=$'\x1f'; echo "${flags[*]}")" cargo "${how[@]}" --release --locked "${@:2}"
    )
}

stage() {
    local module=() built path
    # A library uses the C library of its program. On musl rustc would build a copy into it.
    [[ $triple != *-musl ]] || module=(-C target-feature=-crt-static)
    build "${module[@]}" -- --manifest-path "$root/Cargo.toml" --lib
    build -- --manifest-path "$root/clients/locktop/Cargo.toml"
    rm -rf "$stage"
    scripts/dist/documents.sh "$stage"
    # The folder of a target does not name the version of glibc.
    built=$dist/build/${triple:+${triple%%.*}/}release
    install -m 755 "$built/libredis_lock.so" "$built/locktop" "$stage/"
    # A path of this machine would be another one on the next machine.
    for path in "$root" "$dist" "${CARGO_HOME:-$HOME/.cargo}" "${RUSTUP_HOME:-$HOME/.rustup}"; do
        ! grep -lF "$path/" "$stage/libredis_lock.so" "$stage/locktop" || fail "it holds the path $path"
    done
    scripts/dist/notices.sh check
    install -m 644 packaging/NOTICES packaging/NOTICES.locktop "$stage/"
    {
        printf '%s\n' "$name $version" "commit: $commit" "SOURCE_DATE_EPOCH: $SOURCE_DATE_EPOCH" "$(rustc -vV)"
        if [ -n "$triple" ]; then echo "target: $triple, cc: zig $(python-zig version)"; else echo "cc: $(cc --version | head -n1)"; fi
    } >"$stage/BUILDINFO"
}

# pack FOLDER INTO FILE…: files of the stage in one order, of one owner and time.
pack() {
    tar --create --format=gnu --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        --directory="$stage" --transform="s|^\.|$1|" "${@:3}" | gzip -9 --no-name >"$2"
}

if [ "${1:-}" = for ]; then
    triple=$2
    short=${triple%%.*}
    stage=$dist/prebuilt/$short
    stage
    folder=$name-$version-${short/-unknown/}
    pack "$folder" "$dist/prebuilt/$folder.tar.gz" ./
    # That of musl is static, so it runs on every Linux of the machine.
    if [[ $triple == *-musl ]]; then
        folder=locktop-$version-${triple%%-*}-linux
        pack "$folder" "$dist/prebuilt/$folder.tar.gz" ./locktop ./LICENSE-MIT ./LICENSE-APACHE ./NOTICES.locktop
    fi
    exit
fi
stage
[ "${1:-}" != stage ] || exit 0
rm -f "$dist"/*.tar.gz "$dist/SHA256SUMS"
folder=$name-$version-$(uname -m)-linux
pack "$folder" "$dist/$folder.tar.gz" ./
# The source, too, where there is one to tell it from what else lies about.
[ "$commit" = unknown ] || git archive --format=tar --prefix="$name-$version/" HEAD | gzip -9 --no-name >"$dist/$name-$version.tar.gz"
(cd "$dist" && sha256sum -- *.tar.gz | tee SHA256SUMS)
