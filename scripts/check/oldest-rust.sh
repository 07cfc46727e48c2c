#!/usr/bin/env bash
# Builds the module with the oldest Rust that Cargo.toml allows, and checks that it compiles the tests, benchmarks and examples.
#
# It is the machine's own, or else that of Debian 12, fetched into .tools once and never installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. scripts/setup/apt.sh

oldest=$(sed -nE 's/^rust-version *= *"([0-9.]+)".*/\1/p' Cargo.toml)
tools=$PWD/.tools/rust-$oldest

fail() { echo "oldest-rust: $*" >&2; exit 1; }

# Whether the programs in folder $1 run and are of that Rust.
is_oldest() {
    local program
    for program in rustc cargo; do
        [[ $("$1/$program" --version 2>/dev/null) = "$program $oldest."* ]] || return 1
    done
}

# Prints the folder of its programs. Debian 13 has it in /usr/bin, perhaps hidden by a newer one.
where() {
    local folder
    for folder in "$(dirname "$(command -v cargo)")" /usr/bin "$tools/usr/bin"; do
        if is_oldest "$folder"; then
            echo "$folder"
            return
        fi
    done
    return 1
}

# Fetches the packages of it, and of the libraries that this machine lacks.
fetch() {
    local temp deb
    command -v patchelf >/dev/null || fail "patchelf is missing: run 'make setup'"
    mkdir -p .tools
    temp=$(mktemp -d "$PWD/.tools/.fetch.XXXXXX")
    # shellcheck disable=SC2064 # The folder is known now.
    trap "rm -rf '$temp'" EXIT
    private_apt "$temp/apt" bookworm || fail "the packages of Debian 12 cannot be read"
    # Nothing is installed, so anybody may do this, and at any time.
    apt-get "${apt[@]}" -o Dir::State::Status=/var/lib/dpkg/status -o Debug::NoLocking=1 -qq -y --download-only --no-install-recommends --allow-downgrades \
        install "rustc-web=$oldest.*" "cargo-web=$oldest.*" >"$temp/log" 2>&1 ||
        { cat "$temp/log" >&2; fail "Rust $oldest cannot be had from the main of Debian 12"; }
    mkdir "$temp/root"
    for deb in "$temp"/apt/cache/archives/*.deb; do dpkg-deb -x "$deb" "$temp/root"; done
    rm -rf "$temp"/root/usr/{share,libexec}
    # shellcheck disable=SC2016 # The loader expands it.
    patchelf --force-rpath --set-rpath "\$ORIGIN/../lib/$(uname -m)-linux-gnu:\$ORIGIN/../../lib/$(uname -m)-linux-gnu" \
        "$temp"/root/usr/bin/{rustc,cargo}
    is_oldest "$temp/root/usr/bin" || fail "Rust $oldest was fetched but does not run here: $(ldd "$temp"/root/usr/bin/{rustc,cargo} | grep 'not found')"
    rm -rf "$tools"
    mv -T "$temp/root" "$tools"
}

if ! where >/dev/null; then
    echo "oldest-rust: fetching Rust $oldest"
    fetch
fi
PATH=$(where):$PATH
export PATH
# What another Rust has compiled stays. Nothing of this runs, so nothing is compiled to the end.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/oldest-rust
cargo check --quiet --locked --all-targets
echo "oldest-rust: Rust $oldest takes the module, its tests, benchmarks and examples"
