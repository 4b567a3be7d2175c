# Two commands on a fresh machine: `make verify` and `make test`. Each sets up .venv by itself.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# The suite runs two processes on two cores; a BLAS that starts threads of its own only gets in their way.
THREADS := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

.DEFAULT_GOAL := help
.PHONY: help verify self-test test test-all lint docs bench audit lock clean

help:
	@echo "make verify     close the triangle: reference, fast and gibbs judged on real data"
	@echo "make test       the test suite without the slow tests"
	@echo "make test-all   the whole test suite"
	@echo "make self-test  seed faults and watch the judge turn red on each"
	@echo "make audit      the ledger of equations, perturbation included"
	@echo "make lint       ruff, mypy, import contracts"
	@echo "make docs       the documentation, warnings as errors"
	@echo "make bench      speed and memory as ratios to a floor measured in the same run"

# Only what running needs: `make verify` on a fresh machine should wait for nothing else.
$(VENV)/run.stamp: requirements/run.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("python: found %d.%d, expected >= 3.11; try make PYTHON=python3.12" % sys.version_info[:2])'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-compile -r requirements/run.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/dev.stamp: $(VENV)/run.stamp requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-compile -r requirements/dev.txt
	@touch $@

verify: $(VENV)/run.stamp
	$(THREADS) $(BIN)/triad verify

self-test: $(VENV)/run.stamp
	$(THREADS) $(BIN)/triad verify --self-test

test: $(VENV)/dev.stamp
	$(THREADS) $(BIN)/python -m pytest -n 2 -q -m "not slow"

test-all: $(VENV)/dev.stamp
	$(THREADS) $(BIN)/python -m pytest -n 2 -q

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

audit: $(VENV)/dev.stamp
	$(THREADS) $(BIN)/triad audit --perturb

docs: $(VENV)/dev.stamp
	$(BIN)/sphinx-build -W --keep-going -q -j 2 -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

bench: $(VENV)/run.stamp
	$(THREADS) $(BIN)/triad bench

# Pins for CI, written without index addresses.
lock: $(VENV)/dev.stamp
	sh requirements/lock.sh

clean:
	rm -rf $(VENV) build dist docs/_build results .pytest_cache .mypy_cache .ruff_cache
