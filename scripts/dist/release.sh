#!/usr/bin/env bash
# Builds and checks what a release consists of, and leaves it in dist/release-VERSION of the target
# folder, sorted by where it goes. Nothing is uploaded, and no account is asked for.
#
#   scripts/dist/release.sh [PART…]      PART as listed below; all of them when none is given
#
#   module    the source and the tarballs of `make prebuilt`, with locktop       github/
#   deb       the Debian package                                                 github/
#   image     a check of the image, which scripts/dist/images/push.sh publishes  -
#   python, node, rust         by `make -C clients/LANG dist`                    pypi/, npm/, crates/
#   java, integrations         the same, as a bundle for Maven Central           maven/
#   go                         the same; its release is a tag for each module    -
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
dist=${CARGO_TARGET_DIR:-$PWD/target}/dist
version=$(sed -nE 's/^version *= *"(.*)"/\1/p;T;q' Cargo.toml)
name() { sed -n "s/^$1 //p" packaging/names; }
into=$dist/release-$version
[ $# -gt 0 ] || set -- module deb image python node go java integrations rust

# Both licences have to be in what somebody downloads. lintian looks for those of a Debian package,
# and the Javadoc of a jar comes beside it, without them.
licensed() {
    local file found
    for file; do
        case $file in
            *.deb | *-javadoc.jar) continue ;;
            *.whl | *.jar) found=$(python3 -m zipfile -l "$file") ;;
            *) found=$(tar -tf "$file") ;;
        esac
        [[ ${found^^} == *LICENSE-APACHE*LICENSE-MIT* || ${found^^} == *LICENSE-MIT*LICENSE-APACHE* ]] ||
            { echo "release: $file has not both licences in it" >&2; exit 1; }
    done
}

# put FOLDER FILE…: into the folder of the release.
put() {
    licensed "${@:2}"
    mkdir -p "$into/$1"
    cp "${@:2}" "$into/$1/"
}

# bundle FOLDER ARTIFACT…: the layout of a repository, which a bundle for Maven Central has, too.
bundle() {
    local group artifact
    group=$(name maven-group | tr . /)
    mkdir -p "$into/maven/$group"
    for artifact in "${@:2}"; do
        licensed "$1/$group/$artifact/$version"/*.jar
        (cd "$1/$group" && find "$artifact/$version" -type f -exec cp --parents -t "$into/maven/$group" {} +)
    done
}

rm -rf "$into"
mkdir -p "$into"
for part; do
    echo "== release: $part"
    case $part in
        module)
            make dist prebuilt
            # Four targets, and locktop by itself for two machines.
            [ "$(find "$dist/prebuilt" -name '*.tar.gz' | wc -l)" = 6 ] || { echo "release: a target was left out" >&2; exit 1; }
            put github "$dist/redis-lock-$version.tar.gz" "$dist"/prebuilt/*.tar.gz ;;
        deb)
            make deb-check
            put github "$dist"/*.deb ;;
        image) make docker-check docker-build-check ;;
        python | node | rust | go | java) make -C "clients/$part" dist ;;&
        python) put pypi clients/python/dist/*.whl clients/python/dist/*.tar.gz ;;
        node) put npm clients/node/target/dist/*.tgz ;;
        rust) put crates "clients/rust/target/package/redis-lock-client-$version.crate" ;;
        go) ;;
        java) bundle clients/java/target/staging redis-lock-client ;;
        integrations)
            make -C clients/java/integrations dist
            # Its folder has the client, too, without its documents.
            bundle clients/java/integrations/target/dist/staging redis-lock-integrations redis-lock-shedlock redis-lock-spring-boot-starter ;;
        *) echo "release: there is no $part" >&2; exit 1 ;;
    esac
done

# The section of the changelog, as the text of the release, whose links lead to the tag.
awk -v head="## $version " 'index($0, head) == 1 { inside = 1; next } /^## / { inside = 0 } inside' CHANGELOG.md |
    sed -E "s|\]\(([^):]+)\)|]($(name repository)/blob/v$version/\1)|g" >"$into/NOTES.md"
[ -s "$into/NOTES.md" ] || { echo "release: CHANGELOG.md has no section $version" >&2; exit 1; }
[ ! -d "$into/github" ] || (cd "$into/github" && sha256sum -- * >../sums && mv ../sums SHA256SUMS)
echo "== release $version: in $into; nothing was uploaded"
find "$into" -type f -printf '%s\t%P\n'
