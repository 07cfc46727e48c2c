#!/usr/bin/env bash
# Installs the Java 17 and the Maven that the Java parts need and this machine lacks, from the packages of its Debian.
set -euo pipefail

# A JRE without compiler is no help, and neither is a Java that is too old.
has_java() {
    local version
    version=$(javac -version 2>/dev/null) || return 1
    version=${version#javac }
    [ "${version%%.*}" -ge 17 ] 2>/dev/null
}
has_maven() { command -v mvn >/dev/null; }

# Prints the packages whose job nobody does here.
missing() {
    has_java || if apt-cache show openjdk-17-jdk-headless >/dev/null 2>&1; then
        echo openjdk-17-jdk-headless
    else
        echo default-jdk-headless
    fi
    has_maven || echo maven
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

apt_get() {
    # The output is of use only when it fails.
    local log
    log=$(as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 "$@" 2>&1) || {
        echo "$log" >&2
        echo "java: apt-get $* failed" >&2
        exit 1
    }
}

if has_java && has_maven; then exit; fi
command -v apt-get >/dev/null || { echo "java: this is no Debian; please install a JDK >= 17 and Maven" >&2; exit 1; }
echo "java: reading the lists of packages"
apt_get update
read -rd '' -a packages < <(missing) || true
echo "java: installing ${packages[*]}"
apt_get install --no-install-recommends "${packages[@]}"
hash -r
if ! has_java || ! has_maven; then
    echo "java: still missing: $(missing | tr '\n' ' ')" >&2
    exit 1
fi
