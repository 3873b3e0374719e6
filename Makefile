# `make demo` and `make test` are all a newcomer needs; both build the virtual environment in .venv and reuse it.

PYTHON ?= python3
# How torch is installed. On Linux plain pip brings the CUDA build (several GB); for the CPU build give pip the index
# that https://pytorch.org/get-started/locally/ names, for example: make demo TORCH="torch==2.13.0 --index-url URL"
TORCH ?= torch==2.13.0

VENV := .venv
ifeq ($(OS),Windows_NT)
BIN := $(VENV)/Scripts
else
BIN := $(VENV)/bin
endif
RUN := $(BIN)/python
INSTALL := -m pip install --quiet --disable-pip-version-check
PIP := $(RUN) $(INSTALL)
FLOOR := .venv-floor

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-floor stress quality-zh bench bench-learning lint format clean

help:  ## List the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.demo  ## The whole path on real reviews: text -> tokenizer -> encoder -> classifier, in minutes
	$(RUN) -m training demo

test: $(VENV)/.dev  ## The test suite (at most 10 minutes on 2 cores)
	$(RUN) -m pytest -m "not slow"
	$(RUN) -m tests.conformance -W ignore

test-all: $(VENV)/.dev  ## The test suite with the slow tests
	$(RUN) -m pytest
	$(RUN) -m tests.conformance -W ignore

test-floor: $(FLOOR)/.floor  ## The plugin's tests on the oldest transformers that pyproject.toml allows
	$(FLOOR)/$(notdir $(BIN))/python -m pytest -m "not slow" tests/hf_tinybert
	$(FLOOR)/$(notdir $(BIN))/python -m tests.conformance -W ignore

stress: $(VENV)/.dev  ## Kill 20 pre-trainings and 10 fine-tunings at random, resume them, compare bits (STRESS="--pretrain 4 --finetune 2" for fewer)
	$(RUN) -m tests.stress $(STRESS)

quality-zh: $(VENV)/.demo  ## The reference models and their table, from raw text: make quality-zh DATA=FOLDER (QUALITY="--budget 10m" for a short one)
	$(RUN) -m training.quality --data "$(DATA)" $(QUALITY)

bench: $(VENV)/.dev  ## Beside the peers: make bench DATA=reviews.txt LABELLED="labels.tsv --text_column text --label_column label" (under 15 minutes)
	@mkdir -p runs
	$(RUN) -m training bench --suite train --text $(DATA) --json runs/bench-train.json
	$(RUN) -m training bench --suite corpus --text $(DATA) --json runs/bench-corpus.json
	$(RUN) -m training bench --suite inference --text $(DATA) --labelled $(LABELLED) --json runs/bench-inference.json

bench-learning: $(VENV)/.dev  ## The loss after equal tokens beside HF Bert's, three seeds (DATA=reviews.txt; about an hour)
	@mkdir -p runs
	$(RUN) -m training bench --suite learning --text $(DATA) --json runs/bench-learning.json

lint: $(VENV)/.dev  ## Style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev  ## Put the code into its format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## Remove the virtual environment and caches (runs/ stays)
	rm -rf $(VENV) $(FLOOR) .cache .pytest_cache .mypy_cache .ruff_cache build hf_tinybert.egg-info

# torch goes first: what depends on it would bring another build along.
$(VENV)/.torch: constraints.txt
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'Python 3.11 or newer is needed: make PYTHON=python3.11 ...')"
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(TORCH)
	@touch $@

$(VENV)/.demo $(VENV)/.dev: $(VENV)/.%: $(VENV)/.torch pyproject.toml constraints.txt
	$(PIP) --constraint constraints.txt --editable ".[$*]"
	@touch $@

$(FLOOR)/.floor: pyproject.toml
	$(PYTHON) -m venv $(FLOOR)
	$(FLOOR)/$(notdir $(BIN))/python $(INSTALL) $(TORCH)
	$(FLOOR)/$(notdir $(BIN))/python $(INSTALL) --editable . accelerate datasets pyyaml "pytest>=9" \
		"transformers==$$(sed -n '/^dependencies/s/.*"transformers>=\([0-9.]*\).*/\1/p' pyproject.toml)"
	@touch $@
