# Hotbed. `make` alone lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
# What builds testbeds runs as root: directly when we are, else through sudo.
SUDO := $(if $(filter 0,$(shell id -u)),,tools/as-root)
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Images for containers often set it: every Python would compile everything that it imports, each
# time, which is most of what tests and campaigns would then do.
unexport PYTHONDONTWRITEBYTECODE

# The race detector takes more memory than an agent may.
CONCURRENT := ./cosbench/... ./internal/apps ./internal/http1 ./internal/reactor ./nfsproxy ./twochoice/server

.PHONY: help try setup notebook docs reproduce test test-unit test-go test-slow test-local test-openstack test-ceph-ansible golden soak lint bench lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' $(MAKEFILE_LIST) | while IFS='|' read -r target text; do \
	    printf '  make %-17s %s\n' "$$target" "$$text"; done

try: ## a first figure, simulated: no root, no Debian packages, two minutes from a fresh clone
	@tools/setup.sh sim
	@$(BIN)/hotbed try

setup: ## Debian packages, .venv from the lock file, Go, the data plane; quick when nothing changed
	@tools/setup.sh

# JupyterLab looks for no news, updates or extensions on the internet, and does not ask whether it may.
LAB_SETTINGS := {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": false}}
notebook: ## JupyterLab on this machine, in a browser; no root, no Debian packages
	@tools/setup.sh notebook
	@mkdir -p .venv/share/jupyter/lab/settings
	@echo '$(LAB_SETTINGS)' >.venv/share/jupyter/lab/settings/overrides.json
	@$(BIN)/jupyter lab --ip=127.0.0.1 $(if $(SUDO),,--allow-root) --ServerApp.root_dir=. \
	    --LabApp.default_url=/lab/tree/notebooks/compare_controllers.ipynb \
	    --LabApp.extension_manager=readonly

docs: setup ## the documentation as a site: build/site/index.html
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo build/site/index.html

reproduce: setup ## set up, then DLR against its baselines on a real Ceph: claims table and report
	@$(SUDO) $(BIN)/hotbed reproduce

test: setup lint test-unit test-go test-slow test-local test-openstack ## set up, then every check and test

test-unit: setup ## tests without root, network or testbed (a minute)
	$(PYTEST) -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder -m "not local and not slow and not openstack and not soak and not golden"

test-go: setup ## the data plane's tests, those of concurrent packages with the race detector
	cd dataplane && ../tools/go test -p 4 $$(../tools/go list ./... | grep -vxFf <(../tools/go list $(CONCURRENT))) # many wait
	cd dataplane && ../tools/go test -p 4 -race -skip TestAnAgentStaysWithinItsMemory $(CONCURRENT)
	cd dataplane && ../tools/go test -run TestAnAgentStaysWithinItsMemory ./twochoice/server

test-slow: setup ## tests without root or testbed that take longer
	$(PYTEST) -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder -m "slow and not local and not openstack and not soak" \
	    --durations=25 --durations-min=5

test-local: setup ## tests on a testbed on this machine (root)
	cd dataplane && $(if $(SUDO),../$(SUDO)) env HOTBED_LOCAL=1 ../tools/go test -count=1 ./cmd/queuedisk
	$(SUDO) $(PYTEST) -n 2 --dist loadgroup -m "local and not openstack and not soak" \
	    --durations=25 --durations-min=5

test-openstack: setup ## tests against a real OpenStack control plane on loopback (root, 10 minutes)
	@$(BIN)/python -m tests.openstack.parts
	$(SUDO) $(PYTEST) -n 3 --dist loadgroup --no-loadscope-reorder -m openstack tests/openstack \
	    --durations=15 --durations-min=5

test-ceph-ansible: setup ## deploy Ceph by ceph-ansible, run a campaign's cell, remove it (root; docs/another-ceph.md)
	$(SUDO) env HOTBED_CEPH_ANSIBLE="$${HOTBED_CEPH_ANSIBLE:-}" \
	    HOTBED_CONFIG_TEMPLATE="$${HOTBED_CONFIG_TEMPLATE:-}" $(PYTEST) -m "slow or local" \
	    tests/testbed/deployers/test_ceph_ansible.py tests/campaigns/test_ceph_ansible_local.py

golden: setup ## recompute simulated campaigns, compare with the recorded claims (10 minutes)
	$(PYTEST) -m golden tests/golden

soak: setup ## long tests: fault simulation over many seeds, floods, hostile inputs (root, hours)
	cd dataplane && HOTBED_SOAK=1 ../tools/go test -count=1 -timeout 4h -run Soak ./...
	$(SUDO) $(PYTEST) -m soak --timeout 7200 --durations=25

lint: setup ## ruff, import-linter, mypy, gofmt, go vet, staticcheck, ansible-lint, known vulnerabilities
	@tools/lint.sh

bench: setup ## measure controller, engine and report overhead; printed and written as JSON
	@$(SUDO) $(BIN)/hotbed bench

lock: setup ## bring the lock files in step with pyproject.toml (UPGRADE=1: newest versions)
	@tools/lock.sh $(if $(UPGRADE),--upgrade)

clean: ## remove the environment, builds and caches (never artifacts/)
	rm -rf .venv dataplane/bin build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
