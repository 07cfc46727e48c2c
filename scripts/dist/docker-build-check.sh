#!/usr/bin/env bash
# Builds the Dockerfile, and uses what comes out: the image starts as it is, gives a lock, and keeps it over a new container with the
# same volume; once for Redis and once for Valkey.
#
#   scripts/dist/docker-build-check.sh            IMAGES=pull: from the registries' own images; they are stood in for otherwise
#                                                 REQUIRED=1: it is an error where the machine cannot
#
# The engine is buildah and podman, which need no service, as root. Everything stays in docker/ of the target folder.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
servers=${REDIS_LOCK_SERVERS:-$root/.servers}
work=$(mkdir -p "${CARGO_TARGET_DIR:-$root/target}/docker" && cd "${CARGO_TARGET_DIR:-$root/target}/docker" && pwd)
storage=(--root "$work/storage" --runroot "$work/run" --storage-driver "${STORAGE_DRIVER:-vfs}")
. scripts/dist/images/stand-ins.sh

fail() { echo "docker-build-check: $*" >&2; exit 1; }
leave_out() {
    echo "docker-build-check: left out: $*"
    [ -z "${REQUIRED:-}" ] || exit 1
    exit 0
}

missing=()
needed=(buildah podman runc)
[ "${IMAGES:-}" = pull ] || needed+=(debootstrap)
for program in "${needed[@]}"; do command -v "$program" >/dev/null || missing+=("$program"); done
[ ${#missing[@]} -eq 0 ] || leave_out "it needs ${missing[*]} (Debian: apt-get install ${missing[*]})"
[ "$(id -u)" -eq 0 ] || leave_out "it has to be run as root: debootstrap and the containers need it"
if [ "${IMAGES:-}" != pull ]; then
    [[ $(rustc --print sysroot) != /usr ]] || leave_out "the image of Rust is made of a toolchain of rustup, and this machine's is another"
fi

container=
clean_up() {
    [ -z "$container" ] || podman "${storage[@]}" "${manager[@]}" rm --force --time 2 --volumes "$container" >/dev/null 2>&1 || true
    podman "${storage[@]}" "${manager[@]}" volume rm "${volumes[@]}" >/dev/null 2>&1 || true
}
# Where the machine is a container itself: no limits but those that it has, and its cgroups as files.
manager=(--runtime runc --cgroup-manager cgroupfs)
limits=(--ulimit nofile=1024:1024 --ulimit nproc=1024:1024)
volumes=()
trap clean_up EXIT

passed=0
pass() { passed=$((passed + 1)); echo "docker-build-check: $*"; }

argument() { sed -nE "s|^ARG $1=(.*)|\1|p;T;q" Dockerfile; }

# Runs the image $1 with the arguments after it, with no network but its own loopback: nobody else can reach the server.
run() {
    container=$(podman "${storage[@]}" "${manager[@]}" run --detach --network none "${limits[@]}" "${mounts[@]}" "$@")
    for _ in {1..100}; do
        [ "$(cli PING 2>/dev/null)" != PONG ] || return 0
        sleep 0.1
    done
    podman "${storage[@]}" logs "$container" >&2
    fail "$1 does not answer"
}

cli() { podman "${storage[@]}" "${manager[@]}" exec "$container" redis-cli "$@"; }

stop() {
    podman "${storage[@]}" "${manager[@]}" stop --time 10 "$container" >/dev/null
    podman "${storage[@]}" "${manager[@]}" rm "$container" >/dev/null
    container=
}

# check IMAGE SERVER ARGUMENTS-OF-THE-BUILD…
check() {
    local image=$1 server=$2 volume=redis-lock-check-$$-$2 module=/usr/local/lib/redis-lock/libredis_lock.so fence again
    shift 2
    bud build --quiet --isolation chroot --network host --layers --tag "$image" "$@" . >"$work/build-$server.log" 2>&1 ||
        { tail -n 30 "$work/build-$server.log" >&2; fail "$image was not built"; }
    pass "$image is built: $(podman "${storage[@]}" image inspect --format '{{.Size}}' "$image" | numfmt --to=si)"

    # As it is, without an argument.
    mounts=()
    run "$image"
    [ "$(cli MODULE LIST | grep -cx "$module")" = 1 ] || fail "$image has not loaded $module once"
    fence=$(cli LOCK.ACQUIRE jobs:42 worker-a 30000)
    [ "$fence" -gt 0 ] || fail "LOCK.ACQUIRE: $fence"
    [ -z "$(cli LOCK.ACQUIRE jobs:42 worker-b 30000)" ] || fail "the lock was given twice"
    podman "${storage[@]}" "${manager[@]}" exec "$container" sh -c 'test "$(stat -c %u /proc/1)" != 0' || fail "the server runs as root"
    podman "${storage[@]}" "${manager[@]}" exec "$container" locktop --once >/dev/null || fail "$image has no locktop that runs"
    for document in LICENSE-MIT LICENSE-APACHE NOTICES NOTICES.locktop redis.conf.example; do
        podman "${storage[@]}" "${manager[@]}" exec "$container" test -s "/usr/local/share/doc/redis-lock/$document" || fail "the image has no $document"
    done
    stop
    pass "$image starts and gives a lock, not as root"

    # With a volume and a log of all changes, in two containers.
    volumes+=("$volume")
    mounts=(--volume "$volume:/data")
    run "$image" --loadmodule "$module" --appendonly yes --appendfsync always
    fence=$(cli LOCK.ACQUIRE jobs:42 worker-a 600000)
    stop
    run "$image" --loadmodule "$module" --appendonly yes --appendfsync always
    [ "$(cli LOCK.CHECK jobs:42 worker-a)" = "$fence" ] || fail "the lock has not outlived its container"
    [ -z "$(cli LOCK.ACQUIRE jobs:42 worker-b 30000)" ] || fail "the lock was given twice"
    [ "$(cli LOCK.RELEASE jobs:42 worker-a)" = 1 ] || fail "the owner could not release after the restart"
    again=$(cli LOCK.ACQUIRE jobs:42 worker-b 30000)
    [ "$again" -gt "$fence" ] || fail "the fence went from $fence to $again"
    stop
    pass "$image keeps a lock and its fence over a new container with the same volume"
}

rust=docker.io/library/rust:$(argument RUST)-bookworm
redis=docker.io/library/$(argument SERVER)
valkey=docker.io/valkey/valkey:8.0-bookworm
if [ "${IMAGES:-}" != pull ]; then
    debian || leave_out "debootstrap could not make a Debian 12"
    rust_image "$rust"
    server_image "$redis" redis redis-8.2.3
    server_image "$valkey" valkey valkey-8.0.1
    echo "docker-build-check: stood in for: $rust ($(rustc --version)), $redis, $valkey"
fi
check localhost/redis-lock redis
check localhost/valkey-lock valkey --build-arg SERVER="${valkey#docker.io/}"
echo "docker-build-check: $passed passed, 0 failed"
