#!/usr/bin/env bash
# Checks what an operator's Prometheus reads, by Debian's, which is unpacked and never installed.
#
#   scripts/check/monitoring.sh          the alerts, their tests, and compose.yaml
#   scripts/check/monitoring.sh picture  draws docs/dashboard*.svg from a run (SECONDS_OF_LOAD=240)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bin=$PWD/.tools/monitoring/root/usr/bin
[ -x "$bin/prometheus-redis-exporter" ] || {
    . scripts/setup/apt.sh
    apt=(-qq -o APT::Sandbox::User=root)
    unpack .tools/monitoring/debs .tools/monitoring/root prometheus prometheus-redis-exporter
}

if [ "${1:-}" = picture ]; then
    scripts/setup/languages/python.sh .tools/picture matplotlib==3.10.7 numpy==2.3.4 redis==6.4.0
    exec .tools/picture/bin/python packaging/monitoring/picture/picture.py "${REDIS_LOCK_SERVERS:-.servers}/redis-7.0.15/bin/server" \
        "${REDIS_LOCK_MODULE:-target/release/libredis_lock.so}" "$bin/prometheus" "$bin/prometheus-redis-exporter" docs/dashboard "${SECONDS_OF_LOAD:-240}"
fi

"$bin/promtool" check rules packaging/monitoring/alerts.yml
"$bin/promtool" test rules packaging/monitoring/alerts_test.yml
"$bin/promtool" check config --syntax-only packaging/compose/prometheus.yml
# Each alert has a test that fires it, so that none is a rule that never can.
for alert in $(sed -nE 's/^ *- alert: (.*)/\1/p' packaging/monitoring/alerts.yml); do
    grep -A2 "alertname: $alert\$" packaging/monitoring/alerts_test.yml | grep -q exp_labels || { echo "monitoring: no test fires $alert" >&2; exit 1; }
done
scripts/setup/languages/python.sh .tools/compose podman-compose==1.6.0
.tools/compose/bin/podman-compose --file compose.yaml config >/dev/null
for file in $(sed -nE 's|.*(\./packaging/[^:]*):.*|\1|p' compose.yaml); do test -f "$file"; done
