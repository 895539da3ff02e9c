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
	@echo 'make soak    the simulator without an end; SEEDS=n for so many'
	@echo 'make fmt     format everything'

setup:
	@tests/setup

build: setup
	$(CARGO) build --release -p kiteline

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

e2e: plugins
	@tests/setup services
	$(CARGO) test --release -p kiteline-tests --no-run
	KITELINE_KAFKA_TIER=1 tests/services/kafka run -- tests/services/zookeeper run -- \
		$(CARGO) test --release -p kiteline-tests --test e2e -- --test-threads=2
	KITELINE_KAFKA_TIER=1 tests/services/zookeeper run -- $(CARGO) test --release -p kiteline-connectors

bench: plugins
	@tests/setup services
	$(CARGO) build --release -p kiteline-tests --bins
	tests/services/kafka run -- $(CARGO_TARGET_DIR)/release/bench $(BENCH)

soak:
	@tests/setup
	KITELINE_SIM_SEEDS=$(or $(SEEDS),forever) $(CARGO) test --release -p kiteline-tests --test sim -- --nocapture soak

fmt: setup
	$(CARGO) fmt --all
	cd plugins && $(CARGO) fmt --all
