# `make` lists what there is. Everything happens in a virtual environment at .venv and in build/, both made on demand;
# after the first run no network is needed.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.ONESHELL:
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

VENV := .venv
PYTHON_IN_VENV := $(CURDIR)/$(VENV)/bin/python
TOOLS := $(VENV)/.tools-installed
PACKAGE := $(VENV)/.package-installed
WIRE_LAYOUT := src/cotenant/segment/wire.py
WIRE_HEADERS := native/admission/knobs.h native/wire/wire.h native/wire/row.h
ZIG := $(VENV)/.zig-installed
BUNDLE_MACHINE ?= $(shell uname -m)
BUNDLE_PYTHONS ?= 3.11 3.12 3.13

# Another compiler may warn of what ours does not: that stops whoever tests the sources, not who only builds them.
WERROR := OFF
test lint lint-python lint-warnings sanitize: WERROR := ON

# Most tests wait more than they compute. Neighbours stay together: many share a program that the first of them compiles.
# Each worker reads all tests: the modules are compiled before, where the environment does not forbid to keep that.
TESTS_AT_ONCE ?= $(shell expr $$(nproc) + 2)
RUN_PYTEST := env -u PYTHONDONTWRITEBYTECODE $(PYTHON_IN_VENV) -m pytest --quiet
PYTEST := $(RUN_PYTEST) --numprocesses $(TESTS_AT_ONCE) --dist worksteal

# Programs whose threads or processes meet in memory; the others only compute.
SANITIZED := tests/wire $(addprefix tests/tenant/test_,device_attributes.py fresh_blocks.py memory_quota.py)

# With the list of them, so that a deleted file counts as a change. (A folder changes when Python keeps bytecode in it.)
FILES := $(sort $(filter-out $(WIRE_LAYOUT),$(shell find src native -type f -not -name '*.pyc' 2>/dev/null)))
LIST_OF_FILES := build/files
$(shell mkdir -p build; echo '$(FILES)' | cmp -s - $(LIST_OF_FILES) || echo '$(FILES)' >$(LIST_OF_FILES))
SOURCES := pyproject.toml CMakeLists.txt LICENSE README.md $(FILES) $(LIST_OF_FILES)
PYTHON_FOLDERS := $(wildcard src tests bench examples packaging native/codegen)
CPP_FILES := $(shell find $(wildcard native tests bench) \( -name '*.h' -o -name '*.c' -o -name '*.cpp' -o -name '*.inc' \) 2>/dev/null)

.PHONY: help
help:  ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' Makefile | sed -E 's/^([a-z0-9-]+):.*## (.*)/  make \1\t\2/' | expand -t 32

$(TOOLS): pyproject.toml packaging/prerequisites.sh
	@python=$$(packaging/prerequisites.sh)
	[ -x $(PYTHON_IN_VENV) ] || { echo "making $(VENV) with $$($$python --version)"; $$python -m venv $(VENV); }
	echo "installing the tools into $(VENV)"
	$(PYTHON_IN_VENV) -m pip install -qq --disable-pip-version-check 'pip>=25.1'
	$(PYTHON_IN_VENV) -m pip install -qq --disable-pip-version-check --group dev
	touch $@

# The installed package has one of its own, of its own build; this is for mypy and editors.
$(WIRE_LAYOUT): native/codegen/wire_layout.py $(WIRE_HEADERS) | $(TOOLS)
	@$(PYTHON_IN_VENV) native/codegen/wire_layout.py $(WIRE_HEADERS) --python $@
	touch $@

$(PACKAGE): $(TOOLS) $(WIRE_LAYOUT) $(SOURCES)
	@echo "building and installing the package"
	unset MAKEFLAGS  # ninja looks for make's jobserver in it, which is not for commands like this
	$(PYTHON_IN_VENV) -m pip install -qq --disable-pip-version-check --no-build-isolation \
	    --config-settings=build-dir=build/native --config-settings=cmake.define.COTENANT_WERROR=$(WERROR) \
	    '.[demo,cluster]'
	touch $@

.PHONY: venv build demo test test-drawn test-kubernetes test-slurm test-systemd test-examples test-16k sanitize lint lint-python lint-cpp lint-interposer lint-warnings format check-locks interposition-report figures chart fuzz-segment bench-launch bench-timeline bench-daemon bench-coverage bench-pairs bench-crowd bench-memory bench-drills bench-outsiders bench-scale bench-kubernetes bench-simulator wheels bundle clean

venv: $(TOOLS)  ## make .venv with the tools
	@:

build: $(PACKAGE)  ## build the package and install it into .venv
	@:

demo: $(PACKAGE)  ## share one GPU between two jobs, and show what it does to latency
	@$(VENV)/bin/cotenant demo --output demo-report

test: lint $(PACKAGE)  ## lint, and all tests that need no GPU
	@$(RUN_PYTEST) --collect-only >/dev/null  # what is wrong there the workers say
	$(PYTEST)

test-drawn: $(PACKAGE)  ## the tests of what is drawn at random, all cases of them (make test has a part)
	@COTENANT_TEST_DRAWN=all $(PYTEST) $(shell grep -l 'import drawn_cases' -r tests --include='test_*.py')

# KUBERNETES_BUILD_SECONDS: the longest that building may take; KUBERNETES_TESTS: pytest's options.
KUBERNETES_BUILD_SECONDS ?= inf
KUBERNETES_TESTS ?=
test-kubernetes: $(PACKAGE)  ## the tests that need a real Kubernetes, built from the Go module proxy (the first time half an hour)
	@export COTENANT_TEST_KUBERNETES=$${COTENANT_TEST_KUBERNETES:-$${XDG_CACHE_HOME:-$$HOME/.cache}/cotenant-tests/kubernetes}
	if $(PYTHON_IN_VENV) tests/kubernetes/build.py --seconds $(KUBERNETES_BUILD_SECONDS); then
	    $(PYTHON_IN_VENV) -m pytest --quiet tests/kubernetes/real $(KUBERNETES_TESTS)
	else
	    echo "test-kubernetes: skipped, see above"
	fi

test-slurm: $(PACKAGE)  ## the tests that need a real Slurm: Debian's, fetched and unpacked into build/slurm
	@if $(PYTHON_IN_VENV) tests/slurm/unpack.py build/slurm; then
	    COTENANT_TEST_SLURM=$(CURDIR)/build/slurm $(PYTHON_IN_VENV) -m pytest --quiet tests/slurm
	else
	    echo "test-slurm: skipped, see above"
	fi

test-examples: $(PACKAGE)  ## every example of every --help, typed on the software GPU (root; a minute)
	@COTENANT_TEST_EXAMPLES=1 $(PYTHON_IN_VENV) -m pytest --quiet tests/examples

test-systemd: $(PACKAGE)  ## the daemon's units under a systemd of their own, booted in namespaces (root; a minute)
	@if why=$$($(PYTHON_IN_VENV) -m tests.systemd.machine); then
	    COTENANT_TEST_SYSTEMD=1 $(PYTHON_IN_VENV) -m pytest --quiet tests/systemd
	else
	    echo "test-systemd: skipped: $$why"
	fi

sanitize: $(PACKAGE)  ## the native tests that have threads or share memory, with ThreadSanitizer, then with the others
	@echo "sanitize: threads"
	COTENANT_TEST_SANITIZE=thread TSAN_OPTIONS="halt_on_error=1 die_after_fork=0" \
	    $(PYTEST) $(SANITIZED)
	echo "sanitize: addresses and undefined behaviour"
	COTENANT_TEST_SANITIZE=address,undefined UBSAN_OPTIONS=halt_on_error=1 ASAN_OPTIONS=detect_leaks=0 \
	    $(PYTEST) $(SANITIZED)

# Side by side: types are checked on one core only, while the compiler has the others.
lint:  ## formats, types and compiler warnings
	@$(MAKE) --jobs 2 lint-python lint-cpp lint-interposer lint-warnings

lint-python: $(PACKAGE)
	@echo "lint: ruff"
	$(VENV)/bin/ruff check --quiet $(PYTHON_FOLDERS)
	$(VENV)/bin/ruff format --quiet --check $(PYTHON_FOLDERS) || { echo "error: run 'make format'" >&2; exit 1; }
	echo "lint: mypy --strict"
	$(VENV)/bin/mypy --no-error-summary $(filter-out bench,$(PYTHON_FOLDERS))
	for bench in $(wildcard bench/*); do
	    MYPYPATH=$$bench $(VENV)/bin/mypy --no-error-summary $$bench
	done

lint-cpp: $(TOOLS)
	@echo "lint: clang-format"
	if ! wrong=$$($(VENV)/bin/clang-format --dry-run -Werror $(CPP_FILES) 2>&1); then
	    grep -oE '^[^ :]+:[0-9]+:[0-9]+: error: .*' <<<"$$wrong" | sort -u -t: -k1,1 >&2 || echo "$$wrong" >&2
	    echo "error: run 'make format'" >&2
	    exit 1
	fi

# What was built for something else may have warnings.
lint-warnings: $(PACKAGE)
	@echo "lint: C++ warnings as errors"
	unset MAKEFLAGS  # as above
	$(VENV)/bin/cmake -S . -B build/native --log-level=WARNING -DCOTENANT_WERROR=ON >/dev/null
	$(VENV)/bin/cmake --build build/native -- --quiet

# For tests/interposer/test_lock_order.py, and since gcc sees large frames here only.
lint-interposer: $(TOOLS)
	@echo "lint: the interposer that checks the order of its locks"
	unset MAKEFLAGS  # as above
	$(VENV)/bin/cmake -S . -B build/lint -G Ninja --log-level=WARNING -DCOTENANT_WERROR=ON -DCOTENANT_CHECK_LOCKS=ON \
	    -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(VENV)/bin/ninja -DPython3_EXECUTABLE=$(PYTHON_IN_VENV) >/dev/null
	$(VENV)/bin/cmake --build build/lint --target shim -- --quiet

format: $(TOOLS)  ## rewrite the sources in the project's format
	@$(VENV)/bin/ruff check --quiet --fix-only $(PYTHON_FOLDERS)
	$(VENV)/bin/ruff format --quiet $(PYTHON_FOLDERS)
	$(VENV)/bin/clang-format -i $(CPP_FILES)

check-locks: lint-interposer $(PACKAGE)  ## the interposer's tests on a build that checks the order of its locks
	@rm -rf build/checking
	cp -r $(VENV)/lib/python3*/site-packages/cotenant/native build/checking
	cp build/lint/native/shim/lib/libcuda.so.1 build/checking/shim
	COTENANT_NATIVE=$(CURDIR)/build/checking $(PYTEST) tests/interposer

interposition-report: $(TOOLS)  ## rewrite docs/interposition.md from native/shim/hooks.list
	@include=$$(echo $(VENV)/lib/python3*/site-packages/nvidia/cu*/include)
	$(PYTHON_IN_VENV) native/codegen/shim.py --compiler $${CXX:-g++} --include $$include --list native/shim/hooks.list \
	    --exports native/facts/driver-580.exports.txt --report docs/interposition.md --check

figures: $(PACKAGE)  ## rewrite docs/figures.md, the table of docs/metrics.md and Python's types from src/cotenant/figures.py
	@$(PYTHON_IN_VENV) -m cotenant.figures_page > docs/figures.md
	$(PYTHON_IN_VENV) -m cotenant.metrics.page docs/metrics.md
	$(PYTHON_IN_VENV) -m cotenant.api.write_types > src/cotenant/api/figure_types.py

chart: $(PACKAGE)  ## rewrite the Helm chart in deploy/kubernetes/chart from src/cotenant/kubernetes/manifests.py
	@$(PYTHON_IN_VENV) -m cotenant.kubernetes.chart deploy/kubernetes/chart

fuzz-segment: $(PACKAGE)  ## jobs on the software GPU while nonsense is written into their segment, for an hour each
	COTENANT_FUZZ_SECONDS=$${COTENANT_FUZZ_SECONDS:-3600} $(VENV)/bin/pytest -q tests/interposer/test_fuzz_segment.py

.PHONY: docs man
docs: $(PACKAGE)  ## build the documentation's site into build/site; a warning is an error
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --quiet --strict
	echo "build/site/index.html"

man: $(PACKAGE)  ## write the manual's pages into build/man
	@$(VENV)/bin/cotenant man --output build/man

.PHONY: soak
soak: $(PACKAGE)  ## jobs that come, go, crash, fork and are paused: what do they leave behind? (SOAK_SECONDS=7200; default 120)
	@half=$$(($${SOAK_SECONDS:-120} / 2))
	$(PYTHON_IN_VENV) bench/soak/run.py --seconds $$half
	$(PYTHON_IN_VENV) bench/soak/run.py --seconds $$half --shared

bench-scale: $(PACKAGE)  ## what many tenants cost
	@$(PYTHON_IN_VENV) bench/scale/run.py

bench-launch: $(PACKAGE)  ## what the interposer adds to a launch: instructions, and nanoseconds on a GPU
	@$(PYTHON_IN_VENV) bench/launch/run.py

bench-timeline: $(PACKAGE)  ## what a timeline costs: nanoseconds an interval (no GPU)
	@$(PYTHON_IN_VENV) bench/timeline/run.py

bench-daemon: $(PACKAGE)  ## what the daemon takes of a core beside idle and busy tenants (a minute, no GPU)
	@$(PYTHON_IN_VENV) bench/daemon/run.py

bench-coverage: $(PACKAGE)  ## real programs with and without the interposer, compared bit for bit (needs a GPU)
	@$(PYTHON_IN_VENV) bench/coverage/run.py

bench-pairs: $(PACKAGE)  ## production jobs beside opportunistic ones, and other ways to share (needs a GPU and PyTorch)
	@$(PYTHON_IN_VENV) bench/pairs/run.py --python "$${PYTHON:-python3}"

bench-crowd: $(PACKAGE)  ## crowds of opportunistic jobs, with production and without, and a churn of them (needs a GPU and PyTorch)
	@$(PYTHON_IN_VENV) bench/crowd/run.py --python "$${PYTHON:-python3}"
	$(PYTHON_IN_VENV) bench/crowd/run.py churn

bench-kubernetes: $(PACKAGE)  ## pods a second on 300 nodes without kubelets, and what the placer adds (needs make test-kubernetes' programs)
	@export COTENANT_TEST_KUBERNETES=$${COTENANT_TEST_KUBERNETES:-$${XDG_CACHE_HOME:-$$HOME/.cache}/cotenant-tests/kubernetes}
	$(PYTHON_IN_VENV) bench/kubernetes/run.py

bench-simulator: $(PACKAGE)  ## how fast the simulator is, how far off, and the papers' headlines (five minutes, no GPU)
	@$(PYTHON_IN_VENV) bench/simulator/run.py
	$(PYTHON_IN_VENV) bench/simulator/validate.py
	$(PYTHON_IN_VENV) bench/simulator/headlines.py

bench-memory: $(PACKAGE)  ## jobs that do not fit on the GPU together (needs a GPU and PyTorch)
	@$(PYTHON_IN_VENV) bench/memory/run.py --python "$${PYTHON:-python3}"

bench-drills: $(PACKAGE)  ## what killed processes and a damaged segment do to the other jobs (needs a GPU)
	@$(PYTHON_IN_VENV) bench/drills/run.py

bench-outsiders: $(PACKAGE)  ## jobs outside Cotenant beside tenants, and jobs of several segments that start at once (needs a GPU)
	@$(PYTHON_IN_VENV) bench/outsiders/run.py

$(ZIG): $(TOOLS)
	@echo "installing the compiler for wheels into $(VENV)"
	$(PYTHON_IN_VENV) -m pip install -qq --disable-pip-version-check --group wheels
	touch $@

wheels: $(PACKAGE) $(ZIG)  ## wheels for x86-64 and aarch64, each installed and tested where it can be run
	@$(PYTHON_IN_VENV) packaging/wheels.py

test-16k: $(PACKAGE)  ## the shared memory's tests on a kernel with 16 KiB pages (qemu, Debian, half an hour; goes on where it was)
	@$(PYTHON_IN_VENV) packaging/large_pages.py

bundle: $(PACKAGE) $(ZIG)  ## one archive for a machine without a network (BUNDLE_PYTHONS="3.12" and BUNDLE_MACHINE=aarch64 choose)
	@$(PYTHON_IN_VENV) packaging/bundle.py --machine $(BUNDLE_MACHINE) $(BUNDLE_PYTHONS)

clean:  ## remove all that make made
	@rm -rf $(VENV) $(WIRE_LAYOUT) build dist demo-report .mypy_cache .ruff_cache .pytest_cache .hypothesis
