PYTHON ?= python3
SEED ?= 1
CASES ?= 2000
RUNS ?= 200
# A release, or where one for processors alone lies: the one on PyPI brings CUDA along on Linux.
TORCH ?= torch==2.13.0

SUDO := $(if $(filter 0,$(shell id -u)),,sudo )
APT := $(SUDO)apt-get install -y git make g++ python3-venv perl
BIN := .venv/bin
STAMP := .venv/.stamp

.DEFAULT_GOAL := help
.PHONY: help deps prerequisites setup torch browser demo test test-all unit properties validators cost verify verify-long internals hostile faults tflite board networks wild onnx-suite mutants mutate blocks netlist levels fuzz mutated-programs floats prove lint bench silicon area bitstream notebooks docs docs-check clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

deps: ## install what the system has to bring (apt)
	$(APT)

# git is asked for in a checkout only: a source tarball works without it.
prerequisites:
	@missing=; miss() { echo "missing: $$1"; missing=1; }; \
	has() { command -v $$1 >/dev/null 2>&1; }; \
	if [ -e .git ] && ! has git; then miss "git"; fi; \
	has make || miss "make (builds the simulated hardware)"; \
	has g++ || miss "g++ (builds the simulated hardware)"; \
	has perl || miss "perl (Verilator is a perl script)"; \
	if ! $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	  miss "Python >= 3.11 ($(PYTHON) is $$($(PYTHON) -V 2>/dev/null || echo absent)); name another: make setup PYTHON=python3.12"; \
	elif ! $(PYTHON) -c 'import venv, ensurepip' >/dev/null 2>&1; then \
	  miss "python3-venv ($(PYTHON) cannot import venv and ensurepip)"; \
	fi; \
	if [ "$$missing" ]; then \
	  echo "to install (make deps does it): sudo apt-get install -y git make g++ python3-venv perl"; exit 1; \
	fi

setup: $(STAMP) ## make .venv with npukit and its tools in it

# Not a prerequisite of the stamp: a phony one would rebuild it every time.
$(STAMP): pyproject.toml
	@$(MAKE) --no-print-directory prerequisites
	@echo "setting up .venv, once: about a minute"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e '.[demo,rtl,fpga,serial,test,dev]'
	@touch $@

torch: $(STAMP) ## PyTorch, for processors, and what its tests need, into .venv; without it they are skipped by name
	$(BIN)/python -m pip install -qq --disable-pip-version-check $(TORCH)
	$(BIN)/python -m pip install -qq --disable-pip-version-check -e '.[test-torch]'

browser: ## Chromium (apt), in which tests open reports; without it they are skipped by name
	@command -v chromium >/dev/null 2>&1 || $(SUDO)apt-get install -y chromium

demo: $(STAMP) ## classify handwritten digits on the simulated machine
	@$(BIN)/python examples/demo_digits.py

test: $(STAMP) ## every test, some cases of those with many long ones; two workers
	$(BIN)/pytest -n 2 --durations=5

test-all: $(STAMP) ## every case of every test
	$(BIN)/pytest -n 2 --durations=20 --all-cases

unit: $(STAMP) ## the tests of isa, sim, compiler and driver alone
	$(BIN)/pytest tests/isa tests/sim tests/compiler tests/driver

properties: $(STAMP) ## property tests at length: SEED=1 CASES=2000
	$(BIN)/python tests/properties.py --seed $(SEED) --cases $(CASES)

validators: $(STAMP) ## the validator against brute force, on small programs: SEED=1 CASES=2000
	$(BIN)/python tests/validators.py --seed $(SEED) --cases $(CASES)

cost: $(STAMP) ## the compiler's estimates of cycles against the timing simulator, over the zoo
	$(BIN)/python tests/cost.py --verbose

verify: $(STAMP) ## random programs, simulator against RTL, over a table of configurations: SEED=1
	$(BIN)/python tests/verify.py --seed $(SEED)

verify-long: $(STAMP) ## the same with 10 000 programs a configuration; goes on where it was cut off
	$(BIN)/python tests/verify.py --seed $(SEED) --programs 10000 --resume

internals: $(STAMP) ## queues and handshakes inside of the core, each at its ends: SEED=1
	$(BIN)/python tests/internals.py --seed $(SEED)

hostile: $(STAMP) ## resets and bus errors in the middle of programs: SEED=1 RUNS=200
	$(BIN)/python tests/hostile.py --seed $(SEED) --runs $(RUNS)

faults: $(STAMP) ## processes killed at random moments of a build or a write: SEED=1 RUNS=200
	$(BIN)/python tests/faults.py --seed $(SEED) --count $(RUNS)

wild: $(STAMP) ## common architectures, quantised and run whole: ARGS="--size 64 unet vit"
	$(BIN)/python tests/wild/run.py $(ARGS)

onnx-suite: $(STAMP) ## ONNX's backend tests by the kit and by ONNX Runtime alone: ARGS="--config bf16-16x16"
	$(BIN)/python tests/onnx_suite.py $(ARGS)

tflite: $(STAMP) ## TFLite's operators as random models, against TensorFlow Lite Micro: N=2000 SEED=1
	$(BIN)/python -m tests.tflite_cases --models $(or $(N),2000) --seed $(SEED)

board: $(STAMP) ## a board in Verilator over its serial line: digits at the true rate, and with damaged bytes: SEED=1 N=50
	$(BIN)/python tests/board_runs.py --seed $(SEED) --runs $(or $(N),50)

networks: $(STAMP) ## ResNets and MobileNetV2: ONNX Runtime = simulator = RTL
	$(BIN)/python tests/networks.py

mutants: $(STAMP) ## put small faults in, one at a time: each must be found
	$(BIN)/python tests/mutants.py --seed $(SEED)

mutate: $(STAMP) ## faults that a tool puts into the netlist: each must be found, or proven to change nothing: N=500 SEED=1
	$(BIN)/python tests/mutate.py --count $(or $(N),500) --seed $(SEED)

blocks: $(STAMP) ## each block of the hardware alone, and all faults that its bench must find: SEEDS=20
	BLOCK_SEEDS=$(or $(SEEDS),20) ALL_FAULTS=1 $(BIN)/pytest -q -n 2 tests/hw/blocks

netlist: $(STAMP) ## random programs on what synthesis for ECP5 makes of the core: SEED=1
	$(BIN)/python tests/netlist.py --seed $(SEED)
	$(BIN)/python tests/netlist.py --seed $(SEED) --double-rate

levels: $(STAMP) ## random graphs, every level of optimisation, random configurations: SEED=1
	$(BIN)/python tests/levels.py --seed $(SEED)

fuzz: $(STAMP) ## inputs of every kind that are nearly right, in watched processes: N=20000 SEED=1
	$(BIN)/python tests/fuzz.py --cases $(or $(N),20000) --seed $(SEED)

mutated-programs: $(STAMP) ## changed programs: what the validator accepts runs equal on simulator and RTL: N=200000 SEED=1
	$(BIN)/python tests/fuzz.py --only mutated --cases $(or $(N),200000) --seed $(SEED)

floats: $(STAMP) ## bf16 arithmetic against fractions, on a million pairs and more
	FLOAT_PAIRS=400000 $(BIN)/python -m pytest -q tests/sim/test_bfloat16.py -k "two_operands or conversions"

prove: $(STAMP) ## proofs about the hardware's blocks, and that each fails on a faulty one
	$(BIN)/python tests/prove.py

lint: $(STAMP) ## ruff, pyright, the direction of imports, generated documents up to date
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	cd .typing && ../$(BIN)/lint-imports --config ../pyproject.toml --no-logo --no-cache
	@$(MAKE) --no-print-directory docs-check

bench: $(STAMP) ## measure what docs/benchmarks.md and docs/utilisation.md state
	$(BIN)/python bench/run.py
	$(BIN)/python bench/compile_time.py
	$(BIN)/python bench/utilisation.py
	$(BIN)/python bench/torch_calls.py

silicon: $(STAMP) ## place and route blocks and cores for docs/silicon.md; an hour
	$(BIN)/python bench/silicon.py

area: $(STAMP) ## synthesise the cores that the area model is fitted to, those that are missing; an hour
	$(BIN)/python bench/area.py

bitstream: $(STAMP) ## bitstreams and files for other systems, in build/: three quarters of an hour
	$(BIN)/npukit synth --config ulx3s-int8-8x8 -o build/ulx3s-int8-8x8
	$(BIN)/npukit synth --config ulx3s-int8-4x4 -o build/ulx3s-int8-4x4
	$(BIN)/npukit synth --config ulx3s-bf16-4x4 -o build/ulx3s-bf16-4x4
	$(BIN)/npukit synth --config icepi-zero-int8-4x4 -o build/icepi-zero-int8-4x4
	$(BIN)/npukit synth --target axi --config int8-8x8 -o build/axi-int8-8x8

notebooks: $(STAMP) ## examples/notebooks, run, as .ipynb files in build/notebooks
	$(BIN)/python examples/notebooks/run.py

docs: $(STAMP) ## write the generated documents anew, and build the site of all of them in build/site
	$(BIN)/python -m npukit.isa.docs
	$(BIN)/npukit ops --markdown -o docs/operators.md
	$(BIN)/python tests/prove.py --markdown > docs/proofs.md
	$(BIN)/sphinx-build -q -W --keep-going -b html docs build/site
	@echo "the site is build/site/index.html"

docs-check: $(STAMP) ## fail if a generated document is out of date
	$(BIN)/python -m npukit.isa.docs --check
	@$(BIN)/npukit ops --markdown | cmp -s - docs/operators.md || { echo "docs/operators.md is out of date: make docs"; exit 1; }

clean: ## remove caches and build output; .venv stays
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name .venv -prune -o -name .git -prune -o -name __pycache__ -type d -exec rm -rf {} +
