#!/usr/bin/env bash
# Fetches this client's modules as the Go module proxy would, by tags in a clone of the last commit, and takes a lock by each one from a
# clean module. It uploads nothing: a Go module is published by a tag of the repository.
#
#   dist.sh VERSION
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
go=$(../../scripts/setup/languages/go.sh where)
version=$1
path=github.com/redis-lock/redis-lock/clients/go
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

git clone --quiet --bare "$(git rev-parse --show-toplevel)" "$work/repository"
for module in "" /rueidisdriver /redislockotel; do
    git -C "$work/repository" tag --force "clients/go$module/$version" >/dev/null
done
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=url.$work/repository.insteadOf GIT_CONFIG_VALUE_0=https://${path%/clients/go}
export GOPRIVATE=${path%/*/*/*} GOPROXY="file://$("$go" env GOMODCACHE)/cache/download,$("$go" env GOPROXY)"
export GOMODCACHE=$work/cache GOFLAGS="-mod=mod -modcacherw" GOWORK=off

coproc SERVER { exec python3 ../testing/servers.py server; } # It ends with its standard input.
IFS=/ read -r port _ <&"${SERVER[0]}"

# use MODULE FOREIGN IMPORTS LOCKS: a program takes a lock. Its users must not come to depend on what is foreign.
use() {
    local module=$path$1 app=$work/app$1 file
    mkdir -p "$app"
    cat >"$app/main.go" <<PROGRAM
package main

import (
	"fmt"
	"os"

	redislock "$path"
	$3
)

func main() {
	$4
	defer locks.Close()
	mutex := locks.NewMutex("dist")
	fmt.Println("a fence:", mutex.Lock() == nil && mutex.Fence() > 0)
	_, _ = mutex.Unlock()
}
PROGRAM
    (
        cd "$app"
        "$go" mod init example.com/app
        "$go" get "$module@$version"
        "$go" mod tidy
        for file in README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE; do # what pkg.go.dev shows, and what a licence asks for
            [ -f "$("$go" list -m -f '{{.Dir}}' "$module")/$file" ] || { echo "dist: $module has no $file" >&2; exit 1; }
        done
        if "$go" list -m all | grep -E "/($2) "; then echo "dist: users of $module would depend on it" >&2; exit 1; fi
        "$go" run . "127.0.0.1:$port" | tee /dev/stderr | grep -qx "a fence: true"
    )
    echo "dist: $module@$version works in a clean module"
}

use "" "rueidis|otel|redsync" '"github.com/redis/go-redis/v9"' \
    'locks := redislock.New(redis.NewClient(&redis.Options{Addr: os.Args[1]}))'
use /rueidisdriver otel '"github.com/redis-lock/redis-lock/clients/go/rueidisdriver"
	"github.com/redis/rueidis"' 'client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{os.Args[1]}})
	if err != nil {
		panic(err)
	}
	locks := redislock.NewWith(rueidisdriver.New(client))'
use /redislockotel rueidis '"github.com/redis-lock/redis-lock/clients/go/redislockotel"
	"github.com/redis/go-redis/v9"' 'locks, err := redislock.Open(redis.NewClient(&redis.Options{Addr: os.Args[1]}),
		redislock.WithObserver(redislockotel.New()))
	if err != nil {
		panic(err)
	}'
echo "dist: nothing was uploaded. To publish, the repository would get these tags:"
git -C "$work/repository" tag --list "clients/go*/$version"
