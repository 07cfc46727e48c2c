#!/usr/bin/env bash
# Builds and checks what a release consists of, and says what would be uploaded where. Nothing is uploaded, and no account is asked for.
#
#   scripts/dist/release.sh [PART…]      PART as listed below; all of them when none is given
#   scripts/dist/release.sh names        asks each registry once whether the name is free
#
#   module    the tarballs of the module: this machine's, the source, and those of `make prebuilt`     the repository's releases
#   deb       the Debian package                                                                     the repository's releases
#   image     the container image, where `make docker-build-check` can build it                      a registry of images
#   integrations                     ShedLock and Spring, by clients/java/integrations               Maven Central
#   python, node, go, java, rust                       the client, by `make -C clients/LANG dist`     PyPI, npm, tags, Maven Central, crates.io
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root" || exit 1
target=${CARGO_TARGET_DIR:-$root/target}
dist=$target/dist
all=(module deb image python node go java integrations rust)
version=$(sed -nE 's/^version *= *"(.*)"/\1/p;T;q' Cargo.toml)
repository=$(sed -nE 's/^repository *= *"(.*)"/\1/p;T;q' Cargo.toml)

temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
failed=
report=()
say() { report+=("  $*"); }
bad() { report+=("  FAILED: $*"); failed=1; }

# What an archive holds, a path per line.
content() {
    case $1 in
        *.whl | *.jar | *.zip) python3 -c 'import sys, zipfile; print("\n".join(zipfile.ZipFile(sys.argv[1]).namelist()))' "$1" ;;
        *.tar.gz | *.tgz | *.crate) tar -tzf "$1" ;;
        *.deb) dpkg-deb --contents "$1" | awk '{ print $6 }' ;;
    esac
}

# Both licences have to be in what somebody downloads. A Debian package has them in a file of its own. The Javadoc
# of a jar comes beside it, without them.
licensed() {
    local inside
    inside=$(content "$1")
    case $1 in
        *.deb) grep -q '/copyright$' <<<"$inside" ;;
        *) grep -qi 'LICENSE-MIT' <<<"$inside" && grep -qi 'LICENSE-APACHE' <<<"$inside" ;;
    esac
}

# artifacts FILE…
artifacts() {
    local file
    [ $# -gt 0 ] || { bad "nothing was made"; return; }
    for file; do
        if [[ $file == *-javadoc.jar ]]; then
            say "$(basename "$file")"
        elif licensed "$file"; then
            say "$(basename "$file"): $(wc -c <"$file" | numfmt --to=iec) in $(content "$file" | wc -l) entries, with its licences"
        else
            bad "$(basename "$file") has not both licences in it"
        fi
    done
}

# run NAME COMMAND…: its output is shown only when it fails.
run() {
    local log=$temp/$1.log
    shift
    "$@" >"$log" 2>&1 || { tail -n 30 "$log" >&2; bad "$*"; return 1; }
}

# A release is made of a commit that everybody can have, and its changelog says what is in it.
preconditions() {
    [ -z "$(git status --porcelain --untracked-files=no)" ] || say "not yet: there are changes that are not committed"
    grep -qE "^## \[?$version" CHANGELOG.md || say "not yet: CHANGELOG.md has no section $version"
    git rev-parse --verify --quiet "refs/tags/v$version" >/dev/null || say "not yet: there is no tag v$version"
}

module() {
    run module make dist && run prebuilt make prebuilt || return
    artifacts "$dist"/*.tar.gz "$dist"/prebuilt/*.tar.gz
    say "would do: gh release create v$version, with these and both files SHA256SUMS, at $repository"
}

deb() {
    run deb make deb-check || return
    artifacts "$dist"/*.deb
    say "would do: gh release upload v$version, with this"
}

image() {
    run image make docker-build-check || return
    if grep -q 'left out' "$temp/image.log"; then
        say "$(grep 'left out' "$temp/image.log")"
    else
        say "the image starts, gives a lock, and keeps it over a restart (from stand-ins of the base images, so this one is not for others)"
    fi
    say "would do: docker build and docker push, with the real base images, $(sed -nE 's/^ARG (RUST|SERVER)=(.*)/\2/p' Dockerfile | paste -sd' ')"
}

# What `make dist` of the client in $1 has made: archives that are newer than its start.
client() {
    local folder=clients/${2:-$1} stamp=$temp/$1.stamp files
    [ -e "$folder/Makefile" ] || { bad "there is no $folder"; return; }
    grep -q '^dist:' "$folder/Makefile" || { bad "$folder/Makefile has no target dist"; return; }
    touch "$stamp"
    run "$1" make -C "$folder" dist || return
    mapfile -t files < <(find "$folder" \( -name node_modules -o -name '.venv*' -o -name .git -o -path '*/target/matrix' -o -name repository -o -path '*/target/dist/user' \) -prune -o -type f -newer "$stamp" \
        \( -name '*.whl' -o -name '*.tar.gz' -o -name '*.tgz' -o -name '*.jar' -o -name '*.crate' -o -name '*.zip' \) -print | sort)
    # The module of Go is the tagged folder itself.
    if [ "$1" = go ] && [ ${#files[@]} -eq 0 ]; then
        [ -e "$folder/LICENSE-MIT" ] && [ -e "$folder/LICENSE-APACHE" ] || bad "$folder has not both licences in it"
    else
        artifacts "${files[@]}"
    fi
    [ -e "$folder/CHANGELOG.md" ] || bad "$folder has no CHANGELOG.md"
}

python() { client python; say "would do: twine upload of these, as redis-lock-client"; }
node() { client node; say "would do: npm publish of this, as redis-lock-client"; }
java() { client java; say "would do: signed, a bundle to Maven Central, as io.github.redis-lock:redis-lock-client"; }
integrations() {
    client integrations java/integrations
    say "would do: signed, a bundle to Maven Central, as io.github.redis-lock:redis-lock-shedlock and redis-lock-spring-boot-starter"
}
rust() { client rust; say "would do: cargo publish in clients/rust, as redis-lock-client"; }
go() { client go; say "would do: git tag and push of clients/go/v$version, clients/go/rueidisdriver/v$version, clients/go/valkeydriver/v$version"; }

# One look-up for each name that a client's manifest has. A name that is there and is ours is fine, too.
names() {
    local taken
    taken() { say "$1: TAKEN ($2)"; }
    free() { say "$1: free"; }
    if taken=$(python3 -m pip index versions redis-lock-client 2>/dev/null | head -n1) && [ -n "$taken" ]; then taken PyPI "$taken"; else free "PyPI redis-lock-client"; fi
    if taken=$(npm view redis-lock-client version 2>/dev/null) && [ -n "$taken" ]; then taken npm "$taken"; else free "npm redis-lock-client"; fi
    if taken=$(cargo info --registry crates-io redis-lock-client 2>/dev/null | sed -n 's/^version: //p') && [ -n "$taken" ]; then taken crates.io "$taken"; else free "crates.io redis-lock-client"; fi
    if mvn -q -B -Dmaven.repo.local="$temp/m2" dependency:get -Dartifact=io.github.redis-lock:redis-lock-client:$version -Dtransitive=false >/dev/null 2>&1; then taken "Maven Central" "$version"; else free "Maven Central io.github.redis-lock:redis-lock-client"; fi
}

chosen=("$@")
[ ${#chosen[@]} -gt 0 ] || chosen=("${all[@]}")
if [ "${chosen[0]}" = names ]; then
    names
else
    preconditions
    for part in "${chosen[@]}"; do
        [[ " ${all[*]} " == *" $part "* ]] || { echo "release: there is no $part; there are: ${all[*]}" >&2; exit 1; }
        echo "== release: $part"
        report+=("$part")
        "$part"
    done
fi
echo "== release $version: nothing was uploaded"
printf '%s\n' "${report[@]}"
[ -z "$failed" ]
