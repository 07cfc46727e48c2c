#!/usr/bin/env bash
# Builds the image on each server that it is published for, takes a lock with it, and pushes it; to
# be called by the workflow `release`, which is logged in.
#
#   push.sh ARCH     builds for this machine, and pushes NAME:VERSION-SERVER-ARCH
#   push.sh join     makes NAME:VERSION-SERVER of both, and NAME:latest of the Dockerfile's
#
# DOCKER=…: another program with the same commands; PUSH=no: all but the push.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

docker=${DOCKER:-docker}
version=$(sed -nE 's/^version *= *"(.*)"/\1/p;T;q' Cargo.toml)
image=$(sed -n 's/^image //p' packaging/names)
servers=(redis:7.2 redis:7.4 redis:8.2 valkey/valkey:8.0 valkey/valkey:9.0)
latest=redis8.2

tag() { basename "$1" | tr -d :; }

container=
trap '[ -z "$container" ] || "$docker" rm --force "$container" >/dev/null' EXIT

# try IMAGE: it starts as it is, and gives a lock once.
try() {
    local fence=
    container=$("$docker" run --detach --network none "$1")
    for _ in {1..100}; do
        fence=$("$docker" exec "$container" sh -c '$(command -v redis-cli valkey-cli | head -n1) LOCK.ACQUIRE jobs:42 worker-a 30000' 2>/dev/null) &&
            [ "$fence" -gt 0 ] 2>/dev/null && break
        sleep 0.1
    done
    [ "$fence" -gt 0 ] || { echo "push: $1: LOCK.ACQUIRE: $fence" >&2; exit 1; }
    "$docker" exec "$container" locktop --once
    "$docker" rm --force "$container" >/dev/null
    container=
}

for server in "${servers[@]}"; do
    name=$image:$version-$(tag "$server")
    if [ "$1" = join ]; then
        names=(--tag "$name")
        [ "$(tag "$server")" != "$latest" ] || names+=(--tag "$image:$version" --tag "$image:latest")
        "$docker" buildx imagetools create "${names[@]}" "$name-amd64" "$name-arm64"
        continue
    fi
    # The module is in the layers of the first.
    "$docker" build --build-arg SERVER="$server" --tag "$name-$1" .
    try "$name-$1"
    [ "${PUSH:-}" = no ] || "$docker" push "$name-$1"
done
