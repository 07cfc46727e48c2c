#!/usr/bin/env bash
# Builds what would be published, checks it, lists it, and takes one lock with it in an empty local repository.
# Nothing is uploaded.
set -euo pipefail
cd "$(dirname "$0")"
program=${REDIS_LOCK_SERVERS:?run it by make}/redis-7.0.15/bin/server
module=${REDIS_LOCK_MODULE:?run it by make}
work=$PWD/target/dist
staging=$PWD/target/staging
die() { echo "dist: $*" >&2; exit 1; }

rm -rf "$staging" "$work"
mvn -B -ntp -Dstyle.color=never -q clean deploy -DskipTests -DaltDeploymentRepository="staging::file://$staging"
mkdir -p "$work"

# What Maven Central asks for. Its own check runs at the upload.
version=$(sed -n 's|^  <version>\(.*\)</version>|\1|p' pom.xml)
folder=$staging/io/github/redis-lock/redis-lock-client/$version
base=$folder/redis-lock-client-$version
case $version in *-SNAPSHOT) die "$version cannot be published" ;; esac
for file in "$base.pom" "$base.jar" "$base-sources.jar" "$base-javadoc.jar"; do
    [ -s "$file" ] || die "$file is missing"
    for sum in md5 sha1; do
        [ "$(cat "$file.$sum")" = "$("${sum}sum" "$file" | cut -d' ' -f1)" ] || die "$file.$sum is wrong"
    done
done
for element in name description url license developer scm; do
    grep -q "<$element>" "$base.pom" || die "the pom has no <$element>"
done
for driver in jedis lettuce-core; do
    grep -A3 "<artifactId>$driver</artifactId>" "$base.pom" | grep '<optional>true' >/dev/null || die "$driver is not optional"
done
for jar in "$base.jar" "$base-sources.jar"; do
    for entry in META-INF/LICENSE-MIT META-INF/LICENSE-APACHE META-INF/CHANGELOG.md; do
        jar tf "$jar" | grep -x "$entry" >/dev/null || die "$jar has no $entry"
    done
done
bytecode=$(cd "$work" && jar xf "$base.jar" io/github/redislock/RedisLock.class &&
    javap -v io/github/redislock/RedisLock.class | sed -n 's/.*major version: //p')
[ "$bytecode" = 61 ] || die "the classes are of version $bytecode, not of Java 17"

echo "== redis-lock-client-$version.jar"
jar tf "$base.jar" | grep -v '/$'

# A clean environment: an empty local repository, one driver at a time.
. ../../scripts/server.sh
trap stop_server EXIT
start_server "$work/log" "$program" --save '' --dir "$work" --loadmodule "$module"
take() {
    local driver=$1 user=$work/$2
    mkdir -p "$user"
    cat >"$user/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>a</groupId><artifactId>user</artifactId><version>1</version>
  <repositories><repository><id>staging</id><url>file://$staging</url></repository></repositories>
  <dependencies>
    <dependency><groupId>io.github.redis-lock</groupId><artifactId>redis-lock-client</artifactId><version>$version</version></dependency>
    $driver
  </dependencies>
</project>
POM
    mvn -B -ntp -Dstyle.color=never -q -f "$user/pom.xml" -Dmaven.repo.local="$work/repository" \
        org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath -Dmdep.outputFile="$user/classpath"
    javac -Werror -cp "$(cat "$user/classpath")" -d "$user" dist/TakeOneLock.java
    echo "== one lock with $2: $(java -cp "$user:$(cat "$user/classpath")" TakeOneLock "redis://127.0.0.1:$port")"
}
take '<dependency><groupId>redis.clients</groupId><artifactId>jedis</artifactId><version>7.5.3</version></dependency>' jedis
take '<dependency><groupId>io.lettuce</groupId><artifactId>lettuce-core</artifactId><version>6.8.2.RELEASE</version></dependency>' lettuce

echo "== would be uploaded to Maven Central, each with a signature; nothing was"
(cd "$staging" && find . -type f -path "*/$version/*" ! -name '*.md5' ! -name '*.sha1' -printf '%s\t%P\n' | sort -k2)
