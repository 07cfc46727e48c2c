#!/usr/bin/env bash
# Loads a module that was built for the target $1, $2, into a server of that target, and takes a
# lock by it. Prints what was done and ends with 0; where this machine cannot run one, prints why
# and ends with 2.
#
# glibc on x86_64: the servers of the tests. glibc on aarch64: Debian's packages for arm64, run by
# qemu. musl: Redis compiled from Debian's source by zig, once, into the target folder. Programs and
# libraries are unpacked and never installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
triple=$1 module=$(realpath "$2") machine=${1%%-*}
place=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}/tools/elsewhere/$triple")
. scripts/setup/apt.sh
. scripts/server.sh
architecture=amd64
[ "$machine" != aarch64 ] || architecture=arm64

cannot() { echo "$*"; exit 2; }

# What runs a program of the target on this machine: nothing, or qemu.
run=()
if [ "$machine" != "$(uname -m)" ]; then
    command -v "qemu-$machine-static" >/dev/null || cannot "NOT loaded: there is no qemu-$machine-static (Debian: qemu-user-static)"
    run=("qemu-$machine-static" -L "$place/root")
fi

# take PACKAGE…: of the target's machine, into the root of the place.
take() {
    apt_for=$architecture private_apt "$place/apt" bookworm
    unpack "$place/debs" "$place/root" "$@"
}

redis_of_debian() {
    take redis-tools redis-server libc6 libgcc-s1 libatomic1 libjemalloc2 liblzf1 libssl3 libstdc++6 libsystemd0 \
        libcap2 libgcrypt20 libgpg-error0 liblz4-1 liblzma5 libzstd1
    # The server is a link to its checker, of an absolute path.
    cp -L "$place/root/usr/bin/redis-check-rdb" "$place/server"
}

redis_by_zig() {
    # The loader, which is all of the C library.
    take musl
    apt_kind=deb-src private_apt "$place/apt-source" bookworm
    (mkdir "$place/source" && cd "$place/source" && apt-get "${apt[@]}" source --download-only redis && tar -xf redis_*.orig.tar.gz)
    # A program without a dynamic loader could not load a module.
    printf '#!/bin/sh\nexec python-zig cc -target %s-linux-musl -dynamic -w "$@"\n' "$machine" >"$place/cc"
    printf '#!/bin/sh\nexec python-zig ar "$@"\n' >"$place/ar"
    printf '#!/bin/sh\nexec python-zig ranlib "$@"\n' >"$place/ranlib"
    chmod +x "$place"/{cc,ar,ranlib}
    make -C "$place"/source/redis-*/src redis-server MALLOC=libc OPT=-O1 USE_SYSTEMD=no BUILD_TLS=no \
        CC="$place/cc" AR="$place/ar" RANLIB="$place/ranlib"
    cp "$place"/source/redis-*/src/redis-server "$place/server"
    rm -rf "$place/source"
}

case $triple in
    "$(uname -m)"-*-gnu) line=("${server_cli%redis-cli}redis-server") provide=: ;;
    *-gnu) line=("${run[@]}" "$place/server") provide=redis_of_debian ;;
    # The path of the loader in the program is that of a machine with musl.
    *-musl) line=("${run[@]}" "$place/root/lib/ld-musl-$machine.so.1" "$place/server") provide=redis_by_zig ;;
esac
# The server is the last that is made.
[ $provide = : ] || [ -e "$place/server" ] || {
    rm -rf "$place"
    mkdir -p "$place/root"
    $provide >"$place.log" 2>&1 || true
    [ -e "$place/server" ] || { tail -n 20 "$place.log" >&2; cannot "NOT loaded: there is no server for it"; }
}

temp=$(mktemp -d)
trap 'stop_server; rm -rf "$temp"' EXIT
start() { start_server "$temp/log" "${line[@]}" --dir "$temp" --appendonly yes --loadmodule "$module"; }
start
fence=$(cli LOCK.ACQUIRE jobs:42 worker-a 600000)
stop_server
start
[ "$fence" -gt 0 ] && [ "$(cli LOCK.CHECK jobs:42 worker-a)" = "$fence" ] && [ -z "$(cli LOCK.ACQUIRE jobs:42 worker-b 600000)" ] ||
    { echo "a lock has not outlived a restart"; exit 1; }
version=$(cli INFO server | tr -d '\r' | sed -n 's/^redis_version://p')
echo "loaded into Redis $version${run[0]:+ by ${run[0]}}: a lock outlives a restart"
