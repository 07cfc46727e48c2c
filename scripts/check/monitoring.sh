#!/usr/bin/env bash
# Checks what an operator's Prometheus reads, by Prometheus itself: the rules, their tests, and compose.yaml. A server, redis_exporter and
# Prometheus are started with the words of compose.yaml, without containers, and have to show a lock that is held.
#
#   scripts/check/monitoring.sh           all of it; the programs are Debian's, unpacked into the target folder and never installed
#   scripts/check/monitoring.sh rules     the rules and their tests, where promtool is there; else it says so
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
tools=${CARGO_TARGET_DIR:-$root/target}/tools/monitoring
PATH=$tools/root/usr/bin:$PATH
servers=${REDIS_LOCK_SERVERS:-$root/.servers}
module=${REDIS_LOCK_MODULE:-${CARGO_TARGET_DIR:-$root/target}/release/libredis_lock.so}

rules() {
    promtool check rules packaging/monitoring/alerts.yml
    (cd packaging/monitoring && promtool test rules alerts_test.yml)
    # Each alert has a test that fires it, so that none is a rule that never can.
    local alert
    for alert in $(sed -nE 's/^ *- alert: (.*)/\1/p' packaging/monitoring/alerts.yml); do
        grep -A2 "alertname: $alert\$" packaging/monitoring/alerts_test.yml | grep -q 'exp_labels' ||
            { echo "monitoring: no test fires $alert" >&2; exit 1; }
    done
    echo "monitoring: the rules hold, and each alert is fired by a test"
}

if [ "${1:-}" = rules ]; then
    if ! command -v promtool >/dev/null; then
        echo "monitoring: left out: there is no promtool (make monitoring-check fetches it)"
        exit
    fi
    rules
    exit
fi

[ -x "$tools/venv/bin/podman-compose" ] || {
    rm -rf "$tools"
    mkdir -p "$tools/debs"
    (cd "$tools/debs" && apt-get -qq -o APT::Sandbox::User=root download prometheus prometheus-redis-exporter)
    for deb in "$tools"/debs/*.deb; do dpkg-deb -x "$deb" "$tools/root"; done
    python3 -m venv "$tools/venv"
    "$tools/venv/bin/pip" install --quiet --disable-pip-version-check podman-compose==1.6.0
}
rules
"$tools/venv/bin/podman-compose" --file compose.yaml config >"$tools/compose.txt" 2>&1 || { cat "$tools/compose.txt" >&2; exit 1; }
"$tools/venv/bin/python" scripts/check/compose.py "$servers/redis-7.0.15/bin" "$module"
