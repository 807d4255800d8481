# `make demo` shows the main job on this machine, `make test` runs everything. Both make what they need in .venv.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --no-deps --require-hashes
# A start of vLLM keeps one core busy. What takes longest begins first.
TWO_AT_A_TIME := -n 2 --dist loadfile --no-loadscope-reorder

# Ruff's `S` rules are bandit's, all but these.
NOT_IN_RUFF := B613,B614,B615,B703

.PHONY: demo test suite test-exhaustive lint types imports unit serving benchmark models notebooks docs sbom lock format clean

# Where all that tests need is installed, the demo takes that.
demo: $(or $(wildcard .venv/installed),.venv/demo)
	PATH="$(CURDIR)/$(BIN):$$PATH" ./demo.sh

# Many processes are started: each would compile again what it imports.
test demo: export PYTHONDONTWRITEBYTECODE :=
# What is quick to find comes first. mypy keeps one core busy for minutes: it runs beside the suite.
test: .venv/installed
	$(MAKE) lint imports sbom
	$(MAKE) --jobs=2 types suite

suite: .venv/installed
	$(BIN)/python -m pytest $(TWO_AT_A_TIME) --durations=40 --durations-min=4 tests/serving tests/images tests/faults tests/aws tests/scale tests/kubernetes tests/unit tests/security tests/tools

# Every crash of every command, fifty deployments at once, and whatever else `test` takes samples of: an hour.
test-exhaustive: .venv/installed
	TOOLKIT_EVERY_CRASH=1 $(BIN)/python -m pytest $(TWO_AT_A_TIME) tests/aws/test_crash_safe.py tests/aws/test_many_endpoints.py tests/faults
	TOOLKIT_EVERY_BASE=1 $(BIN)/python -m pytest tests/images/test_shapes_of_bases.py
	TOOLKIT_ONE_ROAD=1 $(BIN)/python -m pytest tests/serving/test_one_road.py
	TOOLKIT_SCALE=1 TOOLKIT_DEPLOYERS=10x500 $(BIN)/python -m pytest -n 2 -s tests/scale
	TOOLKIT_ALL_WHEELS=1 $(BIN)/python -m pytest --timeout 900 tests/images/test_real_wheels.py
	TOOLKIT_MANGLED_DOCUMENTS=600 $(BIN)/python -m pytest -n 2 tests/security/test_documents.py

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/bandit -q -r toolkit containers tools .github containers/*/serve containers/*/compile containers/*/train -t $(NOT_IN_RUFF)
	$(BIN)/zizmor --quiet --offline --strict-collection .

types: .venv/installed
	$(BIN)/mypy
	for program in containers/*/serve containers/*/compile containers/*/train; do \
		MYPYPATH=containers/on-vllm $(BIN)/mypy --scripts-are-modules $$program containers/on-vllm/*.py || exit 1; done
	$(BIN)/mypy containers/benchmark/benchmark.py
	$(BIN)/mypy .github/actions/toolkit/comment.py
	$(BIN)/mypy tests/*.py

imports: .venv/installed
	$(BIN)/lint-imports

unit: .venv/installed
	$(BIN)/python -m pytest tests/unit tests/tools

serving: .venv/installed
	$(BIN)/python -m pytest tests/serving

benchmark: .venv/installed
	$(BIN)/python -m pytest tests/benchmarks -s

# Trains the tiny models again, from their seed.
models: .venv/installed
	$(BIN)/python -m tools.tiny --out recipes/tiny/models

format: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv dist build

# The locks are complete, so nothing is resolved here, nothing can pull in CUDA packages, and what has another hash than theirs is
# refused. torch's CPU build comes from where pip is set up to look, else from PyTorch's own index. uv takes a fifth of pip's CPU
# time, but does not know of the index that pip may be set up to use: then, and for what uv cannot get, pip is asked.
.venv/installed: LOCK := requirements.lock
.venv/installed: requirements.lock
.venv/demo: LOCK := requirements-demo.lock
.venv/demo: requirements-demo.lock
.venv/installed .venv/demo: requirements-torch.lock requirements-uv.lock pyproject.toml
	@echo "Installing $(LOCK) into .venv: first torch's CPU build, then vLLM's and what else it has. All takes 3.3 GB, the demo's 2.2."
	$(PYTHON) -m venv .venv
	-$(INSTALL) -r requirements-uv.lock
	$(INSTALL) -r requirements-torch.lock || $(INSTALL) --index-url https://download.pytorch.org/whl/cpu -r requirements-torch.lock
	! $(BIN)/pip config list | grep -q '[.]index-url=' && \
		$(BIN)/uv pip install --python $(BIN)/python --no-deps --require-hashes -r $(LOCK) || $(INSTALL) -r $(LOCK)
	$(BIN)/pip install -q --no-deps --no-build-isolation -e .
	touch $@

# Writes the hashes of requirements.lock anew, after a change of a version in it, and the locks that are cut out of it.
lock: .venv/installed
	$(BIN)/python -m tools.requirements_lock

# Bill of materials, with licences, of the wheel and of all that is installed beside it (CycloneDX).
sbom: .venv/installed
	mkdir -p dist
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --gather-license-texts --output-reproducible \
		--output-file dist/sbom.json $(BIN)/python

# The documentation site, into build/site. A broken link or anchor is an error.
docs: .venv/installed
	$(BIN)/python -m mkdocs build

# Runs the notebooks and keeps their outputs.
notebooks: .venv/installed
	$(BIN)/python -m tools.notebooks
