# `make` lists the targets. All that they need beyond Python, a C++17 compiler and make comes from
# pip and lies in .venv; the stamp files there keep a second run from installing anything again.

PYTHON ?= python3
PYTEST_ARGS ?=
# Processes that share the tests; tests of a group stay together, since they share what they compile:
# of a file, or of a part of the corpus (tests/conftest.py).
TEST_WORKERS ?= auto
PYTEST_WORKERS = --numprocesses $(TEST_WORKERS) --maxprocesses 8 --dist loadgroup
WERROR ?= OFF
SANITIZE_CXX ?= g++
SANITIZE_TESTS ?= tests -m cpp

VENV := $(CURDIR)/.venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check
CMAKE := $(VENV)/bin/cmake
# What linting and the tests take: dependency groups of pyproject.toml.
TOOLS := $(VENV)/.group-lint $(VENV)/.group-test
PACKAGE := python/fuse_epilogue
PYTHON_CODE := setup.py $(wildcard python tests examples tutorials benchmarks docs)
CPP_CODE = $(shell find cpp packaging tests/cuda_on_cpu -name "*.cc" -o -name "*.h")

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# One target at a time; within the compilation all cores work anyway.
.NOTPARALLEL:
.PHONY: help install lib demo test test-all lint format sanitize bench fuzz fuzz-cascades fuzz-certificates fuzz-cuda fuzz-neuron fuzz-modules fuzz-schedules mutants stale tvm-tests docs wheel test-wheel clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

install: $(VENV)/.package $(TOOLS) lib ## create .venv with the package (editable) and all tools in it

demo: $(VENV)/.package lib ## fuse a layer, check it, time it compiled in several ways; compile a small model
	$(PY) examples/demo.py

test: lint install ## lint, then the quick tests (PYTEST_ARGS: further arguments of pytest; TEST_WORKERS: processes)
	$(PY) -m pytest $(PYTEST_WORKERS) -m "not full" $(PYTEST_ARGS)

test-all: lint install $(VENV)/.group-models ## lint, then all tests, as continuous integration does (PYTEST_ARGS, TEST_WORKERS)
	$(PY) -m pytest $(PYTEST_WORKERS) $(PYTEST_ARGS)

lint: $(TOOLS) ## ruff, mypy, clang-format and wording, without changing anything
	$(PY) -m ruff check $(PYTHON_CODE)
	$(PY) -m ruff format --check $(PYTHON_CODE)
	$(PY) -m mypy
	$(VENV)/bin/clang-format --dry-run -Werror $(CPP_CODE)
	PYTHONPATH=tests $(PY) -m wording

format: $(VENV)/.group-lint ## let ruff and clang-format rewrite the files
	$(PY) -m ruff check --fix --exit-zero $(PYTHON_CODE)
	$(PY) -m ruff format $(PYTHON_CODE)
	$(VENV)/bin/clang-format -i $(CPP_CODE)

# The committed result on convolutions has MetaSchedule in it, and stays without its records.
TUNED ?=
bench: $(VENV)/.group-bench lib ## time the primitive, what fusing gains, and depthwise convolutions: half an hour (TUNED: MetaSchedule's records)
	$(PY) benchmarks/primitive.py
	$(PY) benchmarks/fusion.py
	$(PY) benchmarks/conv1d_cpu.py $(if $(TUNED),--tuned $(TUNED),--output build/conv1d_cpu.json)

stale: $(VENV)/.tools ## list the results in benchmarks/results that are older than what they depend on
	$(PY) benchmarks/provenance.py

# What is finished is kept in build/fuzz: the same command goes on where it was stopped. AGAIN=1 judges
# only those chunks of programs again in which something was wrong; the result says who judged the others.
N ?= 10000
SEED ?= 1
WORKERS ?= 1
OUT ?=
AGAIN ?=
fuzz_options = --seed $(SEED) --workers $(WORKERS) $(if $(OUT),--output $(OUT)) $(if $(AGAIN),--again)
BASELINE ?=
fuzz: install ## judge N generated programs (SEED, WORKERS: processes, OUT: a JSON file, BASELINE=1: TVM's primitive too)
	PYTHONPATH=tests $(PY) -m generated --programs $(N) $(fuzz_options) $(if $(BASELINE),--baseline)

EACH ?= 1000
fuzz-certificates: install ## check certificates with one field changed (EACH: how many of a fusion, SEED, OUT)
	PYTHONPATH=tests $(PY) -m certificate_fuzz --each $(EACH) --seed $(SEED) \
	  $(if $(OUT),--output $(OUT))

# ONNX_RUNTIME: a Python that has onnx and onnxruntime; without one NumPy is the only oracle.
ONNX_RUNTIME ?=
fuzz-modules: N = 1000
fuzz-modules: install ## judge N random Relax modules (SEED, WORKERS, OUT; ONNX_RUNTIME: a Python that has onnxruntime)
	PYTHONPATH=tests $(PY) -m generated_modules --modules $(N) $(fuzz_options) \
	  $(if $(ONNX_RUNTIME),--oracle $(ONNX_RUNTIME),--no-oracle)

fuzz-cascades: install ## judge N generated cascades (SEED, WORKERS, OUT: as for fuzz); kept in build/fuzz-cascades
	PYTHONPATH=tests $(PY) -m generated_cascades --programs $(N) $(fuzz_options)

# The same for schedules of LLVM; in build/fuzz-schedules.
fuzz-schedules: N = 5000
fuzz-schedules: install ## judge schedules of N generated functions (SEED, WORKERS, OUT: as for fuzz)
	PYTHONPATH=tests $(PY) -m planned_functions --programs $(N) $(fuzz_options)

# Functions whose operands are defined under guards only; finished ones are in build/fuzz-guarded.
fuzz_guarded = PYTHONPATH=tests $(PY) -m guarded_functions $(1) --functions $(N) $(fuzz_options)

fuzz-cuda: N = 1000
fuzz-cuda: install ## judge N guarded functions scheduled for CUDA, executed by the CPU (SEED, WORKERS, OUT)
	$(call fuzz_guarded,cuda)

fuzz-neuron: N = 2000
fuzz-neuron: install ## judge N guarded functions scheduled for Trainium, interpreted (SEED, WORKERS, OUT)
	$(call fuzz_guarded,neuron)

# State is in build/mutants, as that of `fuzz`; after a change of the mutated code all is run again.
MUTANTS ?= 200
mutants: install $(VENV)/.group-mutants ## see which faults put into the package the quick tests notice: hours (MUTANTS, SEED, OUT)
	PYTHONPATH=tests $(PY) -m mutants --mutants $(MUTANTS) --seed $(SEED) $(if $(OUT),--output $(OUT))

# TVM's own tests, from its sources. An interrupted run is taken up again, as that of `fuzz`.
TVM ?=
REVISION ?=
tvm-tests: $(VENV)/.group-tvm-tests lib ## run TVM's own tests without the extension and with it (TVM: a checkout, REVISION: if not of git, OUT: a JSON file)
	@test -n "$(TVM)" || { echo 'make tvm-tests TVM=PATH: the folder of a checkout of TVM' >&2; exit 2; }
	PYTHONPATH=tests $(PY) -m tvm_tests $(TVM) $(if $(REVISION),--revision $(REVISION)) \
	  $(if $(OUT),--output $(OUT))

# Runs the tutorials, whose output is part of their pages: those that have changed since the last time.
SPHINX_ARGS ?=
docs: $(VENV)/.group-docs lib ## build the documentation site: build/docs/html/index.html (TUTORIALS=0: without running them)
	$(PY) -m sphinx --fail-on-warning --keep-going --builder html \
	  $(if $(filter 0,$(TUTORIALS)),-D plot_gallery=0) $(SPHINX_ARGS) docs build/docs/html
	cd docs && $(PY) -m generate.links ../build/docs/html

# A wheel is for the machine that its compiler compiles for, and for glibc 2.28 or later: GCC 11 or 12 can
# be had with that. It links with the libtvm_ffi.so of that machine.
WHEEL_CXX ?= g++
machine_of = $(firstword $(subst -, ,$(shell $(1) -dumpmachine)))
# auditwheel judges wheels for any machine, but takes as --plat only names of the machine that it runs on.
auditwheel_for = import platform, sys; platform.machine = lambda: '$(2)'; \
  from auditwheel.main import main; sys.exit(main())
define build_wheel
rm -rf build/wheel
$(PY) -m pip download --quiet --no-deps --only-binary :all: --platform manylinux_2_28_$(2) --dest build/wheel \
  $$(grep '^apache-tvm-ffi' $(VENV)/build-requires.txt)
$(PY) -m zipfile --extract build/wheel/apache_tvm_ffi-*.whl build/wheel/tvm_ffi
CXX=$(1) CMAKE_ARGS="-DFUSE_EPILOGUE_WHEEL=ON \
  -DFUSE_EPILOGUE_TVM_FFI=$(CURDIR)/build/wheel/tvm_ffi/tvm_ffi/lib/libtvm_ffi.so" \
  $(PY) -m pip wheel --quiet --no-deps --no-build-isolation --no-cache-dir --wheel-dir build/wheel/built \
  --config-settings=--build-option=--plat-name=linux_$(2) dist/*.tar.gz
PATH=$(VENV)/bin:$$PATH $(PY) -c "$(auditwheel_for)" repair --plat manylinux_2_28_$(2) --exclude libtvm_ffi.so \
  --wheel-dir dist build/wheel/built/*.whl

endef
wheel: $(VENV)/.group-package ## build dist/: the source distribution, and from that manylinux_2_28 wheels (WHEEL_CXX: compilers, one for each machine)
	rm -rf dist
	$(PY) -m build --sdist --no-isolation --outdir dist
	$(foreach cxx,$(WHEEL_CXX),$(call build_wheel,$(cxx),$(call machine_of,$(cxx))))

# With pyenv: PYENV_VERSION=3.10:3.11:3.12:3.13 make test-wheel
PYTHONS ?= python3.10 python3.11 python3.12 python3.13
test-wheel: $(VENV)/.group-package ## judge what lies in dist/, then install and try this machine's wheel (PYTHONS: with which)
	PATH=$(VENV)/bin:$$PATH PYTHONPATH=tests $(PY) -m packaged dist --pythons $(PYTHONS)

clean: ## remove all that make has created
	rm -rf $(VENV) build dist $(PACKAGE)/lib python/*.egg-info
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache docs/generated docs/tutorials
	find python tests examples tutorials benchmarks docs -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# --- Set-up ---------------------------------------------------------------------------------------

# The build requirements, read from pyproject.toml (before Python 3.11 pip's own tomli has to do it).
define READ_BUILD_REQUIRES
try:
    import tomllib
except ImportError:
    from pip._vendor import tomli as tomllib
with open("pyproject.toml", "rb") as f:
    print("\n".join(tomllib.load(f)["build-system"]["requires"]))
endef
export READ_BUILD_REQUIRES

# The first that installs dependency groups: Python 3.13 still brings an older one.
PIP_WITH_GROUPS := 'pip>=25.1'

$(VENV)/.tools: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo '$(PYTHON) is too old: Python 3.10 or later is needed (make PYTHON=...)' >&2; exit 1; }
	@echo 'Setting up .venv with pip, CMake and Ninja: a quarter of a minute'
	@$(PYTHON) -m venv $(VENV) || \
	  { echo 'Python cannot create a virtual environment (Debian: install python3-venv)' >&2; exit 1; }
	@$(PY) -c "$$READ_BUILD_REQUIRES" > $(VENV)/build-requires.txt
	@$(PIP) --upgrade $(PIP_WITH_GROUPS)
	@$(PIP) -r $(VENV)/build-requires.txt
	@touch $@

# Editable, so that a change of a Python file needs no step of its own. The library is built before
# and in the folder where setup.py looks for it here: the installation has nothing left to compile.
$(VENV)/.package: pyproject.toml setup.py $(VENV)/.tools
	@$(MAKE) --no-print-directory lib
	@echo 'Installing the package, with TVM and NumPy: half a minute'
	@FUSE_EPILOGUE_BUILD_DIR=build/release $(PIP) --no-build-isolation --editable .
	@touch $@

# What only some targets need: a dependency group of pyproject.toml each.
$(VENV)/.group-%: $(VENV)/.package
	@echo 'Installing the tools in the group $* of pyproject.toml: up to a minute, with PyTorch more'
	@$(PIP) --group $*
	@touch $@

# Tests of whole models: PyTorch for processors alone, of 200 MB. Where the registry has only the build
# with CUDA, of several gigabytes, it is left to whoever wants it, and these tests are skipped.
$(VENV)/.group-models: $(VENV)/.group-test
	@echo 'Installing PyTorch and ONNX Runtime for the tests of whole models: a minute or two'
	@$(PIP) --dry-run --report $@.json --group models
	@if grep -q '"nvidia-' $@.json; then \
	  echo 'Left out: this PyTorch brings CUDA along. For the tests of whole models, install' >&2; \
	  echo 'the build of torch 2.13.0 for processors into .venv.' >&2; \
	else $(PIP) --group models; fi
	@touch $@

# --- The library ----------------------------------------------------------------------------------

# Usage: $(call configure,folder,further arguments)
configure = $(CMAKE) -S . -B $(1) -G Ninja -DCMAKE_MAKE_PROGRAM=$(VENV)/bin/ninja \
  -DPython_EXECUTABLE=$(PY) $(2)

build/release/build.ninja: $(VENV)/.tools
	$(call configure,build/release,-DFUSE_EPILOGUE_WERROR=$(WERROR))
	@echo 'Compiling cpp/, all of it this once: one or two minutes on two cores'
	@touch $@

build/sanitize/build.ninja: $(VENV)/.tools
	$(call configure,build/sanitize,-DFUSE_EPILOGUE_SANITIZE=ON -DCMAKE_CXX_COMPILER=$(SANITIZE_CXX))
	@touch $@

# Ninja knows what is out of date, new and removed files included: it is always asked.
lib: build/release/build.ninja ## compile what has changed in cpp/ and put the library into the package
	@$(CMAKE) --build build/release
	@$(CMAKE) --install build/release --prefix $(PACKAGE) > build/release/install.log

# --- Sanitizers -----------------------------------------------------------------------------------

# Python and TVM are not instrumented, so their process must have the sanitizers' runtime from the
# start. ASan's looks for __cxa_throw there and then: without libstdc++ beside it, it would abort at
# the first C++ exception.
sanitizer_runtime = $(foreach name,libasan.so libubsan.so libstdc++.so.6,\
  $(shell $(SANITIZE_CXX) -print-file-name=$(name)))

# No leak detection: Python and LLVM keep memory until the end on purpose. And tests whose processes
# end with a division by zero look at the signal.
ASAN := detect_leaks=0:handle_sigfpe=0
UBSAN := print_stacktrace=1

# --capture=sys: the report of a sanitizer goes to the file descriptor, past pytest.

sanitize: install build/sanitize/build.ninja ## the tests of the C++ library with ASan and UBSan (SANITIZE_TESTS: others, as pytest arguments)
	@$(CMAKE) --build build/sanitize
	@for lib in $(sanitizer_runtime); do test -e $$lib || \
	  { echo "$(SANITIZE_CXX) has no $$lib; choose a GCC with SANITIZE_CXX=..." >&2; exit 1; }; done
	FUSE_EPILOGUE_LIBRARY=$(CURDIR)/build/sanitize/libfuse_epilogue.so \
	  LD_PRELOAD='$(strip $(sanitizer_runtime))' ASAN_OPTIONS=$(ASAN) UBSAN_OPTIONS=$(UBSAN) \
	  $(PY) -m pytest --capture=sys -p no:cacheprovider $(PYTEST_WORKERS) \
	  $(SANITIZE_TESTS)
