#!/usr/bin/env bash
# Builds the module for the machines that are not this one: one tarball for each target in dist/prebuilt of the target folder, checked, and
# loaded into a server where this machine can run one.
#
#   scripts/dist/prebuilt.sh [TARGET…]       TARGET as listed below; all of them when none is given
#
# The C compiler and the linker are zig's, which knows every version of glibc, and musl. It comes as a Python package, and stays in the
# target folder. What cannot be built is named, with the reason, and is no error; what is built and does not hold is one.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root" || exit 1
target=${CARGO_TARGET_DIR:-$root/target}
export REDIS_LOCK_SERVERS=${REDIS_LOCK_SERVERS:-$root/.servers}
tools=$target/tools/zig
# The oldest glibc: that of RHEL 7 and Debian 8.
glibc=2.17
all=(x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu x86_64-unknown-linux-musl aarch64-unknown-linux-musl)
chosen=("$@")
[ ${#chosen[@]} -gt 0 ] || chosen=("${all[@]}")

summary=()
failed=
report() { summary+=("$(printf '  %-28s %s' "$1" "${*:2}")"); }

get_zig() {
    [ -x "$tools/bin/cargo-zigbuild" ] && return 0
    rm -rf "$tools"
    python3 -m venv "$tools" && "$tools/bin/pip" install --quiet --disable-pip-version-check ziglang==0.17.1 cargo-zigbuild==0.24.0
}

# Whether rustc has the target's standard library, or rustup brings it.
get_std() {
    [ -e "$(rustc --print sysroot)/lib/rustlib/$1/lib" ] && return 0
    command -v rustup >/dev/null && timeout 300 rustup target add "$1" >/dev/null 2>&1
}

# The words of a module's file that have to be so: prints what is not.
faults() {
    local module=$1 triple=$2 needed newest
    needed=$(LC_ALL=C readelf --wide --dynamic "$module" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p')
    newest=$(scripts/dist/glibc.sh "$module")
    # Not grep -q: it would end before readelf has written all, and readelf then fails.
    LC_ALL=C readelf --wide --dyn-syms "$module" | grep ' RedisModule_OnLoad$' >/dev/null || echo "it has no RedisModule_OnLoad"
    case $triple in
        *-gnu)
            [ "$(printf '%s\n' "$glibc" "$newest" | sort -V | tail -n1)" = "$glibc" ] || echo "it needs glibc $newest"
            grep -vE '^(libc|libm|libdl|libpthread|librt|ld-linux-[a-z0-9_-]+)\.so' <<<"$needed" | sed 's/^/it needs /' ;;
        *-musl)
            [ -z "$newest" ] || echo "it needs glibc $newest"
            grep -vx 'libc.so' <<<"$needed" | sed 's/^/it needs /' ;;
    esac
}

build() {
    local triple=$1 module=$target/dist/prebuilt/$1/libredis_lock.so log=$target/dist/prebuilt/$1.log wrong tried
    [[ " ${all[*]} " == *" $triple "* ]] || { report "$triple" "FAILED: there are ${all[*]}"; failed=1; return; }
    get_std "$triple" || { report "$triple" "left out: rustc has no standard library for it (rustup target add $triple)"; return; }
    mkdir -p "$target/dist/prebuilt"
    PATH=$tools/bin:$PATH scripts/dist/dist.sh for "${triple/%-gnu/-gnu.$glibc}" >"$log" 2>&1 || {
        tail -n 20 "$log" >&2
        report "$triple" "FAILED to build: $log"
        failed=1
        return
    }
    wrong=$(faults "$module" "$triple")
    [ -z "$wrong" ] || { report "$triple" "FAILED: ${wrong//$'\n'/, }"; failed=1; return; }
    tried=$(scripts/dist/load-elsewhere.sh "$triple" "$module" 2>>"$log")
    case $? in
        0) report "$triple" "built, $(libc_of "$triple" "$module"); $tried" ;;
        2) report "$triple" "built, $(libc_of "$triple" "$module"); NOT loaded: $tried" ;;
        *) tail -n 20 "$log" >&2; report "$triple" "FAILED to load: $tried"; failed=1 ;;
    esac
}

libc_of() {
    case $1 in
        *-gnu) echo "glibc $(scripts/dist/glibc.sh "$2") or later" ;;
        *) echo "musl" ;;
    esac
}

if get_zig; then
    rm -f "$target/dist/prebuilt"/*.tar.gz "$target/dist/prebuilt/SHA256SUMS"
    for triple in "${chosen[@]}"; do
        echo "== prebuilt: $triple"
        build "$triple"
    done
    (cd "$target/dist/prebuilt" && compgen -G '*.tar.gz' >/dev/null && sha256sum -- *.tar.gz >SHA256SUMS && cat SHA256SUMS)
else
    for triple in "${chosen[@]}"; do report "$triple" "left out: pip could not install ziglang and cargo-zigbuild"; done
fi
echo "== prebuilt modules, in $target/dist/prebuilt"
printf '%s\n' "${summary[@]}"
[ -z "$failed" ]
