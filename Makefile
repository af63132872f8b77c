# Everything that one does with a checkout. Needs Python 3.11 or newer and a package index; see CONTRIBUTING.md.
#
#   make run      installs, and runs what there is to see         make test     installs, and runs every test
#   make check    lint, types and the fast tests                  make bench    the benchmarks (ONLY=codec: one group)
#   make protos   generates the code of the .proto files anew     make clean    takes away what make made
#   make sim      the simulation (SEEDS=1000 START=0: which seeds; SEED=123: one, with its trace)
#   make sim-mutants   whether the simulation notices what is broken on purpose

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
ONLY ?=
SEED ?=
SEEDS ?= 1000
START ?= 0
MAKEFLAGS += --no-print-directory

.DEFAULT_GOAL := help
.PHONY: help run test check bench sim sim-mutants protos clean

help:
	@sed -n 's/^#  *make/make/p' Makefile

# Standard output is the program's alone: what installing has to say goes to standard error.
$(VENV)/.installed: pyproject.toml $(wildcard */*/__init__.py)
	@test -n "$(PYTHON)" || { echo 'Python 3.11 or newer is needed, and none is on the PATH' >&2; exit 1; }
	@echo 'installing into $(VENV) (a minute or two, once)' >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]' >&2
	@$(BIN)/python -m magnetar_cli.local_java >&2 || \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[java]' >&2
	@touch $@

run: $(VENV)/.installed
	@$(BIN)/magnetar tour

test: $(VENV)/.installed
	@$(BIN)/python -m pytest

check: $(VENV)/.installed
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q -m 'not slow'

bench: $(VENV)/.installed
	@$(BIN)/python -m tests.bench $(ONLY)

# Replayed exactly: nothing may depend on the order of a set, and if it did, it would be the same order each time.
sim sim-mutants: export PYTHONHASHSEED := 0
sim: $(VENV)/.installed
	@$(BIN)/python -m tests.sim $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) --start $(START) --counts)

sim-mutants: $(VENV)/.installed
	@$(BIN)/python -m tests.mutants --sim && $(BIN)/python -m tests.mutants --rounds

protos: $(VENV)/.installed
	@$(BIN)/python protos/generate.py

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
