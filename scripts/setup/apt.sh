# shellcheck shell=bash
# What the scripts that install Debian's packages share; to be sourced.

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

apt_get() {
    # The output is of use only when it fails. Another apt at work is waited for.
    local log
    log=$(as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=600 "$@" 2>&1) || {
        echo "$log" >&2
        echo "setup: apt-get $* failed" >&2
        exit 1
    }
}

# need WHAT TEST PACKAGE…: installs the packages unless the function TEST holds.
need() {
    ! "$2" 2>/dev/null || return 0
    command -v apt-get >/dev/null || { echo "setup: this is no Debian; please install $1" >&2; exit 1; }
    echo "setup: installing ${*:3}"
    apt_get update
    apt_get install --no-install-recommends "${@:3}"
    hash -r
    "$2" || { echo "setup: there is still no $1" >&2; exit 1; }
}

# Whether version $1 is $2 or newer.
at_least() { [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n1)" = "$2" ]; }

# Prints the version of package $1, without epoch, that apt would install; nothing if there is none.
candidate() {
    LC_ALL=C apt-cache policy "$1" | awk '$1 == "Candidate:" && $2 ~ /^[0-9]/ { sub(/^[0-9]+:/, "", $2); print $2 }'
}

# unpack FROM INTO PACKAGE…: downloads packages by "${apt[@]}" into FROM, and unpacks them into INTO.
unpack() {
    local deb
    mkdir -p "$1"
    (cd "$1" && apt-get "${apt[@]}" download "${@:3}") >&2 || return
    for deb in "$1"/*.deb; do dpkg-deb -x "$deb" "$2"; done
}

# private_apt FOLDER SUITE…: has `apt-get "${apt[@]}"` read these suites of Debian, with its lists
# in FOLDER: packages, or with apt_kind=deb-src sources, for this machine or for
# apt_for=ARCHITECTURE. The machine's own sources are read for the mirror and never changed. Its own
# packages are not looked at, so a newer Debian gets the same ones.
private_apt() {
    local dir=$1 key=/usr/share/keyrings/debian-archive-keyring.gpg
    local sources mirrors mirror security suite from options
    shift
    apt=(-qq -o Dir::Etc::SourceList="$dir/sources.list" -o Dir::Etc::SourceParts="$dir/parts"
        -o Dir::Etc::Preferences="$dir/none" -o Dir::Etc::PreferencesParts="$dir/parts"
        -o Dir::State::Lists="$dir/lists" -o Dir::State::Status=/dev/null -o Dir::Cache="$dir/cache"
        -o APT::Architecture="${apt_for:-$(dpkg --print-architecture)}")
    # As root apt would fetch as another user, who may not write here.
    [ "$(id -u)" -ne 0 ] || apt+=(-o APT::Sandbox::User=root)
    [ ! -e "$dir/complete" ] || return 0
    rm -rf "$dir"
    mkdir -p "$dir"/{parts,lists/partial,cache/archives/partial}
    # A mirror may be weeks behind, and then its lists of a release in the making are past their
    # date. Their signature is checked all the same, and older packages are as good here.
    options='target=Packages check-valid-until=no'
    [ "${apt_kind:-deb}" = deb ] || options=${options/Packages/Sources}
    # The keys of Debian 12 are enough for later ones, which are signed with old and new ones.
    [ ! -e "$key" ] || options+=" signed-by=$key"
    # Lines of "release mirror". This needs no downloaded lists, which container images often lack.
    sources=$(apt-get update --print-uris | sed -nE "s|^'(.*[^/])/+dists/([^/]+)/InRelease'.*|\2 \1|p")
    mirrors=$(awk '$1 !~ /-/ && !seen[$2]++ { print $2 }' <<<"$sources")
    security=$(awk '$1 ~ /-security$/ && !found++ { print $2 }' <<<"$sources")
    # Sources of others name their releases like Debian's: the mirror is the one that has these.
    for mirror in $mirrors; do
        for suite; do
            # A machine without security updates does without them here.
            if [[ $suite = *-security ]]; then from=$security; else from=$mirror; fi
            [ -z "$from" ] || echo "${apt_kind:-deb} [$options] $from $suite main"
        done >"$dir/sources.list"
        if apt-get "${apt[@]}" -o APT::Update::Error-Mode=any update >>"$dir/log" 2>&1; then
            touch "$dir/complete"
            return
        fi
    done
    cat "$dir/log" >&2 || true
    echo "apt: no Debian mirror with $* answers; tried: ${mirrors:-none}" >&2
    return 1
}
