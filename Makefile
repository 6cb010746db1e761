# The loop of work on Muster. `make help` lists it; CI (.ci/run, .github/workflows) calls nothing else.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.made
# Scenarios run in so many processes, each with a lab of its own, file by file; one more than cores, since much of their
# time is waiting (3 on 2 cores: 33 minutes, in which a third of the machine idles). JOBS=0: in one, as pytest does.
JOBS ?= $(shell n=$$(nproc); echo $$((n < 4 ? n + 1 : 4)))
SIDE_BY_SIDE = -n $(JOBS) --dist loadfile --no-loadscope-reorder
.DEFAULT_GOAL := help

.PHONY: help setup check format docs unit e2e test requirements sbom image base clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml extender/report/pyproject.toml config/constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "make setup: no $(PYTHON); install Python 3.11 or newer, or give PYTHON=" >&2; exit 2; }
	@echo "setting up $(VENV)" >&2
	@$(PYTHON) -m venv $(VENV) >&2
	@# `muster` is what muster-scheduler was called until 0.1: both would bring the same plugins.
	@$(BIN)/python -m pip uninstall -qq --yes --disable-pip-version-check muster >&2
	@PIP_CONSTRAINT=$(CURDIR)/config/constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check \
		-e extender/report -e '.[dev]' >&2
	@touch $@

setup: $(STAMP) ## make .venv with everything that is pinned in config/constraints.txt; leaves .venv/bin/muster

check: $(STAMP) ## lint, types, lengths, layers, what scenarios import: seconds
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m tests.long_files
	@$(BIN)/vermin --quiet --no-tips --violations --target=3.9- extender/report
	@PYTHONPATH=extender:extender/report:plugins $(BIN)/lint-imports
	@collected=$$($(BIN)/pytest --collect-only -qq -p no:cacheprovider e2e) || { echo "$$collected"; exit 1; }

format: $(STAMP) ## let ruff format and fix
	@$(BIN)/ruff check --fix -q . ; $(BIN)/ruff format -q .

docs: $(STAMP) ## write what is generated: tables of config/reference.md and charts/muster/README.md, the chart's schema
	@$(BIN)/cog -r -I . config/reference.md charts/muster/README.md
	@$(BIN)/python -m tests.chart.schema

unit: $(STAMP) ## the unit tests: seconds
	@$(BIN)/pytest -q tests

e2e test: OPERATORS = jobset,trainer
e2e: $(STAMP) lab-build ## every scenario on a lab of its own
	@$(BIN)/pytest -v $(SIDE_BY_SIDE) e2e

test: $(STAMP) lab-build ## everything: unit and e2e
	@rm -rf out/rights
	@E2E_RIGHTS=1 $(BIN)/pytest $(SIDE_BY_SIDE) tests e2e
	@$(BIN)/python -m e2e.lab rights

# Nothing but names, versions and hashes goes into these files: no address of a registry.
COMPILE = $(BIN)/uv pip compile --quiet --constraint config/constraints.txt --generate-hashes --no-header --no-annotate \
	--no-emit-index-url --no-emit-package muster-report --python-version 3.11

requirements: $(STAMP) ## the image's packages with their hashes, from config/constraints.txt
	@$(COMPILE) --python-platform linux --output-file config/requirements.txt pyproject.toml
	@echo hatchling | $(COMPILE) --output-file config/build-requirements.txt -

sbom: $(STAMP) ## out/muster.cdx.json: what is in the image (CycloneDX)
	@mkdir -p out
	@$(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --output-file out/muster.cdx.json \
		config/requirements.txt

IMAGE = muster:$(shell awk -F'"' '/^version = /{print $$2}' pyproject.toml)
BASE = python:3.11-slim
image: base sbom ## docker build IMAGE=muster:VERSION; RELEASE=1 wants BASE=python:3.11-slim@sha256:..., by digest
	@docker build --build-arg BASE='$(BASE)' --tag '$(IMAGE)' .

base:
	@case '$(RELEASE)/$(BASE)' in /*|*@sha256:*) ;; *) \
		echo "make image: a release needs BASE by digest (python:3.11-slim@sha256:...), found BASE=$(BASE)" >&2; exit 2;; esac

clean: ## remove what setup and tests leave in the checkout
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache out

include e2e/lab.mk
include e2e/kind.mk
include config/release.mk
include e2e/demo.mk
include e2e/bench.mk
include e2e/reproduce.mk
include e2e/soak.mk
include e2e/chaos.mk
