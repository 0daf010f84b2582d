# SPDX-License-Identifier: Apache-2.0
# `make help` lists the targets. Each one sets up what it needs and no more.

PYTHON ?= python3
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

VENV := .venv
ASAN_VENV := .venv-sanitize
# Builds the documentation; has nothing of Verbena in it, which need not be compiled for that.
DOCS_VENV := .venv-docs
WHEEL_VENV := build/venv-wheel
# make compatibility PART=programs: one part of it (docs/generate/compatibility.py names them).
PART ?=
# make latest RDMA_CORE=folder: a checkout of rdma-core in place of its newest release.
RDMA_CORE ?=
# make fabtests FABTESTS=folder: a checkout of libfabric in place of the one that git fetches.
FABTESTS ?=
# Arguments for pytest: make test TESTS="tests/verbs -k write"
TESTS ?=
# make soak SOAK="--minutes 1", or "--seed 1234abcd" to repeat a schedule
SOAK ?=
# make validate VALIDATE="--only V3 P7", or "--seed 2"
VALIDATE ?=
# Interpreters for make pythons: make pythons PYTHONS="python3.12 python3.13"
PYTHONS ?=
# Arguments for pytest, of `make model`: make model MODEL="--hypothesis-seed=7 -k roce"
MODEL ?=
# Arguments of scripts/mutate.py: make mutation MUTATION="-n 10 --seed 2"
MUTATION ?=
# Arguments for python -m benchmarks: make bench BENCH="--quick"
BENCH ?=
# The suite as a whole must end; a single test has its own limit in pyproject.toml.
PYTEST := timeout --kill-after=30 1500 env -u LD_PRELOAD $(VENV)/bin/python -m pytest

NATIVE_INPUTS := pyproject.toml CMakeLists.txt $(wildcard cmake/*.cmake) \
	$(shell find src \( -name '*.[ch]' -o -name '*.map' -o -name '*.pyx' -o -name '*.px[di]' -o -name '*.csv' \
	        -o -name CMakeLists.txt -o -path '*/preload/bin/*' \) -not -path '*/lib/*')
# A file that was added or removed rebuilds too: the list of names is an input.
SOURCE_LIST := build/stamps/source-list
$(shell mkdir -p build/stamps; printf '%s\n' $(sort $(NATIVE_INPUTS)) > $(SOURCE_LIST).new; \
        cmp -s $(SOURCE_LIST).new $(SOURCE_LIST) || mv $(SOURCE_LIST).new $(SOURCE_LIST); \
        rm -f $(SOURCE_LIST).new)

.PHONY: help setup demo test model pythons validate bench lint format generated compatibility latest fabtests docs worlds soak compilers mutation sanitize sanitize-threads wheel wheel-portable clean FORCE
.DEFAULT_GOAL := help

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' Makefile

setup: build/stamps/installed build/stamps/programs ## Debian packages, .venv, build and install Verbena there

demo: build/stamps/installed build/stamps/demo-programs ## Run and measure Debian's RDMA programs and NumPy over Verbena
	$(VENV)/bin/verbena demo

# What the documentation is built with is fetched while Verbena is compiled.
test: build/stamps/toolchain build/stamps/programs ## Lint, then the whole test-suite
	@$(MAKE) --no-print-directory -j2 setup lint build/stamps/docs-venv
	scripts/test.sh $(VENV) $(TESTS)

model: setup ## Hundreds of random programs, in the model of verbs and in the core
	seed=$$RANDOM; echo "make model MODEL=--hypothesis-seed=$$seed"; \
	VERBENA_MODEL_EXAMPLES=$${VERBENA_MODEL_EXAMPLES:-300} $(PYTEST) tests/model --hypothesis-seed=$$seed $(MODEL)

pythons: ## The tests of asyncio programs with other interpreters: PYTHONS="python3.12 python3.13"
	scripts/pythons.sh $(PYTHONS)

validate: build/stamps/installed ## Compare the simulated fabric with laws and published results; writes docs/validation.md
	$(VENV)/bin/python -m tests.validation $(VALIDATE)

bench: setup build/stamps/extra-bench ## Measure against UCX and TCP; prints the table of docs/performance.md
	@$(VENV)/bin/cmake -S . -B build/bench -G Ninja -DVERBENA_NATIVE_TESTS=ON >/dev/null
	@$(VENV)/bin/cmake --build build/bench --target bench_engine >/dev/null
	VERBENA_BENCH_ENGINE=build/bench/bench/bench_engine $(VENV)/bin/python -m benchmarks $(BENCH)

lint: build/stamps/installed build/stamps/extra-lint ## ruff, mypy, clang-format, cython-lint, workflows, stubs, sizes, layers, names, skips
	@scripts/lint.sh $(VENV)

format: build/stamps/extra-lint ## Format Python and C as lint wants them
	$(VENV)/bin/ruff format src tests benchmarks scripts docs examples
	find src tests benchmarks docs examples -name '*.[ch]' | xargs -r $(VENV)/bin/clang-format -i

generated: build/stamps/installed ## Draw the QP states, fabrics and scenarios, make the errors, formats and goodput that docs/ shows
	@$(VENV)/bin/cmake -S . -B build/native-tests -G Ninja -DVERBENA_NATIVE_TESTS=ON -DVERBENA_LTO=OFF >/dev/null
	@$(VENV)/bin/cmake --build build/native-tests --target qp_table goodput >/dev/null
	build/native-tests/docs/qp_table | $(VENV)/bin/python docs/generate/qp_states.py
	build/native-tests/docs/goodput | $(VENV)/bin/python docs/generate/goodput.py
	$(VENV)/bin/python scripts/native_sources.py
	$(VENV)/bin/python docs/generate/errors.py
	$(VENV)/bin/python docs/generate/fabrics.py
	$(VENV)/bin/python docs/generate/scenarios.py
	$(VENV)/bin/python docs/generate/one_scenario.py
	$(VENV)/bin/python docs/generate/traffic.py
	$(VENV)/bin/python docs/generate/connections.py
	$(VENV)/bin/python docs/generate/model.py
	$(VENV)/bin/python docs/generate/management_formats.py
	$(VENV)/bin/python -m tests.manage.diagnose
	$(VENV)/bin/python docs/generate/pictures.py
	$(VENV)/bin/python scripts/stub_docstrings.py

compatibility: setup build/stamps/compatibility-programs ## Debian's programs and rdma-core's tests in every mode: docs/compatibility.md
	PYTHONPATH=. $(VENV)/bin/python docs/generate/compatibility.py $(PART)

latest: build/stamps/installed build/stamps/rdma-core-build ## Build rdma-core's newest pyverbs and run its tests: docs/compatibility.md
	scripts/rdma-core-latest.sh build/rdma-core $(RDMA_CORE)
	PYTHONPATH=. $(VENV)/bin/python docs/generate/compatibility.py latest

fabtests: build/stamps/installed build/stamps/fabtests-build ## Build libfabric's tests and run them: docs/compatibility.md
	scripts/fabtests.sh build/fabtests $(FABTESTS)
	PYTHONPATH=. $(VENV)/bin/python docs/generate/compatibility.py fabtests

docs: build/stamps/docs-venv ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict
	@echo "Open site/index.html. As a file it has no search; with it: $(DOCS_VENV)/bin/mkdocs serve"

sanitize: build/stamps/programs build/stamps/fuzzer build/stamps/sanitize-installed ## The test-suite under AddressSanitizer and UBSan, then a minute of fuzzing each target
	scripts/sanitize.sh $(ASAN_VENV) $(TESTS)
	scripts/fuzz.sh 60

sanitize-threads: build/stamps/installed ## The C tests that have threads or processes under ThreadSanitizer
	scripts/sanitize_threads.sh $(VENV) $(notdir $(TESTS))

worlds: build/stamps/installed ## Ten thousand random simulated worlds; WORLDS="FIRST LAST": those seeds
	$(VENV)/bin/python -m tests.sim.random_world $(or $(WORLDS),0 10000)

soak: build/stamps/installed ## Ten minutes of processes that start, work, break things and die; writes docs/soak.md
	$(VENV)/bin/python -m tests.soak $(SOAK)

compilers: setup ## The native libraries by every compiler of PATH, with every set of hardening flags
	VERBENA_ALL_COMPILERS=1 $(PYTEST) tests/packaging/test_hardened.py

mutation: build/stamps/installed ## Random small changes in src/native, and which of them no test notices; writes docs/mutation.md
	PATH="$(abspath $(VENV))/bin:$$PATH" $(VENV)/bin/python scripts/mutate.py --page docs/mutation.md $(MUTATION)

# auditwheel names the oldest C library that the wheel runs with: an index takes no plain linux_x86_64.
wheel: build/stamps/wheel-venv ## Build a wheel into dist/, for the C library of this machine or newer
	@rm -rf build/wheels
	$(WHEEL_VENV)/bin/pip wheel -v --no-deps --wheel-dir build/wheels .
	PATH="$(abspath $(WHEEL_VENV))/bin:$$PATH" auditwheel repair --wheel-dir dist build/wheels/*.whl
	@ls -l dist/*.whl

wheel-portable: build/stamps/wheel-zig ## Build a wheel into dist/ for glibc 2.28 or newer, with Zig's compiler (400 MB)
	$(WHEEL_VENV)/bin/python scripts/portable_wheel.py dist
	@ls -l dist/*.whl

clean: ## Remove everything that was built
	rm -rf build dist site $(VENV) $(ASAN_VENV) $(DOCS_VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

# ---- Debian packages: looked at every time (fast), installed only when missing -------------

build/stamps/toolchain: FORCE
	@scripts/setup-debian.sh toolchain "$(PYTHON)"
	@touch -a $@

build/stamps/demo-programs: FORCE
	@scripts/setup-debian.sh demo

build/stamps/programs: FORCE | build/stamps/toolchain
	@scripts/setup-debian.sh test

build/stamps/compatibility-programs: FORCE
	@scripts/setup-debian.sh compatibility

build/stamps/rdma-core-build: FORCE
	@scripts/setup-debian.sh rdma-core

build/stamps/fabtests-build: FORCE
	@scripts/setup-debian.sh fabtests

build/stamps/fuzzer: FORCE
	@scripts/setup-debian.sh fuzz

# ---- virtual environments: redone only when their inputs change ----------------------------

define make_venv
	"$(PYTHON)" -m venv $(1)
	$(1)/bin/pip install -qq --upgrade "pip>=23.1"
	$(1)/bin/python scripts/extras.py build test sim dask | xargs -d '\n' $(1)/bin/pip install -qq
endef

build/stamps/venv: pyproject.toml scripts/extras.py | build/stamps/toolchain
	@echo "Making $(VENV): PyPI packages that build and test Verbena (about a minute, silent meanwhile)"
	@$(call make_venv,$(VENV))
	@touch $@

build/stamps/installed: build/stamps/venv $(SOURCE_LIST) $(NATIVE_INPUTS)
	@echo "Building Verbena and installing it into $(VENV): compiling takes a minute, or several on a busy machine; silent meanwhile"
	@$(VENV)/bin/pip install -qq --no-build-isolation -Cbuild-dir=build/venv -Ccmake.define.VERBENA_WERROR=ON -e .
	@# Where PYTHONDONTWRITEBYTECODE is set, as in many images, each program would compile it anew.
	@$(VENV)/bin/python -m compileall -q src/verbena
	@touch $@

build/stamps/extra-%: build/stamps/venv | build/stamps/installed
	@$(VENV)/bin/python scripts/extras.py $* | xargs -d '\n' $(VENV)/bin/pip install -qq
	@touch $@

build/stamps/docs-venv: pyproject.toml scripts/extras.py | build/stamps/toolchain
	@echo "Making $(DOCS_VENV)"
	@"$(PYTHON)" -m venv $(DOCS_VENV)
	@$(PYTHON) scripts/extras.py docs | xargs -d '\n' $(DOCS_VENV)/bin/pip install -qq
	@touch $@

# pip fetches what builds a wheel by itself, into an environment that goes again.
build/stamps/wheel-venv: pyproject.toml scripts/extras.py | build/stamps/toolchain
	@"$(PYTHON)" -m venv $(WHEEL_VENV)
	@$(WHEEL_VENV)/bin/pip install -qq --upgrade "pip>=23.1"
	@$(WHEEL_VENV)/bin/python scripts/extras.py wheel | xargs -d '\n' $(WHEEL_VENV)/bin/pip install -qq
	@touch $@

build/stamps/wheel-zig: build/stamps/wheel-venv
	@$(WHEEL_VENV)/bin/python scripts/extras.py portable | xargs -d '\n' $(WHEEL_VENV)/bin/pip install -qq
	@touch $@

build/stamps/sanitize-venv: pyproject.toml scripts/extras.py | build/stamps/toolchain
	@echo "Making $(ASAN_VENV)"
	@$(call make_venv,$(ASAN_VENV))
	@touch $@

build/stamps/sanitize-installed: build/stamps/sanitize-venv $(SOURCE_LIST) $(NATIVE_INPUTS)
	@echo "Building Verbena with the sanitizers into $(ASAN_VENV)"
	@$(ASAN_VENV)/bin/pip install -qq --no-build-isolation -Cbuild-dir=build/venv-sanitize \
		-Ccmake.define.VERBENA_WERROR=ON -Ccmake.define.VERBENA_SANITIZE=ON -Cinstall.strip=false -e .
	@touch $@
