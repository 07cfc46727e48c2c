#!/usr/bin/env bash
# Builds the module for other machines: one tarball for each target in dist/prebuilt of the target
# folder, checked, and loaded into a server where this machine can run one. A target without a
# standard library of rustc is named and left out.
#
#   scripts/dist/prebuilt.sh [TARGET…]       all of them when none is given
#
# The C compiler and the linker are zig's, which knows every version of glibc, and musl.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
into=${CARGO_TARGET_DIR:-$PWD/target}/dist/prebuilt
# The oldest glibc: that of RHEL 7 and Debian 8.
glibc=2.17
[ $# -gt 0 ] || set -- x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu x86_64-unknown-linux-musl aarch64-unknown-linux-musl
scripts/setup/languages/python.sh .tools/zig ziglang==0.17.1 cargo-zigbuild==0.24.0
export PATH=$PWD/.tools/zig/bin:$PATH LC_ALL=C

# Prints what the module $1 for the target $2 must not have, or lacks.
faults() {
    local newest libraries='libc.so'
    newest=$(readelf --wide --dyn-syms "$1" | { grep -oE '@GLIBC_[0-9.]+' || true; } | cut -d_ -f2 | sort -Vu | tail -n1)
    # Not grep -q: it would end before readelf has written all, and readelf then fails.
    readelf --wide --dyn-syms "$1" | grep ' RedisModule_OnLoad$' >/dev/null || echo "it has no RedisModule_OnLoad"
    [[ $2 != *-gnu ]] || libraries='(libc|libm|libdl|libpthread|librt|ld-linux-[a-z0-9_-]+)\.so.*'
    readelf --wide --dynamic "$1" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/it needs \1/p' | grep -vxE "it needs $libraries" || true
    [ "$(printf '%s\n' "$glibc" "$newest" | sort -V | tail -n1)" = "$glibc" ] || echo "it needs glibc $newest"
}

rm -f "$into"/*.tar.gz
summary=()
for triple; do
    echo "== prebuilt: $triple"
    [ -e "$(rustc --print sysroot)/lib/rustlib/$triple/lib" ] || rustup target add "$triple" || {
        summary+=("$triple: left out: rustc has no standard library for it")
        continue
    }
    scripts/dist/dist.sh for "${triple/%-gnu/-gnu.$glibc}"
    wrong=$(faults "$into/$triple/libredis_lock.so" "$triple")
    [ -z "$wrong" ] || { echo "prebuilt: $triple: $wrong" >&2; exit 1; }
    status=0
    tried=$(scripts/dist/load-elsewhere.sh "$triple" "$into/$triple/libredis_lock.so") || status=$?
    [[ $status == [02] ]] || { echo "prebuilt: $triple: it does not load: $tried" >&2; exit 1; }
    summary+=("$triple: $tried")
done
(cd "$into" && sha256sum -- *.tar.gz | tee SHA256SUMS)
printf '%s\n' "${summary[@]}"
