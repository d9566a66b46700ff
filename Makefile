# make demo | test | check | bench | clean; PYTHON names the interpreter (3.11 or newer) that makes the environment,
# MODEL another file for `bench`, PACK the same model packed, LLAMA_PYTHON an interpreter that has llama-cpp-python.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUILT := $(VENV)/.expertmesh-built
MODEL ?= build/bench-mid.gguf
PACK ?=
LLAMA_PYTHON ?=

NATIVE_SOURCES := $(shell find native -name CMakeLists.txt -o -name '*.cmake' -o -name '*.cpp' -o -name '*.h' -o -name '*.cu')
MODULES := $(sort $(shell find coordinator expert_worker peer_gpu protocol native configs -name '*.py'))
CPP := $(shell find native tests -name '*.cpp' -o -name '*.h' -o -name '*.cu')

.PHONY: demo test check format bench clean always

demo: $(BUILT)
	$(BIN)/expertmesh generate --workers 2 --max-tokens 96 "In the beginning God created"

test: $(BUILT)
	$(BIN)/python -P -m pytest

check: $(BUILT)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(if $(CPP),$(BIN)/clang-format --dry-run --Werror $(CPP))
	$(BIN)/python tests/checks/imports.py

format: $(BUILT)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(if $(CPP),$(BIN)/clang-format -i $(CPP))

bench: export PYTHONPATH := tests/support:tests/benchmarks
bench: $(BUILT) $(MODEL)
	$(BIN)/python -P tests/benchmarks/kernel_speed.py
	$(BIN)/python -P tests/benchmarks/step_parts.py
	$(BIN)/python -P tests/benchmarks/transports.py
	$(BIN)/python -P tests/benchmarks/step_overhead.py --model $(MODEL)
	$(BIN)/python -P tests/benchmarks/roofline.py $(MODEL) $(PACK)
	$(BIN)/python -P tests/benchmarks/step_profile.py $(MODEL) $(PACK)
	$(BIN)/python -P tests/benchmarks/beside_llama.py --model $(MODEL) \
		$(if $(PACK),--our-model $(PACK)) $(if $(LLAMA_PYTHON),--llama-python $(LLAMA_PYTHON))

# 5 GB, kept until `make clean`.
build/bench-mid.gguf: | $(BUILT)
	$(BIN)/python tests/support/moe_models.py $@ --preset bench-mid

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis $(BUILT)

# The build requirements are installed first and used without isolation, so that a rebuild compiles what changed.
$(BUILT): $(VENV)/pyvenv.cfg pyproject.toml $(NATIVE_SOURCES) $(VENV)/.modules
	@command -v $${CXX:-c++} >/dev/null || { echo "error: a C++20 compiler is needed (Debian: apt-get install g++)" >&2; exit 2; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		$$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"])') \
		"cmake>=3.26" "ninja>=1.11"
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--no-build-isolation --editable '.[dev]'
	@touch $@

# What is installed for editing maps names to files, so a file that moved has to be told.
$(VENV)/.modules: $(VENV)/pyvenv.cfg always
	@echo '$(MODULES)' | cmp -s - $@ || echo '$(MODULES)' >$@

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("error: Python 3.11 or newer is needed: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
