#!/usr/bin/env bash
# Builds what would be published, checks it, lists it, and has a small program of another project take locks with it on
# a real server. It uploads nothing.
set -euo pipefail
cd "$(dirname "$0")"
published=(redis-lock-shedlock redis-lock-spring-boot-starter)
staging=$PWD/target/dist/staging
rm -rf target/dist
mkdir -p "$staging"

echo "== build and stage"
# The client comes from its own folder: here it is only what the two depend on.
$MVN -q -f ../pom.xml package org.apache.maven.plugins:maven-deploy-plugin:3.1.4:deploy -DskipTests -Dmaven.javadoc.skip \
    -Dmaven.source.skip -Dmdep.skip -DaltDeploymentRepository="staging::file://$staging"
$MVN -q deploy -DskipTests -DaltDeploymentRepository="staging::file://$staging" -pl "$(IFS=,; echo "${published[*]}")" -am

echo "== check"
# What Maven Central asks of a POM. Its own checker runs at the upload only.
parent=$(echo "$staging"/io/github/redis-lock/redis-lock-integrations/*/*.pom)
for element in url licenses developers scm; do
    grep -q "<$element>" "$parent" || { echo "the parent has no <$element>" >&2; exit 1; }
done
for module in "${published[@]}"; do
    for element in name description; do
        grep -q "<$element>" "$staging/io/github/redis-lock/$module"/*/*.pom || { echo "$module has no <$element>" >&2; exit 1; }
    done
done
if grep -l SNAPSHOT "$staging"/io/github/redis-lock/*/*/*.pom; then
    echo "a snapshot cannot be published" >&2
    exit 1
fi
for module in "${published[@]}"; do
    for kind in "" -sources -javadoc; do
        jar=$(echo "$staging/io/github/redis-lock/$module"/*/"$module"-*[0-9]$kind.jar)
        [ -s "$jar" ] || { echo "no $module$kind.jar" >&2; exit 1; }
    done
    jar=$(echo "$staging/io/github/redis-lock/$module"/*/"$module"-*[0-9].jar)
    names=$(unzip -Z1 "$jar")
    for licence in LICENSE-MIT LICENSE-APACHE; do
        grep -qx "META-INF/$licence" <<<"$names" || { echo "$module has no $licence" >&2; exit 1; }
    done
    echo "== $(basename "$jar")"
    grep -v '/$' <<<"$names"
done

echo "== use it from another project, with an empty local repository"
# Everything but the project's own comes from the packages that are on this machine already.
cat >target/dist/settings.xml <<SETTINGS
<settings>
  <localRepository>$PWD/target/dist/repository</localRepository>
  <mirrors>
    <mirror>
      <id>here</id>
      <mirrorOf>central</mirrorOf>
      <url>file://${HOME}/.m2/repository</url>
    </mirror>
  </mirrors>
</settings>
SETTINGS
classpath=$PWD/target/dist/classpath
$MVN -q -s target/dist/settings.xml -f dist/pom.xml dependency:build-classpath \
    -Dstaging="file://$staging" -Dmdep.outputFile="$classpath"
grep -q "staging=" target/dist/repository/io/github/redis-lock/redis-lock-shedlock/*/_remote.repositories

folder=$(mktemp -d)
. ../../../scripts/server.sh
trap 'stop_server; rm -rf "$folder"' EXIT
start_server "$folder/log" "$REDIS_LOCK_SERVERS/${CLIENT_SERVER:-redis-7.0.15}/bin/server" --save "" --dir "$folder" \
    --loadmodule "$REDIS_LOCK_MODULE"
java -cp "$(cat "$classpath")" dist/TakeLocks.java --spring.data.redis.port="$port"

echo "== would be uploaded (nothing was)"
(cd "$staging" && find . -type f -path '*redis-lock-s[hp]*' ! -name '*.md5' ! -name '*.sha1' ! -name 'maven-metadata*' |
    sort && find . -type f -path '*redis-lock-integrations*' -name '*.pom')
