#!/usr/bin/env bash
# Installs the Debian package in a root of its own, uses it with Debian's servers there, and removes it: this machine stays as it is.
# Then lintian has its say.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
# The root has no locale but this one, without which Valkey does not start.
export LC_ALL=C
dist=${CARGO_TARGET_DIR:-$root/target}/dist
servers=${REDIS_LOCK_SERVERS:-$root/.servers}
module=/usr/lib/redis/modules/libredis_lock.so
conf=/etc/redis-lock/redis-lock.conf

# dpkg and chroot want to be root; a namespace in which one is will do.
if [ "$(id -u)" -ne 0 ]; then exec unshare --map-root-user "${BASH_SOURCE[0]}" "$@"; fi

fail() { echo "deb-check: $*" >&2; exit 1; }

debs=("$dist"/*.deb)
if [ ${#debs[@]} -ne 1 ] || [ ! -f "${debs[0]}" ]; then fail "there is no package in $dist: run 'make deb'"; fi
deb=${debs[0]}

inside=$(mktemp -d)
. scripts/server.sh
trap 'stop_server; rm -rf "$inside"' EXIT

passed=0
pass() { passed=$((passed + 1)); echo "deb-check: $*"; }

# A root with nothing in it but what the package depends on, as this machine's dpkg knows it.
mkdir -p "$inside"/{var/lib/dpkg/{info,updates},var/lib/data,etc,tmp,usr/bin}
for link in lib lib64; do
    mkdir -p "$inside/usr/$link"
    ln -s "usr/$link" "$inside/$link"
done
dpkg-query --status libc6 | sed '/^Conffiles:/,/^[^ ]/{/^Conffiles:/d;/^ /d}' >"$inside/var/lib/dpkg/status"
: >"$inside/var/lib/dpkg/info/libc6:$(dpkg --print-architecture).list"
chmod 755 "$inside"

in_root() { dpkg --root="$inside" --log=/dev/null "$@" >"$inside/tmp/dpkg.log" 2>&1 || { cat "$inside/tmp/dpkg.log" >&2; fail "dpkg $*"; }; }
state() { dpkg-query --admindir="$inside/var/lib/dpkg" --show --showformat='${Status}' redis-lock 2>/dev/null || echo unknown; }
files() { (cd "$inside" && find . -path ./var/lib -prune -o -path ./tmp -prune -o -print | sort); }

# A program and the libraries that it needs, into the root.
bring() {
    install -D -m 755 "$1" "$inside$2"
    local library
    for library in $(ldd "$1" | grep -oE '/[^ ]+'); do
        [ -e "$inside$library" ] || install -D -m 755 "$library" "$inside$library"
    done
}
bring "$servers/redis-7.0.15/bin/redis-server" /usr/bin/redis-server
bring "$servers/valkey-8.0.1/bin/valkey-server" /usr/bin/valkey-server
# The module needs it, and libc6 depends on its package.
bring "$(ldd "$dist/stage/libredis_lock.so" | grep -oE '/[^ ]*libgcc_s[^ ]*')" /usr/lib/libgcc_s.so.1
mkdir -p "$inside"/etc/{redis,valkey}
before=$(files)

in_root --install "$deb"
[ "$(state)" = "install ok installed" ] || fail "after the installation: $(state)"
[ -x "$inside$module" ] || fail "the package has no $module"
dpkg --root="$inside" --verify redis-lock | grep . && fail "installed is not what the package has"
[ "$(chroot "$inside" /usr/bin/locktop --version)" = "locktop $(dpkg-deb -f "$deb" Version | sed 's/-.*//')" ] || fail "locktop does not run"
pass "$(basename "$deb") is installed"

dead=$(scripts/check/links.sh "$inside/usr/share/doc/redis-lock")
[ -z "$dead" ] || fail "links that lead nowhere:"$'\n'"$dead"
pass "every link in its documents leads somewhere"

# As the user of a server who owns nothing but the data; in a namespace there is nobody else to be.
user=()
if touch "$inside/tmp/owner" && chown 65534:65534 "$inside/tmp/owner" 2>/dev/null; then
    user=(--userspec=65534:65534)
    chown 65534:65534 "$inside/var/lib/data"
fi

# start PROGRAM CONFIGURATION
start() { start_server "$inside/tmp/log" chroot "${user[@]}" "$inside" "$@" || fail "$1 did not start"; }

for name in redis valkey; do
    printf 'dir /var/lib/data\nsave ""\nenable-module-command yes\n' >"$inside/etc/$name/$name.conf"
    start "/usr/bin/$name-server" "/etc/$name/$name.conf"
    [ -z "$(cli MODULE LIST)" ] || fail "$name has a module that nobody has asked for"
    stop_server
    echo "include $conf" >>"$inside/etc/$name/$name.conf"
    start "/usr/bin/$name-server" "/etc/$name/$name.conf"
    cli MODULE LIST | grep -qx "$module" || fail "$name has not loaded $module"
    fence=$(cli LOCK.ACQUIRE jobs:42 worker-a 30000)
    [ "$fence" -gt 0 ] || fail "$name: LOCK.ACQUIRE: $fence"
    [ -z "$(cli LOCK.ACQUIRE jobs:42 worker-b 30000)" ] || fail "$name gave the lock twice"
    [ "$(cli TYPE jobs:42)" = redislock ] || fail "$name: not a lock"
    [ "$(cli LOCK.RELEASE jobs:42 worker-a)" = 1 ] || fail "$name did not release"
    # The new file comes under the server, as with every upgrade.
    in_root --install "$deb"
    [ "$(cli LOCK.ACQUIRE jobs:42 worker-b 30000)" -gt "$fence" ] || fail "$name does not survive an upgrade of the package"
    stop_server
    pass "$name-server, told to, loads $module and gives a lock"
done
rm "$inside"/etc/redis/* "$inside"/etc/valkey/*

in_root --remove redis-lock
if [ -e "$inside$module" ] || [ ! -e "$inside$conf" ]; then fail "a removed package keeps its settings and nothing else"; fi
in_root --purge redis-lock
diff <(echo "$before") <(files) || fail "there are traces of a purged package"
[ "$(state)" = unknown ] || [ "$(state)" = "unknown ok not-installed" ] || fail "after purging: $(state)"
pass "removed and purged, nothing is left"

version=$(sed -nE 's/^version *= *"(.*)"/\1/p;T;q' Cargo.toml)
[[ $(dpkg-parsechangelog --file packaging/deb/changelog --show-field Version) == "$version"-* ]] ||
    fail "packaging/deb/changelog does not begin with version $version"
lintian --allow-root --fail-on error,warning "$deb" || fail "lintian complains"
pass "lintian has no complaint"
echo "deb-check: $passed passed, 0 failed"
