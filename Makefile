# The two commands for newcomers: `make demo` and `make test`. Each sets up what it needs, or says what is missing.

# One target folder outside the checkout: a fresh clone then builds only kiteline itself.
CACHE ?= $(if $(KITELINE_CACHE),$(KITELINE_CACHE),$(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/kiteline)
export CARGO_TARGET_DIR ?= $(CACHE)/target
CARGO = cargo
KITELINE = $(CARGO_TARGET_DIR)/release/kiteline
# Components of the sample plugins, for the demo and the tests.
export KITELINE_PLUGINS ?= $(CARGO_TARGET_DIR)/plugins

.PHONY: help setup build plugins demo test check unit e2e bench soak fmt

help:
	@echo 'make demo    the whole of kiteline in one process tree: a plugin replaced live, a worker killed, records counted'
	@echo 'make test    everything that has to hold: formatting, lints, units, simulator, real Kafka and ZooKeeper'
	@echo 'make bench   throughput beside a native loop, as ratios in one run'
	@echo 'make soak    the simulator without an end; SEEDS=n for so many, FROM=n to begin elsewhere'
	@echo 'make fmt     format everything'

setup:
	@tests/setup

# Always the whole workspace: another selection of packages has other features, and builds wasmtime again.
build: setup
	$(CARGO) build --release --workspace

plugins: build
	@mkdir -p $(KITELINE_PLUGINS)
	CARGO_TARGET_DIR=$(CARGO_TARGET_DIR)/guests $(KITELINE) plugin build plugins --out $(KITELINE_PLUGINS) >/dev/null

demo: plugins
	$(KITELINE) demo --plugins $(KITELINE_PLUGINS) $(DEMO)

test: check unit e2e

check: setup
	$(CARGO) fmt --all --check
	cd plugins && $(CARGO) fmt --all --check
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings

unit: plugins
	$(CARGO) test --release --workspace --exclude kiteline-tests
	$(CARGO) test --release -p kiteline-tests --test tidy --test sim
	cd plugins && CARGO_TARGET_DIR=$(CARGO_TARGET_DIR)/guests $(CARGO) test --release

# One broker and one ZooKeeper for all of it; then the stores against a ZooKeeper with TLS and SASL.
e2e: plugins
	@tests/setup services
	$(CARGO) test --release -p kiteline-tests --no-run
	KITELINE_KAFKA_TIER=1 tests/services/kafka run -- tests/services/zookeeper run -- \
		$(CARGO) test --release -p kiteline-tests --test e2e -- --test-threads=2
	KITELINE_ZK_USERS='kiteline:secret' tests/services/zookeeper run --tls -- \
		$(CARGO) test --release --workspace --exclude kiteline-tests --test store_contract --test store_zookeeper

bench: plugins
	@tests/setup services
	$(CARGO) build --release -p kiteline-tests --bins
	tests/services/kafka run -- $(CARGO_TARGET_DIR)/release/bench $(BENCH)

# Seeds in portions of 5,000, from FROM on, until one fails or SEEDS are done.
soak: setup
	@$(CARGO) test --release -p kiteline-tests --test sim --no-run
	@from=$(or $(FROM),1); until=$$((from + $(or $(SEEDS),1000000000))); \
	while [ $$from -lt $$until ]; do \
		KITELINE_SIM_FROM=$$from KITELINE_SIM_SEEDS=5000 \
			$(CARGO) test -q --release -p kiteline-tests --test sim -- --exact seeds --nocapture || exit 1; \
		from=$$((from + 5000)); echo "seeds below $$from passed"; \
	done

fmt: setup
	$(CARGO) fmt --all
	cd plugins && $(CARGO) fmt --all
