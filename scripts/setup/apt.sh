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

# Whether version $1 is $2 or newer.
at_least() { [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n1)" = "$2" ]; }

# Prints the version of package $1, without epoch, that apt would install; nothing if there is none.
candidate() {
    LC_ALL=C apt-cache policy "$1" | awk '$1 == "Candidate:" && $2 ~ /^[0-9]/ { sub(/^[0-9]+:/, "", $2); print $2 }'
}
