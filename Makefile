# `make demo` and `make test` need nothing but python3 (3.11 or later) and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DOORS := .venv-doors
PIP := -m pip install --quiet --disable-pip-version-check -c constraints.txt -e
INSTALL := $(BIN)/python $(PIP)
# Two cores; the tests of a file stay together, and share what they compiled.
PYTEST := -m pytest -n 2 --dist loadfile

.PHONY: demo test test-all test-languages test-doors lint format format-check types check docs benchmark reproduce clean help

help:  ## Show this list.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1: /' | awk -F': ' '{printf "make %-15s %s\n", $$1, $$2}'

demo: $(VENV)/.demo  ## Fit a regression to 327,000 flights and show what came out.
	$(BIN)/isvi demo

test: $(VENV)/.dev  ## Run the tests, on two cores.
	$(BIN)/python $(PYTEST)

test-all: $(VENV)/.dev  ## Run the tests, the long ones too.
	$(BIN)/python $(PYTEST) -m "slow or not slow"

test-languages: $(DOORS)/.doors  ## Run the tests that need PyMC or Stan, in an environment that has them.
	ISVI_CACHE=$(CURDIR)/$(DOORS)/cache $(DOORS)/bin/python $(PYTEST) --no-skips tests/frontends -k "pymc or stan"

# PyTorch's door is left out: of a package of gigabytes, one test would use the automatic derivative of a square.
test-doors: $(DOORS)/.doors  ## Run the tests that need PyMC, Stan or Ray, in an environment that has them.
	ISVI_CACHE=$(CURDIR)/$(DOORS)/cache $(DOORS)/bin/python $(PYTEST) --no-skips \
		--deselect tests/frontends/test_gradient.py::test_pytorch \
		--deselect tests/workers/test_crews.py::test_ray_is_asked_for_by_its_extra \
		tests/frontends tests/benchmarks/test_rivals.py \
		tests/workers tests/fitting/test_workers.py

lint: $(VENV)/.dev  ## Look for mistakes.
	$(BIN)/ruff check .

format: $(VENV)/.dev  ## Lay the code out.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

format-check: $(VENV)/.dev  ## Check the layout without changing it.
	$(BIN)/ruff format --check .

types: $(VENV)/.dev  ## Check the types.
	$(BIN)/mypy

check: test test-doors lint format-check types  ## All of the above that a change must pass.

docs: $(VENV)/.docs  ## Build the site, in site/index.html.
	$(BIN)/sphinx-build -q -W --keep-going -j 2 -c docs -d site/.doctrees . site

benchmark: $(VENV)/.benchmark  ## Compare with rivals, and measure what a reuse step costs, on this machine.
	$(BIN)/python -m benchmarks.peers
	$(BIN)/python benchmarks/reuse_cost.py
	$(BIN)/python benchmarks/compile_cost.py

reproduce: $(VENV)/.dev  ## Reproduce the paper's experiments.
	$(BIN)/python -m reproduce

clean:  ## Remove the virtual environments and what was written.
	rm -rf $(VENV) $(DOORS) .pytest_cache demo-output site docs/reference

# Installed once; again only when the requirements change.
$(VENV)/.demo: $(VENV)/.created pyproject.toml constraints.txt
	$(INSTALL) ".[demo]"
	@touch $@

$(VENV)/.dev: $(VENV)/.created pyproject.toml constraints.txt
	$(INSTALL) ".[dev]"
	@touch $@ $(VENV)/.demo

$(VENV)/.docs: $(VENV)/.created pyproject.toml constraints.txt
	$(INSTALL) ".[docs]"
	@touch $@

$(VENV)/.benchmark: $(VENV)/.created pyproject.toml constraints.txt
	$(INSTALL) ".[benchmark]"
	@touch $@

$(DOORS)/.doors: $(DOORS)/.created pyproject.toml constraints.txt
	$(DOORS)/bin/python $(PIP) ".[doors]"
	@touch $@

$(VENV)/.created $(DOORS)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "isvi needs Python 3.11 or later; " + sys.executable + " is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(@D)
	@touch $@
