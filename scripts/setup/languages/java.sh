#!/usr/bin/env bash
# Installs the Java 17 and the Maven that the Java parts need and this machine lacks, from the packages of its Debian.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../apt.sh"

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
