#!/bin/sh
# Packs the crate, builds what was packed, and takes a lock by it in a new project. Uploads nothing.
set -eu
cd "$(dirname "$0")"
: "${REDIS_LOCK_SERVERS:?}" "${REDIS_LOCK_MODULE:?}"
server=$REDIS_LOCK_SERVERS/${REDIS_LOCK_SERVER:-redis-8.2.3}/bin/server

cargo package --quiet --locked --allow-dirty --all-features
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
name=redis-lock-client-$version
crate=$PWD/target/package/$name.crate
echo "# $crate"
tar tzf "$crate" | sed "s|^$name/||" | sort
for part in Cargo.toml README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE src/lib.rs; do
    tar tzf "$crate" "$name/$part" > /dev/null || { echo "$part is missing" >&2; exit 1; }
done

project=$(mktemp -d)
pid=
trap 'if [ -n "$pid" ]; then kill "$pid"; wait "$pid" || true; fi; rm -rf "$project"' EXIT
tar xzf "$crate" -C "$project"
mkdir "$project/src"
cp Cargo.lock "$project/"
cat > "$project/Cargo.toml" <<END
[package]
name = "one-lock"
edition = "2024"
[workspace]
[dependencies]
redis-lock-client = { path = "$name", features = ["sentinel", "cluster"] }
END
cat > "$project/src/main.rs" <<'END'
use redis_lock_client::{Options, Result, sync::LockClient};

fn main() -> Result<()> {
    let address = std::env::args().nth(1).unwrap_or_default();
    let guard = LockClient::open(address, Options::default())?.lock("one").lock()?;
    println!("# one lock, with fence {}", guard.fence());
    guard.unlock()
}
END
# A port that another server has ends this one at once.
port=20000
while :; do
    port=$((port + 1 + $$ % 97))
    "$server" --bind 127.0.0.1 --port "$port" --save '' --dir "$project" \
        --loadmodule "$REDIS_LOCK_MODULE" > "$project/log" 2>&1 &
    pid=$!
    until grep -q 'Ready to accept' "$project/log" || ! kill -0 "$pid" 2> /dev/null; do :; done
    kill -0 "$pid" 2> /dev/null && break
    [ "$port" -lt 30000 ] || { cat "$project/log" >&2; exit 1; }
done
CARGO_TARGET_DIR=$PWD/target cargo run --quiet --manifest-path "$project/Cargo.toml" -- \
    "redis://127.0.0.1:$port"

echo "# What cargo publish would upload, and does not:"
cargo publish --dry-run --no-verify --locked --allow-dirty
