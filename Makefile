# The commands of this project; `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PI_VERSION := 0.73.1
PI := .cache/pi-$(PI_VERSION)

.DEFAULT_GOAL := help
.PHONY: help demo test check lint bench test-pi clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "pool needs Python 3.11 or newer; set PYTHON=/path/to/python3")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(STAMP) ## Start a supervisor, run prompts over several sessions, kill a worker, show the status, stop
	$(BIN)/pool demo

test: $(STAMP) ## Run the whole suite
	$(BIN)/python -m pytest

lint: $(STAMP) ## ruff, ruff format, mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy .

check: lint test ## What CI runs

bench: $(STAMP) ## Measure, each figure beside its baseline
	$(BIN)/python -m benchmarks

clean: ## Remove everything that was made here
	rm -rf $(VENV) .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist artefacts
