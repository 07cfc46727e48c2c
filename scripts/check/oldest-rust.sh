#!/usr/bin/env bash
# Checks that the oldest Rust that Cargo.toml allows compiles the module, the tests, benchmarks and
# examples. It is the machine's own, or else that of Debian 12, fetched into .tools once and never
# installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. scripts/setup/apt.sh

oldest=$(sed -nE 's/^rust-version *= *"([0-9.]+)".*/\1/p' Cargo.toml)
tools=$PWD/.tools/rust-$oldest

# Whether the programs in folder $1 run and are of that Rust.
is_oldest() {
    [[ $("$1/rustc" --version 2>/dev/null) = "rustc $oldest."* && $("$1/cargo" --version 2>/dev/null) = "cargo $oldest."* ]]
}

# Fetches the packages of it, and of the libraries that this machine lacks.
fetch() {
    local temp deb
    mkdir -p .tools
    temp=$(mktemp -d "$PWD/.tools/.fetch.XXXXXX")
    # shellcheck disable=SC2064 # The folder is known now.
    trap "rm -rf '$temp'" EXIT
    private_apt "$temp/apt" bookworm
    # Nothing is installed, so anybody may do this, and at any time.
    apt-get "${apt[@]}" -o Dir::State::Status=/var/lib/dpkg/status -o Debug::NoLocking=1 -y --download-only --no-install-recommends \
        --allow-downgrades install "rustc-web=$oldest.*" "cargo-web=$oldest.*" >&2
    for deb in "$temp"/apt/cache/archives/*.deb; do dpkg-deb -x "$deb" "$temp/root"; done
    rm -rf "$temp"/root/usr/{share,libexec}
    # shellcheck disable=SC2016 # The loader expands it.
    patchelf --force-rpath --set-rpath "\$ORIGIN/../lib/$(uname -m)-linux-gnu:\$ORIGIN/../../lib/$(uname -m)-linux-gnu" \
        "$temp"/root/usr/bin/{rustc,cargo}
    rm -rf "$tools"
    mv -T "$temp/root" "$tools"
}

# Debian 13 has it in /usr/bin, perhaps hidden by a newer one.
bin=$(dirname "$(command -v cargo)")
is_oldest "$bin" || bin=/usr/bin
is_oldest "$bin" || bin=$tools/usr/bin
if ! is_oldest "$bin"; then fetch; fi
is_oldest "$bin" || { echo "oldest-rust: Rust $oldest does not run here" >&2; exit 1; }
PATH=$bin:$PATH
# What another Rust has compiled stays. Nothing of this runs, so nothing is compiled to the end.
CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/oldest-rust cargo check --workspace --quiet --locked --all-targets
echo "oldest-rust: Rust $oldest takes the module, its tests, benchmarks and examples"
