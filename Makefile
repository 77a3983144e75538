# Two commands on a fresh machine: `make demo` and `make test`. Both need Python 3.11+, make and git.
SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready-$(shell cat requirements.txt test-requirements.txt tools/venv.sh tools/zip_bytecode.py | cksum | tr -d ' ')
LAB = . ./.lab/env &&
CLUSTER ?= lab

# Hundreds of Python processes each: without their compiled files all of them compile what they import.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help venv lab lab-stop demo test test-all lint sanity docs-lint unit integration molecule bench soak chaos audit clean

help:
	@echo 'make demo      build the shared-GPU cluster on the local lab; ends in a table; leaves the lab up'
	@echo 'make test      all tests: lint, unit, integration on the lab, molecule'
	@echo 'make bench     the figures of build/bench.json'
	@echo 'make soak      minutes of trouble for the agents (GPUSHARE_SOAK_MINUTES, default 10)'
	@echo 'make chaos     site.yml and destroy.yml killed at many points (GPUSHARE_CHAOS_POINTS, default 60)'
	@echo 'make audit     prowler and checkov on the lab, against the waivers of docs/security.md'
	@echo 'make lab       start the lab only; then: . .lab/env'
	@echo 'make lab-stop  end the lab without a trace'

venv: $(STAMP)

$(STAMP): requirements.txt test-requirements.txt tools/venv.sh tools/zip_bytecode.py
	@PYTHON=$(PYTHON) tools/venv.sh $(VENV)
	@touch $@

lab: venv
	@$(BIN)/python -m lab up

lab-stop:
	@if [ -d .lab ]; then $(BIN)/python -m lab down; else echo 'lab: nothing runs here'; fi

demo: lab
	@tools/demo.sh

lint: venv
	@tools/lint.sh

sanity: venv
	@tools/sanity.sh

unit: venv
	@tools/unit.sh

integration: lab
	@$(LAB) python -m pytest -q tests/integration

molecule: lab
	@$(LAB) molecule test --all

bench: lab
	@$(LAB) python tests/benchmark/run.py

test: venv
	@tools/test.sh

# Minutes of trouble on a lab of its own, whose API servers keep an audit log of every write.
soak: venv
	@GPUSHARE_LAB_AUDIT=1 tools/own_lab.sh soak tests/benchmark/soak.py

# Kills at many points on a lab of its own; hours.
chaos: venv
	@tools/own_lab.sh chaos tests/chaos/chaos.py

# prowler and checkov come from PyPI on first use, each into an environment of its own in the cache.
audit: venv
	@tools/own_lab.sh audit tests/audit/audit.py

# Also at kill points that nobody has tried, and with the figures.
test-all:
	@GPUSHARE_ALL=1 GPUSHARE_SEED=$$$$ $(MAKE) test
	@$(MAKE) bench
	@$(MAKE) soak
	@$(MAKE) audit
	@$(MAKE) chaos

clean: lab-stop
	@rm -rf build $(VENV)
