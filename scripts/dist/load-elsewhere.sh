#!/usr/bin/env bash
# Loads a module that was built for the target $1, $2, into a server of that target, and takes a lock by it. Prints what was done and
# ends with 0; where this machine cannot run one, prints why and ends with 2.
#
# glibc on x86_64: the servers of the tests. glibc on aarch64: Debian's packages for arm64, run by qemu. musl: Redis compiled from Debian's
# source by zig, once, into the target folder. Programs and libraries are unpacked and never installed.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
triple=$1 module=$(realpath "$2")
servers=${REDIS_LOCK_SERVERS:-$root/.servers}
tools=${CARGO_TARGET_DIR:-$root/target}/tools
place=$tools/elsewhere/$triple
machine=${triple%%-*}

cannot() { echo "$*"; exit 2; }
fail() { echo "$*"; exit 1; }

# What runs a program of the target on this machine: nothing, or qemu.
run=()
if [ "$machine" != "$(uname -m)" ]; then
    command -v "qemu-$machine-static" >/dev/null || cannot "there is no qemu-$machine-static (Debian: qemu-user-static)"
    run=("qemu-$machine-static" -L "$place/root")
fi

# lists KIND ARCHITECTURE: a private configuration of apt in `apt`, with the lists of Debian 12. The machine's own stays as it is.
lists() {
    local dir=$place/apt mirror
    mirror=$(apt-get update --print-uris 2>/dev/null | sed -nE "s|^'(.*[^/])/+dists/bookworm/InRelease'.*|\1|p" | head -n1)
    [ -n "$mirror" ] || cannot "there is no mirror of Debian 12"
    mkdir -p "$dir"/{parts,lists/partial,cache/archives/partial}
    echo "$1 [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror bookworm main" >"$dir/sources.list"
    apt=(-qq -o Dir::Etc::SourceList="$dir/sources.list" -o Dir::Etc::SourceParts="$dir/parts" -o Dir::State::Lists="$dir/lists"
        -o Dir::State::Status=/dev/null -o Dir::Cache="$dir/cache" -o APT::Sandbox::User=root -o APT::Architecture="$2")
    apt-get "${apt[@]}" update >&2 || cannot "the lists of Debian 12 for $2 could not be read"
}

# unpack PACKAGE…: into the root of the place.
unpack() {
    mkdir -p "$place/debs"
    (cd "$place/debs" && apt-get "${apt[@]}" download "$@" >&2) || cannot "Debian's packages could not be fetched: $*"
    local deb
    for deb in "$place"/debs/*.deb; do dpkg-deb -x "$deb" "$place/root"; done
    rm -rf "$place/debs"
}

arm64_of_debian() {
    lists deb arm64
    unpack redis-tools redis-server libc6 libgcc-s1 libatomic1 libjemalloc2 liblzf1 libssl3 libstdc++6 libsystemd0 \
        libcap2 libgcrypt20 libgpg-error0 liblz4-1 liblzma5 libzstd1
    # The server is a link to its checker, of an absolute path.
    cp -L "$place/root/usr/bin/redis-check-rdb" "$place/server"
}

redis_by_zig() {
    local source zig="$tools/zig/bin/python -m ziglang"
    lists deb-src "$(dpkg --print-architecture)"
    mkdir -p "$place/source"
    (cd "$place/source" && apt-get "${apt[@]}" source --download-only redis >&2 && tar -xf redis_*.orig.tar.gz) ||
        cannot "Debian's source of Redis could not be fetched"
    source=$(compgen -G "$place/source/redis-*/src")
    # A program without a dynamic loader could not load a module.
    printf '#!/bin/sh\nexec %s cc -target %s-linux-musl -dynamic -w "$@"\n' "$zig" "$machine" >"$place/cc"
    printf '#!/bin/sh\nexec %s ar "$@"\n' "$zig" >"$place/ar"
    printf '#!/bin/sh\nexec %s ranlib "$@"\n' "$zig" >"$place/ranlib"
    chmod +x "$place/cc" "$place/ar" "$place/ranlib"
    make -C "$source" redis-server MALLOC=libc OPT=-O1 USE_SYSTEMD=no BUILD_TLS=no \
        CC="$place/cc" AR="$place/ar" RANLIB="$place/ranlib" >"$place/make.log" 2>&1 ||
        { tail -n 20 "$place/make.log" >&2; cannot "Redis could not be compiled for $machine with musl"; }
    cp "$source/redis-server" "$place/server"
    rm -rf "$place/source"
    # The loader, which is all of the C library.
    lists deb "$([ "$machine" = aarch64 ] && echo arm64 || echo amd64)"
    unpack musl
}

provide() {
    case $triple in
        "$(uname -m)"-*-gnu) place=$servers/redis-7.0.15/bin; return ;;
    esac
    [ ! -e "$place/complete" ] || return 0
    rm -rf "$place"
    mkdir -p "$place/root"
    case $triple in
        aarch64-*-gnu) arm64_of_debian ;;
        *-musl) redis_by_zig ;;
        *) cannot "there is no server of $triple to try it with" ;;
    esac
    touch "$place/complete"
}

provide
line=("$place/server")
case $triple in
    "$(uname -m)"-*-gnu) ;;
    *-musl)
        # The path of the loader in the program is that of a machine with musl.
        line=("${run[@]}" "$place/root/lib/ld-musl-$machine.so.1" "$place/server") ;;
    *) line=("${run[@]}" "$place/server") ;;
esac

temp=$(mktemp -d)
. "$root/scripts/server.sh"
trap 'stop_server; rm -rf "$temp"' EXIT

# start: with the data of the last time.
start() {
    start_server "$temp/log" "${line[@]}" --dir "$temp" --appendonly yes --loadmodule "$module" || fail "the server did not start with it"
}

start
fence=$(cli LOCK.ACQUIRE jobs:42 worker-a 600000)
[ "$fence" -gt 0 ] || fail "LOCK.ACQUIRE: $fence"
[ -z "$(cli LOCK.ACQUIRE jobs:42 worker-b 600000)" ] || fail "the lock was given twice"
# One waits, and has the lock in the step that releases it.
cli LOCK.ACQUIRE jobs:42 worker-b 600000 BLOCK 20000 >"$temp/waited" &
waiting=$!
for _ in {1..200}; do
    [ "$(cli INFO lock | tr -d '\r' | sed -n 's/^lock_waiters://p')" != 1 ] || break
    sleep 0.1
done
[ "$(cli LOCK.RELEASE jobs:42 worker-a)" = 1 ] || fail "it did not release"
wait "$waiting"
[ "$(cat "$temp/waited")" -gt "$fence" ] || fail "the waiter got $(cat "$temp/waited") after $fence"
# And it outlives a restart.
stop_server
start
[ "$(cli LOCK.CHECK jobs:42 worker-b)" = "$(cat "$temp/waited")" ] || fail "the lock has not outlived a restart"
version=$(cli INFO server | tr -d '\r' | sed -n 's/^redis_version://p')
echo "loaded into Redis $version${run[0]:+ by ${run[0]}}: a lock, a waiter, a restart"
