# A server with the module: Redis by default, or any other image of a server that is made of Debian 12 or later.
#
#   docker build -t redis-lock .
#   docker build -t valkey-lock --build-arg SERVER=valkey/valkey:8.0-bookworm .
#
# The module needs the C library of Debian 12, so no image on Alpine will do. scripts/dist/images/push.sh has those that are published.
ARG RUST=1.95
ARG SERVER=redis:8.2-bookworm

FROM rust:${RUST}-bookworm AS build
# The build reads the server's C header by libclang. Any version will do, and Debian keeps one at a time.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libclang-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /redis-lock
COPY . .
RUN cargo build --release --locked --lib \
    && cargo build --release --locked --manifest-path clients/locktop/Cargo.toml --target-dir target

FROM ${SERVER}
LABEL org.opencontainers.image.title="redis-lock" \
      org.opencontainers.image.description="A server with locks as a native type" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0"
COPY --from=build /redis-lock/packaging/NOTICES /redis-lock/packaging/NOTICES.locktop /redis-lock/LICENSE-MIT /redis-lock/LICENSE-APACHE /redis-lock/redis.conf.example /usr/local/share/doc/redis-lock/
COPY --from=build --chmod=755 /redis-lock/target/release/locktop /usr/local/bin/
# Not in /usr/local/lib/redis/modules: from Redis 8 on the image's entrypoint loads whatever is there, and a module that is loaded twice
# ends the server.
COPY --from=build --chmod=755 /redis-lock/target/release/libredis_lock.so /usr/local/lib/redis-lock/
# Both images put the name of their server before arguments that begin with a dash.
CMD ["--loadmodule", "/usr/local/lib/redis-lock/libredis_lock.so"]
