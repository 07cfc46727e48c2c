#!/usr/bin/env bash
# Packs the crate, builds what was packed, and takes a lock by it in a new project. Uploads nothing.
set -euo pipefail
cd "$(dirname "$0")"
: "${REDIS_LOCK_SERVERS:?}" "${REDIS_LOCK_MODULE:?}"
program=$REDIS_LOCK_SERVERS/${REDIS_LOCK_SERVER:-redis-8.2.3}/bin/server

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
. ../../scripts/server.sh
trap 'stop_server; rm -rf "$project"' EXIT
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
start_server "$project/log" "$program" --save '' --dir "$project" --loadmodule "$REDIS_LOCK_MODULE"
CARGO_TARGET_DIR=$PWD/target cargo run --quiet --manifest-path "$project/Cargo.toml" -- \
    "redis://127.0.0.1:$port"

echo "# What cargo publish would upload, and does not:"
cargo publish --dry-run --no-verify --locked --allow-dirty
