# Every verb prepares what it needs. It uses an active environment whose torch is a supported one as
# it is, and otherwise makes .venv. A fresh clone needs python3, g++ and make.
SHELL := /bin/bash
.DEFAULT_GOAL := help

# The version is exact because a looser range may download gigabytes of CUDA.
TORCH := torch==2.13.0
ACTIVE := $(shell python3 .ci/wheel/torches.py environment 2>/dev/null)
CALLERS := $(shell command -v python3)
ENV := $(or $(ACTIVE),$(CURDIR)/.venv)
# Compiling modules that nobody imports takes pip longer than all else. `make dev` compiles those
# that all import.
INSTALL := $(ENV)/bin/python3 -m pip --disable-pip-version-check install --quiet --no-compile

# Each environment has one installation, which is made again when compiled sources have changed.
INSTALLED := build/installed$(subst /,-,$(ENV))
# pip builds the package in this folder, and the C++ tests are built beside it.
BUILT = build/$$(python3 -c 'import sys; print(sys.implementation.cache_tag)')
COMPILED := pyproject.toml CMakeLists.txt $(shell find src -name '*.[chi]*')

# CUDA's compiler is the machine's, or else the one that pip installs.
NVCC := $(or $(shell command -v nvcc),$(CURDIR)/build/nvcc/nvidia/cu13/bin/nvcc)

export PATH := $(ENV)/bin:$(PATH)
export PIP_NO_INPUT := 1
# Thousands of ranks and test processes read the same modules, so bytecode must be written.
unexport PYTHONDONTWRITEBYTECODE
export CMAKE_BUILD_PARALLEL_LEVEL ?= 2
export CMAKE_GENERATOR ?= Ninja

CHECKS := check-rules check-python check-types check-imports check-cpp check-spelling
.PHONY: wheel wheel-cuda13 wheel-test aarch64
.PHONY: help dev demo test test-python test-fast test-all gloo device mpi notebooks test-cpp coverage suites compat soak asan tsan ubsan gtest gpu bench bench-neighbors bench-tables docs docs-environment lint $(CHECKS) tidy fmt clean

help: ## Show this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 18

dev: $(INSTALLED) ## Build, and install in editable mode

demo: dev ## Train on 4 ranks with DDP, with one peer, beside a slow and a killed rank: a minute; build/demo
	OMP_NUM_THREADS=1 bfrun -np 4 --keep-going examples/demo.py --out build/demo

test: test-cpp test-python ## Run the tests: ten minutes on two idle cores
test-python: dev
	$(BESIDE) -m 'not alone $(UNLESS)'
	$(PYTEST) -m 'alone $(UNLESS)'
UNLESS = and not thorough

test-fast: dev ## Run the quick tests of every room: two minutes
	$(BESIDE) -m 'not alone and not slow and not thorough'

test-all: ## Run all tests and notebooks, and again what also runs over MPI, gloo or a simulated accelerator
	$(MAKE) notebooks
	$(MAKE) test UNLESS=
	$(MAKE) -j 3 --output-sync=target --keep-going gloo device mpi

# Each process of pytest imports torch, and so does its fork server. Few processes with much to do
# therefore cost less than three for each target.
gloo: ## Run what also runs over gloo's messages
	BLUEFOG_ACCELERATOR=cpu:gloo $(PYTEST) -m gloo
device: ## Run what also runs on the simulated accelerator
	BLUEFOG_TEST_DEVICE=simulated $(PYTEST) -m device
mpi: ## Run what also runs over MPI
	BLUEFOG_TRANSPORT=mpi $(PYTEST) -n 2 --dist worksteal -m mpi

notebooks: dev ## Run the notebooks of examples/notebooks
	python3 -c 'import ipykernel, ipyparallel, matplotlib, nbmake' 2>/dev/null || $(INSTALL) $(NOTEBOOK_EXTRA)
	$(PYTEST) --nbmake examples/notebooks
# pip would compile the package again if it was asked for `.[notebook]`.
NOTEBOOK_EXTRA = $$(python3 -c 'from importlib.metadata import requires; \
	print(*(each.split(";")[0].replace(" ", "") for each in requires("bluefog-pg") if "notebook" in each))')

PYTEST = pytest --durations=10
# Most tests wait most of the time, so a few more of them than cores run side by side.
BESIDE = $(PYTEST) -n 3 --dist worksteal

coverage: gtest | $(INSTALLED) ## Say which share of lines and branches all tests run, folder by folder; build/coverage
	python3 -c 'import coverage, gcovr' 2>/dev/null || $(INSTALL) 'coverage>=7.10' 'gcovr>=8'
	python3 -m tests.coverage build
	PYTHONPATH=$(CURDIR)/build/coverage/site $(MAKE) --ignore-errors test-all BUILT=build/coverage/cmake \
		PYTEST='python3 -m coverage run --rcfile=build/coverage/coveragerc -m $(PYTEST)'
	python3 -m tests.coverage report

test-cpp: gtest $(NVCC) | $(INSTALLED) ## Run the C++ tests alone
	cmake $(BUILT) -DBLUEFOG_TESTS=ON -DBLUEFOG_CUDA=ON -DCMAKE_CUDA_COMPILER=$(NVCC)
	$(call ctest,$(BUILT))

# These run torch's own distributed tests and more against a named backend. The tests leave files of
# their stores behind, so TMPDIR is removed.
SUITES ?= ../shared/c10d
RUN_SUITES = env OMP_NUM_THREADS=1 python3 $(SUITES)/run.py --backend bluefog --expect $(SUITES)/expect/custom.txt \
	--import bluefog_pg.torch --import-early
suites: dev $(SUITES)/run.py ## Run torch's distributed tests on bluefog, and more, from SUITES (a folder beside the clone)
	export TMPDIR=$$(mktemp -d) && trap 'rm -rf "$$TMPDIR"' EXIT && \
	{ printf -- '--suite dist,ops,func,dtensor,fsdp,ddp,contract --world 4 --shard %s/3\n' 0 1 2 && \
	printf -- '--suite dist --tests $(NOT_DDP) --world %s\n' 2 3; } | xargs -P 5 -L 1 $(RUN_SUITES)
# The tests of DDP do the same in a world of any size, so the smaller worlds leave them out.
NOT_DDP = ^dist[.]test_(?!ddp|Ddp|DistributedDataParallel|Distributed|DDP)

$(SUITES)/run.py:
	@echo "torch's suites are not part of this repository: SUITES must name their folder ($(SUITES) has no run.py)"; exit 1

# Each version has an environment of its own, in which pip may find gigabytes of CUDA. Where pip's
# configuration refuses a version, docs/compatibility.md says what to do.
COMPAT ?= $(shell python3 .ci/wheel/torches.py versions)
compat: $(SUITES)/run.py ## Build and test with each torch of COMPAT in turn, for an hour; build/compat/summary.md
	python3 -m tests.compat $(COMPAT)

soak: dev ## Kill ranks at a thousand random instants: a dozen minutes
	OMP_NUM_THREADS=1 python3 -m tests.failures.soak --rounds 1000

asan: gtest | $(INSTALLED) ## Run the C++ tests under AddressSanitizer
	$(call sanitized,address,build/asan)

tsan: gtest | $(INSTALLED) ## Run the C++ tests under ThreadSanitizer
	$(call sanitized,thread,build/tsan)

ubsan: gtest | $(INSTALLED) ## Run the C++ tests under UndefinedBehaviorSanitizer
	$(call sanitized,undefined,build/ubsan)

gpu: ## Build, test and time what needs a GPU, on one, without a network: 9 minutes; build/gpu/summary.md
	$(CALLERS) -m tests.gpu.run

bench: dev ## Compare the collectives with gloo and MPI
	$(BENCH_NEEDS)
	python3 benchmarks/collectives.py

bench-neighbors: dev ## Compare averaging with neighbors with raw MPI, in C
	$(BENCH_NEEDS)
	python3 benchmarks/neighbors.py

bench-tables: ## Make the tables and pictures of benchmarks/results, README and docs again, from the JSON files
	python3 benchmarks/report.py
	python3 benchmarks/pictures.py
	python3 benchmarks/pictures_docs.py
	python3 benchmarks/performance.py

BENCH_NEEDS = python3 -c 'import mpi4py, matplotlib' 2>/dev/null || $(INSTALL) --no-build-isolation -e '.[bench]'

# A wheel has modules for all torches, and wants neither a compiler nor a new glibc where it is
# installed. No other verb needs wheels.
PYTHONS ?= python3
wheel: ## Build the wheel of this Python, or of PYTHONS="python3.10 ...", into dist/: a dozen minutes
	python3 .ci/wheel/build.py $(PYTHONS)
wheel-cuda13: ## Build the wheel with the kernels for CUDA 13, which needs nvcc, into dist/
	python3 .ci/wheel/build.py --cuda13
wheel-test: ## Install the wheels of dist/ beside each torch, without a compiler, and try them
	python3 .ci/wheel/test.py dist/*.whl

# QEMU is slow, so it runs the tests of kernels, rings and collectives alone. One of them needs a
# writer that makes a hundred changes in a few milliseconds.
AARCH64 = -DCMAKE_TOOLCHAIN_FILE=$(CURDIR)/.ci/wheel/aarch64.cmake
NEWEST_TORCH = $(lastword $(shell python3 .ci/wheel/torches.py versions))
AARCH64_TESTS := reduce_test fingerprint_test ring_test slot_test collectives_test neighbor_test
aarch64: gtest | $(INSTALLED) ## Compile for aarch64 with Debian's cross compiler, and run a few C++ tests with QEMU
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then DEBIAN_FRONTEND=noninteractive \
		apt-get install -yqq --no-install-recommends g++-aarch64-linux-gnu qemu-user-static >/dev/null; fi
	cmake -S /usr/src/googletest -B build/aarch64/gtest $(AARCH64) -DBUILD_GMOCK=OFF -DCMAKE_INSTALL_PREFIX=build/aarch64/root
	cmake --build build/aarch64/gtest --target install
	cmake -S . -B build/aarch64/cmake $(AARCH64) -DBLUEFOG_CUDA=OFF -DBLUEFOG_TESTS=ON -DGTest_DIR=$(CURDIR)/build/aarch64/root/lib/cmake/GTest \
		-DBLUEFOG_TORCH="$$(python3 .ci/wheel/torches.py aarch64 $(NEWEST_TORCH))"
	cmake --build build/aarch64/cmake --target _C_torch$(subst .,_,$(basename $(NEWEST_TORCH))) $(AARCH64_TESTS)
	ctest --test-dir build/aarch64/cmake --output-on-failure -R '^($(subst $(eval ) ,|,$(strip $(AARCH64_TESTS))))[.][A-Z]' \
		-E AKilledWriterLeavesItWhole

# The extra's packages are installed by themselves, because the package would be built again with them.
SITE_NEEDS = import importlib.metadata as m; print(*[r.split(";")[0] for r in m.requires("bluefog-pg") if "docs" in r])
docs: | $(INSTALLED) ## Build the documentation as a site, and check its links; build/site
	python3 -c 'import material, mkdocstrings_handlers.python' 2>/dev/null || $(INSTALL) $$(python3 -c '$(SITE_NEEDS)')
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet
	python3 .ci/site/check.py build/site

docs-environment: | $(INSTALLED) ## Make the table of environment variables in docs again
	python3 .ci/site/environment.py

CPP_FILES = $(shell find $(wildcard src tests/cpp benchmarks) -name '*.cpp' -o -name '*.hpp' -o -name '*.inl' -o -name '*.c' -o -name '*.cu' -o -name '*.cuh')

lint: | $(INSTALLED) ## Check style, types, imports, spelling, and the rules of CONTRIBUTING.md
	@$(MAKE) --no-print-directory --keep-going $(CHECKS)

check-rules:
	python3 .ci/lint_rules.py
	python3 .ci/lint_cpp.py
	python3 .ci/lint_prose.py
check-python:
	ruff check
	ruff format --check
check-types:
	mypy
check-imports:
	lint-imports --no-cache
check-cpp:
	@clang-format --dry-run -Werror $(CPP_FILES)
check-spelling:
	codespell

# This is no part of lint because a file that includes torch takes a dozen seconds. TIDY is a
# regular expression for the files.
TIDY ?= ^$(CURDIR)/src/.*\.cpp
tidy: | $(INSTALLED) ## Look for mistakes in the C++ with clang-tidy: seven minutes on two idle cores; TIDY=window/Slot looks at less
	@$(INSTALL) clang-tidy==23.1.4
	@cmake -S . -B build/tidy -DBLUEFOG_UNITY=OFF -DBLUEFOG_CUDA=OFF >build/tidy.log
	@run-clang-tidy.py -quiet -p build/tidy '$(TIDY)'

fmt: | $(INSTALLED) ## Format everything
	ruff check --fix
	ruff format
	@clang-format -i $(CPP_FILES)

clean: ## Remove what was built (not .venv)
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache

# $(call sanitized,the sanitizer,the build folder)
define sanitized
	cmake -S . -B $(2) -DCMAKE_BUILD_TYPE=RelWithDebInfo -DSANITIZE=$(1) -DBLUEFOG_MODULE=OFF -DBLUEFOG_TESTS=ON -DBLUEFOG_CUDA=OFF
	$(call ctest,$(2))
endef

# $(call ctest,the build folder)
define ctest
	cmake --build $(1) --target cpp-tests
	BLUEFOG_MPI_HOME=$(ENV) ctest --test-dir $(1) --output-on-failure --parallel 4
endef

# If the machine has no compiler for CUDA, pip installs one.
$(CURDIR)/build/nvcc/nvidia/cu13/bin/nvcc: | $(INSTALLED)
	$(INSTALL) --no-deps --target build/nvcc nvidia-cuda-nvcc==13.0.88 nvidia-cuda-runtime==13.0.96 \
		nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-cccl==13.0.85
	ln -sfn lib build/nvcc/nvidia/cu13/lib64

# No package index carries GoogleTest. If it cannot be installed, CMake says that it skips the C++
# tests.
gtest:
	@if [ ! -e /usr/include/gtest/gtest.h ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -yqq libgtest-dev; } >/dev/null || true; fi

$(CURDIR)/.venv/pyvenv.cfg:
	python3 -m venv .venv
	$(INSTALL) --upgrade pip

$(INSTALLED): $(COMPILED) $(or $(if $(ACTIVE),$(wildcard $(ENV)/pyvenv.cfg),$(ENV)/pyvenv.cfg))
	@echo 'Installing torch and the tools to build with ...'
	@$(INSTALL) $(if $(ACTIVE),,$(TORCH)) 'scikit-build-core>=1.1' cmake ninja
	@echo 'Compiling, and installing the tools to develop with: two to five silent minutes on idle cores, more with nvcc ...'
	@# Kernels for this machine's GPU, or for nvcc's default where there is none: for all kinds they take a minute.
	@$(INSTALL) --no-build-isolation -C build-dir=$(BUILT) \
		-C cmake.define.CMAKE_CUDA_ARCHITECTURES=native -e '.[dev]'
	@$(ENV)/bin/python3 -c 'import bluefog_pg.torch'
	@mkdir -p $(@D) && touch $@
