#!/usr/bin/env bash
# Checks the alerts, their tests and compose.yaml, by Debian's Prometheus, which is unpacked and never
# installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bin=$PWD/.tools/monitoring/root/usr/bin
[ -x "$bin/promtool" ] || {
    . scripts/setup/apt.sh
    apt=(-qq -o APT::Sandbox::User=root)
    unpack .tools/monitoring/debs .tools/monitoring/root prometheus
}

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
