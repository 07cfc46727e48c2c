#!/usr/bin/env bash
# Installs what building and testing needs and this machine lacks, from the packages of its Debian.
# What is there is found by trying it, not by the names of packages: it may have come from anywhere.
#
#   scripts/setup/setup.sh                          SETUP_FOR=packages: what making the Debian package needs, too
set -euo pipefail

# A toolchain may be chosen by folder, so all is asked in the one that is built.
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. scripts/setup/apt.sh
# The package has locktop in it, which needs a newer Rust than the module.
crate=.
[ "${SETUP_FOR:-}" != packages ] || crate=clients/locktop
oldest_rust=$(sed -nE 's/^rust-version *= *"([0-9.]+)".*/\1/p' "$crate/Cargo.toml")
# As in the Makefile; and ldconfig is in /sbin.
[[ :$PATH: == *":$HOME/.cargo/bin:"* ]] || PATH=$HOME/.cargo/bin:$PATH
export PATH=$PATH:/sbin

has() { command -v "$1" >/dev/null; }

has_compiler() { has cc && echo '#include <stdio.h>' | cc -E - >/dev/null 2>&1; }

# The build reads the server's C header by libclang, which needs its own headers (stddef.h) beside it.
has_libclang() {
    [ -z "${LIBCLANG_PATH:-}" ] || return 0
    local lib
    lib=$(find -L /usr/lib /usr/lib64 /usr/local/lib -maxdepth 3 \
        \( -name 'libclang.so*' -o -name 'libclang-[0-9]*.so*' \) -print -quit 2>/dev/null || true)
    [ -n "$lib" ] || return 1
    compgen -G '/usr/lib*/clang/*/include/stddef.h' >/dev/null ||
        compgen -G '/usr/lib/llvm-*/lib/clang/*/include/stddef.h' >/dev/null
}

has_library() { ldconfig -p | awk -v name="$1" '$1 == name { found = 1 } END { exit !found }'; }

has_rust() { has rustc && has cargo && at_least "$(cargo --version 2>/dev/null | awk '{ print $2 }')" "$oldest_rust"; }
has_rust_tools() { cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1; }

# Prints the packages whose job nobody does here.
missing() {
    has_compiler || echo gcc libc6-dev
    # What `make fuzz` runs is in C++.
    has c++ || echo g++
    has make || echo make
    has valgrind && has vgdb || echo valgrind
    has_libclang || echo libclang-dev
    has python3 && python3 -m pip --version >/dev/null 2>&1 || echo python3 python3-pip
    [ -e /etc/ssl/certs/ca-certificates.crt ] || echo ca-certificates
    # The tests stop servers and workers by it. The shell has one of its own, which is no program.
    type -P kill >/dev/null || echo procps
    # Newer servers than this Debian has are tied to libraries of their own with it.
    has patchelf || echo patchelf
    # The packages are made and checked by these.
    if [ "${SETUP_FOR:-}" = packages ]; then
        has git || echo git
        has dpkg-shlibdeps && has dpkg-parsechangelog || echo dpkg-dev
        has lintian || echo lintian
    fi
    # Some make a certificate.
    has openssl || echo openssl
    # The servers of the tests are linked to these.
    local library package
    while read -r library package; do
        has_library "$library" || echo "$package"
    done <<'LIBRARIES'
libatomic.so.1 libatomic1
libjemalloc.so.2 libjemalloc2
liblzf.so.1 liblzf1
libssl.so.3 libssl3
libstdc++.so.6 libstdc++6
libsystemd.so.0 libsystemd0
LIBRARIES
}

# The packages with a Rust that is new enough. Debian 13 has one for the module, and rustup. Debian 12 has one under
# names of its own: in main the oldest for the module, in the security updates a current one. Others have rustup.
rust_packages() {
    if has_candidate cargo; then
        echo rustc cargo rustfmt rust-clippy
    elif has_candidate cargo-web || grep -qE '^VERSION_CODENAME=bookworm$' /etc/os-release; then
        echo rustc-web cargo-web rustfmt-web rust-web-clippy
    else
        echo rustup
    fi
}

# Whether apt would install a version of package $1 that is new enough.
has_candidate() {
    local version
    version=$(candidate "$1")
    [ -n "$version" ] && at_least "$version" "$oldest_rust"
}

packages=()
read -rd '' -a packages < <(missing) || true
rust=there
if ! has_rust || ! has_rust_tools; then
    # What is missing in a toolchain of rustup is had from rustup: packages beside it would be hidden by it.
    if has rustup; then rust=rustup; else rust=packages; fi
fi
if [ ${#packages[@]} -eq 0 ] && [ $rust = there ]; then
    echo "setup: nothing is missing"
    exit
fi

if [ ${#packages[@]} -gt 0 ] || [ $rust = packages ]; then
    if ! has apt-get; then
        [ $rust != packages ] || packages+=("cargo, rustfmt, clippy >= $oldest_rust")
        echo "setup: this is no Debian; please install what its packages hold: ${packages[*]}" >&2
        exit 1
    elif [ "$(id -u)" -ne 0 ] && ! has sudo; then
        # shellcheck disable=SC2207
        [ $rust != packages ] || packages+=($(rust_packages))
        echo "setup: something is missing, and this is neither root nor is there a sudo; please run as root:" >&2
        echo "    apt-get update && apt-get install --no-install-recommends ${packages[*]}" >&2
        exit 1
    fi
    echo "setup: reading the lists of packages"
    apt_get update
    # shellcheck disable=SC2207
    [ $rust != packages ] || packages+=($(rust_packages))
    echo "setup: installing ${packages[*]}"
    apt_get install --no-install-recommends "${packages[@]}"
    hash -r
fi

if has rustup; then
    if ! has_rust; then
        echo "setup: fetching the stable Rust"
        rustup toolchain install stable
        # Whoever has chosen an older one elsewhere keeps it elsewhere.
        if rustup default >/dev/null 2>&1; then rustup override set stable; else rustup default stable; fi
    fi
    has_rust_tools || { echo "setup: fetching rustfmt and clippy"; rustup component add rustfmt clippy; }
fi

# Believed only when seen.
read -rd '' -a packages < <(missing) || true
if ! has_rust || ! has_rust_tools; then packages+=("cargo, rustfmt, clippy >= $oldest_rust"); fi
[ ${#packages[@]} -eq 0 ] || { echo "setup: still missing: ${packages[*]}" >&2; exit 1; }
echo "setup: done"
