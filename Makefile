# Every target sets up what it needs in .venv; a second call starts within seconds.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
LOWEST := .venv-lowest
EXTRAS := weights,tensorboard,bench,slurm,geo,onnx,reben,web,dev
PIP    := -m pip install --quiet --disable-pip-version-check
PYTEST := -m pytest -n auto --dist worksteal -q
# A worker of pytest has one core.
THREAD := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive

.PHONY: demo test test-bare test-wheel test-lowest test-slow check format lock bench bench-record bench-features \
    pages fuzz mutation system-deps clean help

help:
	@echo "make demo            compare methods on synthetic scenes with one label each, write a report"
	@echo "make test            run the tests"
	@echo "make check           run what CI runs before the tests: ruff, mypy, import direction"
	@echo "make format          format the sources"
	@echo
	@echo "make test-bare       run the tests that use system programs again, with all of them hidden"
	@echo "make test-wheel      build the wheel and run the demo from it in an empty environment"
	@echo "make test-lowest     run the tests on the lowest versions that pyproject.toml allows"
	@echo "make test-slow       run the tests that train for minutes"
	@echo "make fuzz            try 10,000 damaged inputs on all commands and count how they end"
	@echo "make mutation        look for mistakes that no test would notice, for an hour"
	@echo "make system-deps     install Slurm, LaTeX and Chromium, without which some tests are skipped (Debian)"
	@echo "make lock            write uv.lock and the constraints after a change of dependencies"
	@echo
	@echo "make bench           measure speed and memory, as ratios inside one run"
	@echo "make bench-record    run all benchmarks and keep what docs/results/speed.md shows"
	@echo "make bench-features  compare all methods on features of AID, five seeds (needs ADAGC_DATA)"
	@echo "make pages           write docs/results and the results in README.md from their records"
	@echo "make clean           remove the environments and what was built"

# Rebuilt only when a dependency changes. The stamp comes last, so a broken set-up is repeated.
$(READY): constraints.txt
$(LOWEST)/.ready: constraints-lowest.txt
%/.ready: pyproject.toml
	@$*/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $*  # uv makes it without pip
	@echo "Setting up $* (once, a few minutes) ..."
	@$*/bin/python $(PIP) -c $(filter constraints%,$^) -e '.[$(EXTRAS)]'
	@touch $@

demo: $(READY)
	@$(BIN)/adagc demo --out runs/demo

test: $(READY)
	@$(THREAD) $(BIN)/python $(PYTEST)

# As on a machine with Python and make, whatever this one has.
test-bare: $(READY)
	@$(THREAD) $(BIN)/python tests/bare.py -q

test-wheel: $(READY)
	@$(BIN)/python -m pytest -q -m 'slow or not slow' tests/install/test_wheel.py

# The list is of Python 3.11 on Linux: newer ones have no wheels of some of these versions.
test-lowest: PYTHON := python3.11
test-lowest: $(LOWEST)/.ready
	@$(THREAD) $(LOWEST)/bin/python $(PYTEST)

# The sentence encoder is large, and only one slow test runs it.
test-slow: $(READY)
	@$(BIN)/python $(PIP) -c constraints.txt -e '.[text]'
	@$(BIN)/python -m pytest -q -m slow

# Versions in use stay as they are where they can; UPGRADE=--upgrade takes the newest. The list of
# the lowest versions has wheels only, because a machine need not have a C compiler.
UV    := build/uv/bin/uv
COMMA := ,
lock: $(UV)
	@$(UV) lock --quiet $(UPGRADE)
	@$(UV) export --quiet --frozen --no-hashes --no-header --no-annotate --no-emit-project \
	    --all-extras --output-file constraints.txt >/dev/null
	@$(UV) pip compile --quiet --no-header --no-annotate --python-version 3.11 --upgrade \
	    --resolution lowest-direct --only-binary :all: \
	    $(foreach extra,$(subst $(COMMA), ,$(EXTRAS)),--extra $(extra)) \
	    --output-file constraints-lowest.txt pyproject.toml

$(UV):
	@$(PYTHON) -m venv build/uv
	@build/uv/bin/python $(PIP) uv

check: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@MYPYPATH=src:experiments $(BIN)/mypy experiments/*.py
	@$(BIN)/python -m pytest -q -p no:cacheprovider tests/test_imports.py

format: $(READY)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(READY)
	@$(BIN)/python benchmarks/metrics.py
	@$(BIN)/python benchmarks/loader.py
	@$(BIN)/python benchmarks/step_cost.py
	@$(BIN)/python benchmarks/integral.py
	@$(BIN)/python benchmarks/start_up.py
	@$(BIN)/python benchmarks/estimator.py
	@$(BIN)/python benchmarks/engine.py
	@$(BIN)/python benchmarks/first_step.py
	@$(BIN)/python benchmarks/ranks.py
	@$(BIN)/python benchmarks/windows.py
	@$(BIN)/python benchmarks/predict.py
	@$(BIN)/python benchmarks/complete.py

# What docs/results/speed.md says; on an otherwise idle machine.
bench-record: $(READY)
	@$(BIN)/python benchmarks/record.py

# Files, folders and command lines with flaws; FUZZ=100000 tries more.
FUZZ ?= 10000
fuzz: $(READY)
	@ADAGC_FUZZ=$(FUZZ) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -s tests/fuzz

# Which mistakes no test would notice: an hour on all cores.
mutation: $(READY)
	@$(BIN)/python tests/mutation.py training methods/adagc.py methods/state.py ranks labels --minutes 60

# Every method, five seeds, on frozen features of AID: what is missing is run, then the tables.
# FEATURES=aid-features for the options as they were before tuning.
FEATURES ?= aid-features-tuned
bench-features: $(READY)
	@features=$$($(BIN)/python experiments/features.py aid --out runs/aid-arrays) && \
	    ADAGC_FEATURES=$$features $(BIN)/adagc bench $(FEATURES) --out runs/bench --workers 2

# Every number that README.md and docs/results quote, from docs/results/data.
pages: $(READY)
	@$(BIN)/python experiments/pages.py

# What tests of the cluster path, of the LaTeX tables, of commits and of pages run; without it they skip.
DEBIAN := git slurm-wlm munge util-linux texlive-latex-base texlive-latex-recommended mount \
    chromium fonts-dejavu-core
system-deps:
	@if command -v git >/dev/null && command -v sbatch >/dev/null && command -v munged >/dev/null \
	    && command -v pdflatex >/dev/null && command -v chromium >/dev/null; \
	then echo "system packages are there"; \
	elif ! command -v apt-get >/dev/null; then \
	    echo "no apt-get here: install Slurm, munge, pdflatex and Chromium to run all tests" >&2; \
	else \
	    sudo=$$([ $$(id -u) = 0 ] || echo sudo); \
	    $$sudo apt-get update -qq && $$sudo env DEBIAN_FRONTEND=noninteractive \
	        apt-get install -y -qq --no-install-recommends $(DEBIAN) >/dev/null; \
	fi

clean:
	rm -rf $(VENV) $(LOWEST) build dist src/*.egg-info
