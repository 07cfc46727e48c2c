#!/usr/bin/env bash
# shellcheck disable=SC2154
# Functions that make images under the names that the Dockerfile uses, where no registry of images
# is in reach: a bare Debian by debootstrap, with the toolchain of this machine, or with a server of
# the tests. To be sourced, with `work` (a folder), `servers` and `bud` (buildah with its storage)
# set.
#
# They are no copies of the real images. They have the release of Debian, the programs, users,
# folders and the entrypoint that ours rely on.

# debian: a bare Debian 12 in $work/debian, with a compiler and what a server is linked to.
debian() {
    local mirror
    [ ! -e "$work/debian.complete" ] || return 0
    mirror=$(apt-get update --print-uris 2>/dev/null | sed -nE "s|^'(.*[^/])/+dists/bookworm/InRelease'.*|\1|p" | head -n1)
    rm -rf "$work/debian"
    debootstrap --variant=minbase \
        --include=ca-certificates,gcc,libc6-dev,libatomic1,libjemalloc2,liblzf1,libssl3,libstdc++6,libsystemd0 \
        bookworm "$work/debian" "${MIRROR:-$mirror}" >"$work/debootstrap.log" 2>&1 || { tail -n 5 "$work/debootstrap.log" >&2; return 1; }
    # It reaches the registry of crates as this machine does.
    cp -L /etc/ssl/certs/ca-certificates.crt "$work/debian/etc/ssl/certs/"
    touch "$work/debian.complete"
}

# stand_in IMAGE FOLDER: of bare Debian, the folder in /usr/local, and the lines of standard input.
stand_in() {
    "${bud[@]}" inspect --type image "$1" >/dev/null 2>&1 && return
    { printf 'FROM scratch\nCOPY --from=debian . /\nCOPY . /usr/local/\n'; cat; } >"$work/Containerfile"
    "${bud[@]}" bud --quiet --isolation chroot --build-context debian="$work/debian" --tag "$1" --file "$work/Containerfile" "$2" >/dev/null
}

# The toolchain of this machine, which has to be one of rustup, as that of the real image is.
rust_image() {
    stand_in "$1" "$(rustc --print sysroot)" <<<'ENV CARGO_HOME=/usr/local/cargo'
}

# server_image IMAGE NAME FOLDER: a server of the tests, with the user and folders of the real one.
server_image() {
    local bin=$work/$2/bin
    mkdir -p "$bin"
    cp "$servers/$3/bin/$2-server" "$bin/"
    # Not all servers of the tests come with a client.
    cp "$servers/redis-7.0.15/bin/redis-cli" "$bin/"
    install -m 755 scripts/dist/images/entrypoint.sh "$bin/docker-entrypoint.sh"
    stand_in "$1" "$work/$2" <<LINES
ENV SERVER=$2 LC_ALL=C
RUN useradd --system --uid 999 $2 && mkdir -p /data && chown $2:$2 /data
WORKDIR /data
VOLUME /data
EXPOSE 6379
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["$2-server"]
LINES
}
