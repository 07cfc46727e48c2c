#!/usr/bin/env bash
# Builds the Dockerfile, and uses what comes out: the image starts as it is, gives a lock, and keeps
# it over a new container with the same volume; once for Redis and once for Valkey.
#
#   IMAGES=pull    from the registries' own images, which are otherwise substituted
#   REQUIRED=1     it is an error where the machine cannot
#
# The engine is buildah and podman, as root. Everything stays in docker/ of the target folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck disable=SC2034 # The stand-ins read it.
servers=${REDIS_LOCK_SERVERS:-$PWD/.servers}
work=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}/docker")
mkdir -p "$work"
bud=(buildah --root "$work/storage" --runroot "$work/run" --storage-driver "${STORAGE_DRIVER:-vfs}")
# Where the machine is a container itself: its cgroups as files.
pod=(podman "${bud[@]:1}" --runtime runc --cgroup-manager cgroupfs)
. scripts/dist/images/stand-ins.sh

fail() { echo "docker-build-check: $*" >&2; exit 1; }
leave_out() {
    echo "docker-build-check: left out: $*"
    exit ${REQUIRED:+1}
}

needed=(buildah podman runc)
[ "${IMAGES:-}" = pull ] || needed+=(debootstrap)
for program in "${needed[@]}"; do command -v "$program" >/dev/null || leave_out "it needs ${needed[*]} (Debian: apt-get install ${needed[*]})"; done
[ "$(id -u)" -eq 0 ] || leave_out "it has to be run as root: debootstrap and the containers need it"

container=
trap 'stop; "${pod[@]}" volume rm --force redis-lock-check >/dev/null 2>&1 || true' EXIT

# run IMAGE ARGUMENT…: with no network but its own loopback: nobody else can reach the server.
run() {
    container=$("${pod[@]}" run --detach --network none --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 --volume redis-lock-check:/data "$@")
    for _ in {1..100}; do
        [ "$(cli PING 2>/dev/null)" != PONG ] || return 0
        sleep 0.1
    done
    "${pod[@]}" logs "$container" >&2
    fail "$1 does not answer"
}

inside() { "${pod[@]}" exec "$container" "$@"; }
cli() { inside redis-cli "$@"; }

stop() {
    [ -z "$container" ] || "${pod[@]}" rm --force --time 10 "$container" >/dev/null
    container=
}

# check IMAGE ARGUMENTS-OF-THE-BUILD…
check() {
    local image=$1 module=/usr/local/lib/redis-lock/libredis_lock.so fence
    "${bud[@]}" bud --isolation chroot --network host --layers --tag "$image" "${@:2}" . >"$work/build.log" 2>&1 ||
        { tail -n 30 "$work/build.log" >&2; fail "$image was not built"; }

    # As it is, without an argument.
    run "$image"
    [ "$(cli MODULE LIST | grep -cx "$module")" = 1 ] || fail "$image has not loaded $module once"
    inside sh -c 'test "$(stat -c %u /proc/1)" != 0' || fail "the server runs as root"
    inside locktop --once >/dev/null || fail "$image has no locktop that runs"
    inside sh -c 'cd /usr/local/share/doc/redis-lock && cat LICENSE-MIT LICENSE-APACHE NOTICES NOTICES.locktop redis.conf.example' >/dev/null
    stop

    # With a log of all changes, in two containers with one volume.
    run "$image" --loadmodule "$module" --appendonly yes --appendfsync always
    fence=$(cli LOCK.ACQUIRE jobs:42 worker-a 600000)
    stop
    run "$image" --loadmodule "$module" --appendonly yes --appendfsync always
    [ "$fence" -gt 0 ] && [ "$(cli LOCK.CHECK jobs:42 worker-a)" = "$fence" ] || fail "the lock has not outlived its container"
    [ -z "$(cli LOCK.ACQUIRE jobs:42 worker-b 30000)" ] || fail "the lock was given twice"
    stop
    "${pod[@]}" volume rm redis-lock-check >/dev/null
    echo "docker-build-check: $image gives a lock, not as root, and keeps it over a new container with the same volume"
}

valkey=valkey/valkey:8.0-bookworm
if [ "${IMAGES:-}" != pull ]; then
    debian || leave_out "debootstrap could not make a Debian 12"
    rust_image "docker.io/library/rust:$(sed -n 's/^ARG RUST=//p' Dockerfile)-bookworm"
    server_image "docker.io/library/$(sed -n 's/^ARG SERVER=//p' Dockerfile)" redis redis-8.2.3
    server_image docker.io/$valkey valkey valkey-8.0.1
fi
check localhost/redis-lock
check localhost/valkey-lock --build-arg SERVER=$valkey
