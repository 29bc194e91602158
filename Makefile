# Everything a stranger needs: `make demo` runs the main job, `make test` passes the tests. Both set up .venv first.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

# Compiled modules are kept: every rank and command of the tests would compile them anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test unit check format docs bench live gpu-check clean
help:
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | column -t -s '	'

$(READY): pyproject.toml setup.py constraints.txt tools/set-up $(wildcard spanfit/placer/kernel/*)
	PYTHON=$(PYTHON) tools/set-up
	touch $(READY)

demo: $(READY) ## run the whole path on an emulated cluster; writes out/demo/report.html
	$(BIN)/spanfit demo --out out/demo

test: check unit ## check, then run every test; says what is skipped and why
	$(BIN)/pytest -q -rs -n 2 tests/slow
	$(BIN)/pytest -q -rs tests/integration

unit: $(READY) ## the quick half of the tests, and the examples in docstrings
	$(BIN)/pytest -q -rs -n 2 tests/unit spanfit

check: $(READY) ## format, lint, types, import contracts
	$(BIN)/ruff format --check -q .
	$(BIN)/ruff check -q .
	$(BIN)/mypy
	$(BIN)/lint-imports > .venv/lint-imports.log || { cat .venv/lint-imports.log; exit 1; }

format: $(READY) ## format and mend what a tool can mend
	$(BIN)/ruff format -q .
	$(BIN)/ruff check -q --fix .

docs: $(READY) ## write docs/cli.md from the help texts
	$(BIN)/python tools/manual.py > docs/cli.md

bench: $(READY) ## run every benchmark, quickly
	for script in benchmarks/*.py; do $(BIN)/python $$script --quick || exit 1; done

live: $(READY) ## read a real Kubernetes API server, built from Debian's source at the first run (about 30 minutes)
	tools/live-kubernetes

gpu-check: ## check one GPU; needs no .venv, only a $(PYTHON) that has torch
	PYTHONPATH=$(CURDIR):$(PYTHONPATH) $(PYTHON) -m spanfit.bench.gpu_check

clean: ## remove the environment and what the demo wrote
	rm -rf .venv out build dist *.egg-info
