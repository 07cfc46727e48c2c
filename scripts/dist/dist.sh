#!/usr/bin/env bash
# Builds what is released, so that the same commit and tools give the same bytes in any folder at any time, and packs it:
#
#   scripts/dist/dist.sh stage       what the packages hold, in dist/stage of the target folder
#   scripts/dist/dist.sh             that, and the tarballs with their checksums, in dist
#   scripts/dist/dist.sh for TARGET  the tarballs for a target of rustc, x86_64-unknown-linux-musl or with the oldest glibc that it shall
#                                    run on behind it, by the C compiler of zig, in dist/prebuilt (scripts/dist/prebuilt.sh)
#
# What may differ between two machines and shows in the bytes is in BUILDINFO: the compilers.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
umask 022
export LC_ALL=C TZ=UTC
# A build of its own: its flags are not those of `make build`, which would otherwise build all anew each time.
target=${CARGO_TARGET_DIR:-$root/target}
dist=$(mkdir -p "$target/dist" && cd "$target/dist" && pwd)
stage=$dist/stage
triple=
name=$(sed -nE 's/^name *= *"(.*)"/\1/p;T;q' Cargo.toml)
version=$(sed -nE 's/^version *= *"(.*)"/\1/p;T;q' Cargo.toml)

fail() { echo "dist: $*" >&2; exit 1; }

is_checkout() { [ "$(git rev-parse --show-toplevel 2>/dev/null)" = "$root" ]; }

# Every time that is written down is that of the commit.
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    is_checkout || fail "this is no checkout of git, so SOURCE_DATE_EPOCH has to say when the source was made"
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
fi
export SOURCE_DATE_EPOCH
commit=unknown
if is_checkout; then
    commit=$(git rev-parse HEAD)
    [ -z "$(git status --porcelain --untracked-files=no)" ] || {
        commit+=-dirty
        echo "dist: there are changes that are not committed: nobody else can build these bytes" >&2
    }
fi

# The folders of this machine that would stand in messages of panics, each with the name that takes its place.
remaps() {
    local sysroot hash
    # Where cargo keeps the crates: its home, or a folder of vendored ones.
    cargo metadata --locked --format-version 1 | python3 -c '
import json, os, sys
folders = {os.path.dirname(os.path.dirname(p["manifest_path"])) for p in json.load(sys.stdin)["packages"] if p["source"]}
print("\n".join(f"{folder}=/crates" for folder in sorted(folders)))'
    sysroot=$(rustc --print sysroot)
    hash=$(rustc -vV | sed -n 's/^commit-hash: //p')
    printf '%s\n' "$sysroot/lib/rustlib/src/rust=/rustc/$hash" "$dist/build=/target" "$root=/$name"
}

# build FLAG… -- ARGUMENT…: by cargo with these arguments, and with these flags of rustc.
build() {
    local flags=() remap how=(build)
    while [ "$1" != -- ]; do flags+=("$1"); shift; done
    shift
    while read -r remap; do flags+=("--remap-path-prefix=$remap"); done < <(remaps)
    [ -z "$triple" ] || how=(zigbuild --target "$triple")
    # What the environment would add to the compilers' flags is not part of the release. zig names its own files from the folder that it
    # runs in, where they are below it, and libclang then looks for them from another one: hence a folder that does not hold them.
    [ -z "$triple" ] || cd "$dist"
    env -u RUSTFLAGS -u CFLAGS -u CPPFLAGS CARGO_TARGET_DIR="$dist/build" CARGO_INCREMENTAL=0 \
        CARGO_ENCODED_RUSTFLAGS="$(IFS=$'\x1f'; echo "${flags[*]}")" \
        cargo "${how[@]}" --release --locked "$@"
    cd "$root"
}

# A path of this machine in the module would be another one on the next machine.
assert_no_paths() {
    local path
    for path in "$root" "$dist" "${CARGO_HOME:-$HOME/.cargo}" "${RUSTUP_HOME:-$HOME/.rustup}"; do
        ! grep -qF "$path/" "$1" || fail "$1 holds the path $path"
    done
}

compilers() {
    local glibc
    glibc=$(scripts/dist/glibc.sh "$stage/libredis_lock.so")
    if [ -n "$triple" ]; then
        echo "target: $triple"
        echo "cc: zig $(python-zig version)"
    else
        echo "cc: $(cc --version | head -n1)"
    fi
    echo "glibc needed: ${glibc:-none}"
}

stage() {
    local module=() built
    cargo fetch --locked --quiet
    # A library that is loaded uses the C library of its program. On musl rustc would build a copy into it.
    [[ $triple != *-musl ]] || module=(-C target-feature=-crt-static)
    build "${module[@]}" -- --manifest-path "$root/Cargo.toml" --lib
    build -- --manifest-path "$root/clients/locktop/Cargo.toml"
    rm -rf "$stage"
    scripts/dist/documents.sh "$stage"
    # The folder of a target does not name the version of glibc.
    built=$dist/build/${triple:+${triple%%.*}/}release
    install -m 755 "$built/libredis_lock.so" "$built/locktop" "$stage/"
    assert_no_paths "$stage/libredis_lock.so"
    assert_no_paths "$stage/locktop"
    scripts/dist/notices.sh check
    install -m 644 packaging/NOTICES packaging/NOTICES.locktop "$stage/"
    cat >"$stage/BUILDINFO" <<INFO
$name $version
commit: $commit
SOURCE_DATE_EPOCH: $SOURCE_DATE_EPOCH
$(rustc -vV)
$(compilers)
INFO
    chmod 644 "$stage/BUILDINFO"
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
! is_checkout || git archive --format=tar --prefix="$name-$version/" HEAD | gzip -9 --no-name >"$dist/$name-$version.tar.gz"
(cd "$dist" && sha256sum -- *.tar.gz >SHA256SUMS && cat SHA256SUMS)
echo "dist: in $dist"
