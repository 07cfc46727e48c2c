#!/usr/bin/env bash
# Installs what building and testing needs and this machine lacks, from the packages of its Debian.
# What is there is found by trying it, not by the names of packages: it may have come from anywhere.
#
#   SETUP_FOR=packages    what making the Debian package needs, too
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

# The build reads the server's C header by libclang, which needs headers of its own (stddef.h).
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
    has_libclang || echo libclang-dev
    python3 -m pip --version >/dev/null 2>&1 || echo python3 python3-pip
    [ -e /etc/ssl/certs/ca-certificates.crt ] || echo ca-certificates
    local file package
    while read -r file package; do
        # The shell has a `kill` of its own, but the tests need the program.
        type -P "$file" >/dev/null || has_library "$file" || echo "$package"
    done <<<"$needed"
}

# Programs and what has them: what `make fuzz` runs is in C++, and newer servers than this Debian
# has are tied to their libraries by patchelf. The servers of the tests are linked to the libraries.
needed='c++ g++
make make
vgdb valgrind
kill procps
patchelf patchelf
openssl openssl
libatomic.so.1 libatomic1
libjemalloc.so.2 libjemalloc2
liblzf.so.1 liblzf1
libssl.so.3 libssl3
libstdc++.so.6 libstdc++6
libsystemd.so.0 libsystemd0'
[ "${SETUP_FOR:-}" != packages ] || needed+='
git git
dpkg-shlibdeps dpkg-dev
lintian lintian'

# The packages with a Rust that is new enough. Debian 13 has one for the module, and rustup. Debian
# 12 has one under names of its own: in main the oldest for the module, in the security updates a
# current one.
rust_packages() {
    if at_least "$(candidate cargo)" "$oldest_rust"; then
        echo rustc cargo rustfmt rust-clippy
    elif [ -n "$(candidate cargo-web)" ]; then
        echo rustc-web cargo-web rustfmt-web rust-web-clippy
    else
        echo rustup
    fi
}

has_all() { [ -z "$(missing)" ] && has_rust && has_rust_tools; }

! has_all || { echo "setup: nothing is missing"; exit; }
wants_rust=
# With rustup, all of Rust is had from rustup: it would hide packages beside it.
{ has_rust && has_rust_tools; } || has rustup || wants_rust=1
if [ -n "$(missing)$wants_rust" ]; then
    has apt-get || {
        echo "setup: this is no Debian; please install what its packages hold: $(missing | xargs) and Rust >= $oldest_rust with rustfmt and clippy" >&2
        exit 1
    }
    echo "setup: reading the lists of packages"
    apt_get update
    # shellcheck disable=SC2207
    packages=($(missing) ${wants_rust:+$(rust_packages)})
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
    has_rust_tools || rustup component add rustfmt clippy
fi

# Believed only when seen.
has_all || { echo "setup: still missing: $(missing | xargs) or Rust >= $oldest_rust with rustfmt and clippy" >&2; exit 1; }
echo "setup: done"
