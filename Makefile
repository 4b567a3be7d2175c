# Two commands on a fresh machine: `make verify` and `make test`. Each sets up .venv by itself.
# On Windows: GNU make with the bash of Git for Windows on the path, `make PYTHON=python`.
PYTHON ?= python3
VENV   := .venv
ifeq ($(OS),Windows_NT)
SHELL  := bash
SCRIPTS := Scripts
else
SCRIPTS := bin
endif
BIN    := $(VENV)/$(SCRIPTS)
MAINTAIN := $(BIN)/python -m validation.command.maintain
# The suite runs two processes on two cores; a BLAS that starts threads of its own only gets in their way.
THREADS := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
# A suite starts some hundred processes: without compiled modules each of them compiles NumPy and SciPy, for seconds.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help verify verify-full self-test fuzz mutate judge-bugs mutate-change test test-all test-kernels test-rounding test-oldest test-newest test-browser test-cluster lint docs docs-serve \
	bench audit ledger executed options record truths dist lock clean

help:
	@echo "make verify     close the triangle: reference, fast and gibbs judged on real data"
	@echo "make verify-full the same with every problem and longer chains; TRIAD_DATA=folder adds the data sets there"
	@echo "make test       the test suite without the slow tests"
	@echo "make test-all   the whole test suite"
	@echo "make test-kernels the suite and verify under five OpenBLAS kernels with 1 and 2 threads"
	@echo "make test-oldest, make test-newest  the suite with the oldest and the newest versions that pyproject.toml allows"
	@echo "make test-browser atlas, report and docs clicked through in a Chromium from the path"
	@echo "make self-test  the mistakes of tests/planted.toml: the checks named with each must fail; IDS=..."
	@echo "make audit      the ledger of equations, perturbation included; TARGET=PAPER:EQ"
	@echo "make ledger     write docs/ledger.md, the ledger as text"
	@echo "make executed   record who executes each equation in a quick verify; then the page of the ledger"
	@echo "make options    write docs/options.md"
	@echo "make record     run an experiment and keep its numbers for the claims; PAPER=... EXPERIMENT=... OPTIONS=..."
	@echo "make truths     make the truths that triad verify reads again; NAME=..."
	@echo "make fuzz       20 000 bad and extreme calls, N=... SEED=..."
	@echo "make mutate     random mistakes in the witnesses: what the checks see, what the tests see; N=200 SEED=..."
	@echo "make judge-bugs mistakes planted into programs: what triad judge sees, and whom it suspects; writes docs/judge-bugs.md"
	@echo "make mutate-change the same on the lines that differ from a commit; BASE=HEAD~1"
	@echo "make lint       ruff, mypy, import contracts"
	@echo "make docs       the documentation, warnings as errors"
	@echo "make docs-serve the same, then on http://127.0.0.1:8000, PORT=..."
	@echo "make dist       wheels of gpc-triad and of gpc-triad-truths, the draws of the library of truths"
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

verify-full: $(VENV)/run.stamp
	$(THREADS) $(BIN)/triad verify --full --output results/full

self-test: $(VENV)/run.stamp
	$(THREADS) $(BIN)/python tests/mutation/self_test.py $(foreach id,$(IDS),'$(id)')

test: $(VENV)/dev.stamp
	$(THREADS) $(BIN)/python -m pytest -n 2 --dist worksteal -q -m "not slow"

test-all: $(VENV)/dev.stamp
	$(THREADS) $(BIN)/python -m pytest -n 2 --dist worksteal -q

# Faults in earnest on a cluster of two worker processes, and its bench on few rows; make test-all kills thirty times each.
KILLS ?= 4
test-cluster: $(VENV)/dev.stamp
	TRIAD_KILLS=$(KILLS) $(THREADS) $(BIN)/python -m pytest -q -m slow tests/validation/cluster

# Which kernels, e.g. on a CPU without AVX-512: make test-kernels KERNELS="Haswell Nehalem"
KERNELS ?= Haswell SkylakeX Sandybridge Nehalem Prescott

test-kernels: $(VENV)/dev.stamp
	$(BIN)/python .ci/kernels.py --kernel $(KERNELS) --threads 1 2

# What .ci/run asks of two kernels besides the machine's own, one on each of two cores.
test-rounding: $(VENV)/dev.stamp
	$(BIN)/python .ci/kernels.py --others 2 --threads 1 --what verify rounding --side-by-side --output results/rounding

# Both make their environment anew, so that nothing stays of another Python or of yesterday. A version without a wheel
# for this Python is an error, not a compilation: the oldest are tested on 3.11.
test-oldest:
	$(PYTHON) -m venv --clear .venv-oldest
	.venv-oldest/$(SCRIPTS)/python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
		-r requirements/oldest.txt
	.venv-oldest/$(SCRIPTS)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(THREADS) .venv-oldest/$(SCRIPTS)/python -m pytest -n 2 --dist worksteal -q -m "not slow"

test-newest:
	$(PYTHON) -m venv --clear .venv-newest
	.venv-newest/$(SCRIPTS)/python -m pip install --quiet --disable-pip-version-check --upgrade -r requirements/build.in
	.venv-newest/$(SCRIPTS)/python -m pip install --quiet --disable-pip-version-check --upgrade --upgrade-strategy eager \
		--no-build-isolation -e ".[test]"
	.venv-newest/$(SCRIPTS)/python -m pip list --disable-pip-version-check --format freeze
	$(THREADS) .venv-newest/$(SCRIPTS)/python -m pytest -n 2 --dist worksteal -q -m "not slow"

# The pages as people see them; skipped by name where no browser is on the path.
$(VENV)/browser.stamp: $(VENV)/dev.stamp requirements/browser.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-compile -r requirements/browser.txt
	@touch $@

test-browser: $(VENV)/browser.stamp docs
	$(THREADS) $(BIN)/python -m pytest -q tests/browser

# Bad and extreme calls at every door; a finding is printed with the seed and the number that show it again.
fuzz: N ?= 20000
mutate: N ?= 200
SEED ?=
fuzz: $(VENV)/run.stamp
	PYTHONPATH=tests $(THREADS) $(BIN)/python -m fuzz --calls $(N) $(if $(SEED),--seed $(SEED)) --processes 2

# Random mistakes in the witnesses, one at a time: which fail a check of the judge, which a test. Some hours for N=200.
$(VENV)/mutation.stamp: $(VENV)/dev.stamp pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[mutation]"
	@touch $@

BASE ?= HEAD~1
mutate: $(VENV)/mutation.stamp
	$(THREADS) $(BIN)/python tests/mutation/run.py --n $(N) --seed $(or $(SEED),0)

# Mistakes planted into programs that are no witness: half an hour, and docs/judge-bugs.md.
judge-bugs: $(VENV)/dev.stamp
	PYTHONPATH=tests $(THREADS) $(BIN)/python -m judge_bugs.measure

# A handful of them on the lines that differ from a commit, as hints for its author.
mutate-change: $(VENV)/mutation.stamp
	$(THREADS) $(BIN)/python tests/mutation/run.py --n 12 --seed $(or $(SEED),0) --change $(BASE)

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --strict .ci/kernels.py .ci/wheel.py
	$(BIN)/lint-imports

audit: $(VENV)/dev.stamp
	$(THREADS) $(MAINTAIN) audit $(TARGET) --perturb

# The record that `.ci/run` compares with its own run, and the page that shows it.
executed: $(VENV)/run.stamp
	$(THREADS) $(MAINTAIN) record validation/ledger/executed.json --output results/executed
	$(MAINTAIN) audit --output docs/ledger.md

ledger: $(VENV)/run.stamp
	$(MAINTAIN) audit --output docs/ledger.md

options: $(VENV)/run.stamp
	$(MAINTAIN) options > docs/options.md

record: $(VENV)/run.stamp
	$(THREADS) $(MAINTAIN) reproduce $(PAPER) $(EXPERIMENT) $(OPTIONS) --record validation/claims/results

truths: $(VENV)/run.stamp
	$(MAINTAIN) truth --stored $(NAME)

docs: $(VENV)/dev.stamp
	$(BIN)/sphinx-build -W --keep-going -q -j 2 -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# On this machine alone: nobody else on the network sees it.
PORT ?= 8000
docs-serve: docs
	$(BIN)/python -m http.server $(PORT) --bind 127.0.0.1 --directory docs/_build/html

bench: $(VENV)/run.stamp
	$(THREADS) $(BIN)/triad bench

# The second wheel has draws of every truth: those that are not there are drawn first, some minutes on two cores.
dist: $(VENV)/dev.stamp
	$(THREADS) $(MAINTAIN) truths --draws distributions/truths/src/gpc_triad_truths --jobs 2
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist . ./distributions/truths

# Pins for CI, written without index addresses.
lock: $(VENV)/dev.stamp
	sh requirements/lock.sh

clean:
	rm -rf $(VENV) .venv-oldest .venv-newest build dist docs/_build results .pytest_cache .mypy_cache .ruff_cache
