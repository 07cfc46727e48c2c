#!/usr/bin/env bash
# Installs the Java 17 and the Maven that the Java parts need and this machine lacks.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../apt.sh"

# A JRE without compiler is no help.
has_java() { at_least "$(javac -version 2>&1 | sed -n 's/^javac //p')" 17; }
has_maven() { command -v mvn >/dev/null; }
need "a JDK >= 17" has_java default-jdk-headless
need Maven has_maven maven
