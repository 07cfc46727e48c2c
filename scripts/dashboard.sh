#!/usr/bin/env bash
# Draws the dashboard's panels from a real run, for light and for dark pages: Prometheus and redis_exporter are Debian's, unpacked and never installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
(cd "$temp" && apt-get -qq download prometheus prometheus-redis-exporter 2>"$temp/log") || { cat "$temp/log" >&2; exit 1; }
for deb in "$temp"/*.deb; do dpkg-deb -x "$deb" "$temp/root"; done
python3 -m venv "$temp/venv"
"$temp/venv/bin/pip" install --quiet --disable-pip-version-check -r scripts/plots/requirements.txt \
    -r packaging/monitoring/picture/requirements.txt

bin=$temp/root/usr/bin
PATH=$bin:$PATH scripts/check/monitoring.sh rules
"$temp/venv/bin/python" packaging/monitoring/picture/picture.py "${REDIS_LOCK_SERVERS:-.servers}/redis-7.0.15/bin/server" \
    "${REDIS_LOCK_MODULE:-target/release/libredis_lock.so}" \
    "$bin/prometheus" "$bin/prometheus-redis-exporter" docs/dashboard "${SECONDS_OF_LOAD:-240}"
echo "dashboard: docs/dashboard.svg, docs/dashboard-dark.svg"
