#!/bin/sh
# Stands in for docker-entrypoint.sh of the images of Redis and Valkey: what the Dockerfile relies
# on, in the same order. SERVER is the name of the program and of the user.
set -e
# A word that begins with a dash, or a file of configuration, comes behind the server's name.
if [ "${1#-}" != "$1" ] || [ "${1%.conf}" != "$1" ]; then set -- "$SERVER-server" "$@"; fi
if [ "$1" = "$SERVER-server" ] && [ "$(id -u)" = 0 ]; then
    find . \! -user "$SERVER" -exec chown "$SERVER" '{}' +
    exec setpriv --reuid="$SERVER" --regid="$SERVER" --clear-groups -- "$0" "$@"
fi
# From Redis 8 on all that is in this folder is loaded.
if [ "$SERVER" = redis ]; then
    for module in /usr/local/lib/redis/modules/*.so; do
        [ ! -x "$module" ] || set -- "$@" --loadmodule "$module"
    done
fi
umask 0077
exec "$@"
