#!/usr/bin/env bash
# Installs the Debian package in a root of its own, loads what it has there into servers of the
# tests, and removes it: this machine stays as it is. Then lintian has its say.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# dpkg wants to be root; a namespace in which one is will do.
if [ "$(id -u)" -ne 0 ]; then exec unshare --map-root-user "${BASH_SOURCE[0]}"; fi

fail() { echo "deb-check: $*" >&2; exit 1; }

deb=$(echo "${CARGO_TARGET_DIR:-target}"/dist/*.deb)
version=$(dpkg-deb -f "$deb" Version)
temp=$(mktemp -d)
root=$temp/root
. scripts/server.sh
trap 'stop_server; rm -rf "$temp"' EXIT
mkdir -p "$root"/var/lib/dpkg/{info,updates}
: >"$root/var/lib/dpkg/status"

# What the package depends on is on this machine, and not in that root.
in_root() { dpkg --root="$root" --log=/dev/null --force-depends "$@" >"$temp/log" 2>&1 || { cat "$temp/log" >&2; fail "dpkg $*"; }; }

in_root --install "$deb"
! dpkg --root="$root" --verify redis-lock | grep . || fail "installed is not what the package has"
[ "$("$root/usr/bin/locktop" --version)" = "locktop ${version%-*}" ] || fail "locktop does not run"
# In the settings are the paths of a machine that has the package.
sed "s|/usr/lib/|$root/usr/lib/|" "$root/etc/redis-lock/redis-lock.conf" >"$temp/redis-lock.conf"
for name in redis-7.0.15 valkey-8.0.1; do
    start_server "$temp/log" "${REDIS_LOCK_SERVERS:-.servers}/$name/bin/server" "$temp/redis-lock.conf" --dir "$temp" --save ''
    fence=$(cli LOCK.ACQUIRE jobs:42 worker-a 30000)
    [ "$fence" -gt 0 ] || fail "$name: LOCK.ACQUIRE: $fence"
    stop_server
    echo "deb-check: $name, told to by the settings, loads the module and gives a lock"
done

in_root --remove redis-lock
if [ -e "$root/usr/lib/redis/modules/libredis_lock.so" ] || [ ! -e "$root/etc/redis-lock/redis-lock.conf" ]; then
    fail "a removed package keeps its settings and nothing else"
fi
in_root --purge redis-lock
! find "$root" -path "$root/var" -prune -o ! -type d -print | grep . || fail "there are traces of a purged package"
[[ $(dpkg-parsechangelog --file packaging/deb/changelog --show-field Version) == "$version" ]] || fail "packaging/deb/changelog has another version"
lintian --allow-root --fail-on error,warning "$deb"
echo "deb-check: $deb is installed, used, and removed without a trace"
