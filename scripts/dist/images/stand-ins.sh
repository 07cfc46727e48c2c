#!/usr/bin/env bash
# shellcheck disable=SC2154
# Functions that make images under the names that the Dockerfile and compose.yaml use, where no registry of images is in reach: a bare
# Debian by debootstrap, with the toolchain of this machine, or with a server of the tests. To be sourced, with `work` (a folder),
# `servers` and `storage` (arguments of buildah and podman) set.
#
# They are no copies of the real images. They have the release of Debian, the programs, users, folders and the entrypoint that ours rely on.

bud() { buildah "${storage[@]}" "$@"; }

# The mirror that this machine's apt reads Debian 12 from.
mirror() {
    apt-get update --print-uris 2>/dev/null | sed -nE "s|^'(.*[^/])/+dists/bookworm/InRelease'.*|\1|p" | head -n1
}

# A bare Debian 12 in $work/debian with the packages that the stand-ins need.
debian() {
    [ ! -e "$work/debian/complete" ] || return 0
    rm -rf "$work/debian"
    # The real image of Rust has a compiler; that of a server, nothing but what the server is linked to.
    debootstrap --variant=minbase \
        --include=ca-certificates,gcc,libc6-dev,libatomic1,libjemalloc2,liblzf1,libssl3,libstdc++6,libsystemd0 \
        bookworm "$work/debian" "${MIRROR:-$(mirror)}" >"$work/debootstrap.log" 2>&1 ||
        { tail -n 5 "$work/debootstrap.log" >&2; return 1; }
    rm -rf "$work/debian/var/cache/apt/archives"/*.deb
    touch "$work/debian/complete"
}

has_image() { bud inspect --type image "$1" >/dev/null 2>&1; }

# from_debian: prints the name of a new container with the bare Debian in it.
from_debian() {
    local container mounted
    container=$(bud from scratch)
    mounted=$(bud mount "$container")
    tar -C "$work/debian" -c . | tar -C "$mounted" -x
    bud umount "$container" >/dev/null
    echo "$container"
}

# finish CONTAINER IMAGE
finish() {
    bud commit --quiet --disable-compression "$1" "$2" >/dev/null
    bud rm "$1" >/dev/null
}

# The image of Rust, $1: the toolchain of this machine, which has to be one of rustup, as theirs is.
rust_image() {
    local sysroot container mounted
    has_image "$1" && return 0
    sysroot=$(rustc --print sysroot)
    container=$(from_debian)
    mounted=$(bud mount "$container")
    mkdir -p "$mounted/usr/local/rustup"
    tar -C "$sysroot" --exclude=./share --exclude='./lib/rustlib/*-musl' --exclude='./lib/rustlib/aarch64-*' -c . |
        tar -C "$mounted/usr/local/rustup" -x
    # It reaches the registry of crates as this machine does.
    cp -L /etc/ssl/certs/ca-certificates.crt "$mounted/etc/ssl/certs/"
    bud umount "$container" >/dev/null
    bud config --env PATH=/usr/local/rustup/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        --env CARGO_HOME=/usr/local/cargo "$container"
    finish "$container" "$1"
}

# server_image IMAGE NAME FOLDER: a server of the tests, with the entrypoint, user and folders of the real image.
server_image() {
    local container mounted program
    has_image "$1" && return 0
    container=$(from_debian)
    mounted=$(bud mount "$container")
    install -m 755 "$servers/$3/bin/$2-server" "$mounted/usr/local/bin/$2-server"
    # Not all servers of the tests come with a client.
    program=$servers/$3/bin/$2-cli
    [ -e "$program" ] || program=$servers/redis-7.0.15/bin/redis-cli
    install -m 755 "$program" "$mounted/usr/local/bin/$2-cli"
    [ "$2" = redis ] || install -m 755 "$program" "$mounted/usr/local/bin/redis-cli"
    install -m 755 scripts/dist/images/entrypoint.sh "$mounted/usr/local/bin/docker-entrypoint.sh"
    chroot "$mounted" useradd --system --uid 999 "$2"
    mkdir -p "$mounted/data"
    chroot "$mounted" chown "$2:$2" /data
    bud umount "$container" >/dev/null
    bud config --env "SERVER=$2" --env LC_ALL=C --workingdir /data --volume /data --port 6379 \
        --entrypoint '["docker-entrypoint.sh"]' --cmd "$2-server" "$container"
    finish "$container" "$1"
}
