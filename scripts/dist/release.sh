#!/usr/bin/env bash
# Builds and checks what a release consists of, and leaves it in dist/release-VERSION of the target folder, sorted by where it goes, with
# UPLOAD.md, which has the commands. Nothing is uploaded, and no account is asked for.
#
#   scripts/dist/release.sh [PART…]      PART as listed below; all of them when none is given
#
#   module    the source and the tarballs of `make prebuilt`, with locktop       github/
#   deb       the Debian package                                                 github/
#   image     a check of the image, which scripts/dist/images/push.sh publishes  -
#   python, node, rust         by `make -C clients/LANG dist`                    pypi/, npm/, crates/
#   java, integrations         the same, as a bundle for Maven Central           maven/
#   go                         the same; its release is a tag for each module    -
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root" || exit 1
target=${CARGO_TARGET_DIR:-$root/target}
dist=$target/dist
all=(module deb image python node go java integrations rust)
version=$(sed -nE 's/^version *= *"(.*)"/\1/p;T;q' Cargo.toml)
name() { sed -n "s/^$1 //p" packaging/names; }
into=$dist/release-$version

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
        *-javadoc.jar) return 0 ;;
        *.deb) grep -q '/copyright$' <<<"$inside" ;;
        *) grep -qi 'LICENSE-MIT' <<<"$inside" && grep -qi 'LICENSE-APACHE' <<<"$inside" ;;
    esac
}

# put FOLDER FILE…: into the folder of the release, each with its licences.
put() {
    local folder=$into/$1 file
    shift
    mkdir -p "$folder"
    [ -e "${1:-}" ] || { bad "nothing was made"; return; }
    for file; do
        licensed "$file" || { bad "$(basename "$file") has not both licences in it"; continue; }
        cp "$file" "$folder/"
        say "$(basename "$folder")/$(basename "$file"): $(wc -c <"$file" | numfmt --to=iec) in $(content "$file" | wc -l) entries"
    done
}

# run NAME COMMAND…: its output is shown only when it fails.
run() {
    local log=$temp/$1.log
    shift
    "$@" >"$log" 2>&1 || { tail -n 30 "$log" >&2; bad "$*"; return 1; }
}

# tried NAME PATTERN: the lines of its output that say how it was tried.
tried() { while read -r line; do say "tried: $line"; done < <(grep -E "$2" "$temp/$1.log" | sed -E 's/^[=# ]+//'); }

# A release is made of a commit that everybody can have, and its changelog says what is in it.
preconditions() {
    [ -z "$(git status --porcelain --untracked-files=no)" ] || say "not yet: there are changes that are not committed"
    git rev-parse --verify --quiet "refs/tags/v$version" >/dev/null || say "not yet: there is no tag v$version"
}

# The section of the changelog, as the text of the release, whose links lead to the tag.
notes() {
    awk -v head="## $version " 'index($0, head) == 1 { inside = 1; next } /^## / { inside = 0 } inside' CHANGELOG.md |
        sed -E "s|\]\(([^):]+)\)|]($(name repository)/blob/v$version/\1)|g"
}

module() {
    run module make dist && run prebuilt make prebuilt || return
    ! grep -q 'left out' "$temp/prebuilt.log" || bad "$(grep 'left out' "$temp/prebuilt.log")"
    put github "$dist/redis-lock-$version.tar.gz" "$dist"/prebuilt/*.tar.gz
    tried prebuilt ': a lock, a waiter, a restart|NOT loaded'
}

deb() { run deb make deb-check && put github "$dist"/*.deb && tried deb '^deb-check: '; }

image() {
    run hadolint scripts/dist/docker-check.sh && tried hadolint hadolint
    run image make docker-build-check || return
    say "$(grep 'left out' "$temp/image.log" || echo "it starts, gives a lock, and keeps it over a restart; from stand-ins of the base images, so it is not for others")"
}

# client PART FOLDER: its `make dist` checks what it makes.
client() { run "$1" make -C "clients/$2" dist && tried "$1" "took a lock|one lock( with|,)|a lock (with|of) "; }
python() { client python python && put pypi clients/python/dist/*.whl clients/python/dist/*.tar.gz; }
node() { client node node && put npm clients/node/target/dist/*.tgz; }
rust() { client rust rust && put crates "clients/rust/target/package/redis-lock-client-$version.crate"; }
go() { client go go && say "the tags clients/go/v$version, clients/go/rueidisdriver/v$version, clients/go/redislockotel/v$version"; }

# bundle FOLDER ARTIFACT…: the layout of a repository, which a bundle for Maven Central has, too.
bundle() {
    local group artifact jar
    group=$(name maven-group | tr . /)
    mkdir -p "$into/maven/$group"
    for artifact in "${@:2}"; do
        (cd "$1/$group" && find "$artifact/$version" -type f -exec cp --parents -t "$into/maven/$group" {} +) || bad "there is no $artifact"
        while read -r jar; do
            licensed "$jar" || bad "$(basename "$jar") has not both licences in it"
            say "maven/$(basename "$jar"): $(wc -c <"$jar" | numfmt --to=iec)"
        done < <(find "$1/$group/$artifact" -path "*/$version/*.jar" | sort)
    done
}
java() { client java java && bundle clients/java/target/staging redis-lock-client; }
# Their folder has the client, too, without its documents.
integrations() {
    client integrations java/integrations &&
        bundle clients/java/integrations/target/dist/staging redis-lock-integrations redis-lock-shedlock redis-lock-spring-boot-starter
}

# How each folder is uploaded: also what .github/workflows/release.yml does.
upload() {
    cat <<MD
# redis-lock $version: how to upload it

Run these in this folder, each once, with the account that owns the name. A registry never takes the same version again.

\`\`\`sh
gh release create v$version --repo $(name repository | sed 's|https://||') --title "redis-lock $version" --notes-file NOTES.md github/*
twine upload pypi/*
npm publish npm/*.tgz --access public
\`\`\`

- crates.io: \`cargo publish --locked\` in \`clients/rust\` of the tag. It packs the file of \`crates/\` again.
- Maven Central: sign each file of \`maven/\` that is no checksum (\`gpg --armor --detach-sign\`), zip the folder's content, upload the zip in the Central Portal.
- Go: \`git tag\` and \`git push\` of \`clients/go/v$version\`, \`clients/go/rueidisdriver/v$version\`, \`clients/go/redislockotel/v$version\`.
- Images: the workflow \`release\` builds and pushes them to $(name image), a tag for each base.
MD
}

chosen=("$@")
[ ${#chosen[@]} -gt 0 ] || chosen=("${all[@]}")
rm -rf "$into"
mkdir -p "$into"
preconditions
for part in "${chosen[@]}"; do
    [[ " ${all[*]} " == *" $part "* ]] || { echo "release: there is no $part; there are: ${all[*]}" >&2; exit 1; }
    echo "== release: $part"
    report+=("$part")
    "$part"
done
notes >"$into/NOTES.md"
[ -s "$into/NOTES.md" ] || bad "CHANGELOG.md has no section $version"
upload >"$into/UPLOAD.md"
[ ! -d "$into/github" ] || (cd "$into/github" && sha256sum -- * >"$temp/sums" && mv "$temp/sums" SHA256SUMS)
echo "== release $version: in $into; nothing was uploaded"
printf '%s\n' "${report[@]}"
[ -z "$failed" ]
