# Every target makes the environment first if it is missing, updates it if the pins changed, and reuses it otherwise.
# Needs Python 3.11 or newer, make and git; nothing else.
#
# Without make (Windows, or a conda environment), the same by hand:
#   Windows   py -3.11 tools\environment.py
#             .venv\Scripts\python -m transformer_lab.lab                         (make lab)
#             .venv\Scripts\python -m grader build                                (make build)
#             .venv\Scripts\python -m grader build --check && .venv\Scripts\python -m pytest   (make test)
#   conda     conda env create -f environment.yml && conda activate transformer-lab
#             python -m transformer_lab.lab

# The first Python that is new enough. Choose another with `make env PYTHON=/path/to/python3.12`.
PYTHON ?= $(shell for p in python3.11 python3 python3.12 python3.13 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
PY := $(BIN)/python

# One thread for each process: sums come out the same on every machine, and two workers do not fight over two cores.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1

.DEFAULT_GOAL := help
.PHONY: help env lab test hub quick lint build mutants demo bench

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile | expand -t 16

env: ## the virtual environment in .venv (TORCH=cu128 for an Nvidia GPU)
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; none was found. Set PYTHON=/path/to/python3.11"; exit 1; }
	@"$(PYTHON)" tools/environment.py $(if $(TORCH),--torch $(TORCH))

lab: env ## JupyterLab on your own copy of the course, in work/ (PORT=9000, BROWSER=no)
	@$(PY) -m transformer_lab.lab $(if $(PORT),--port $(PORT)) $(if $(filter no,$(BROWSER)),--no-browser)

test: lint ## everything that CI runs: lint, build --check, mutants --check, pytest with all notebooks
	$(ONE_THREAD) $(PY) -m grader build --check
	$(ONE_THREAD) $(PY) -m grader selftest --mutants --check
	$(ONE_THREAD) $(PY) -m pytest $(ARGS)

hub: env ## a real JupyterHub with three users, as root: install it and its proxy (needs npm), test a chapter's way
	@$(PY) -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[hub]'
	@npm install --silent --no-audit --no-fund --prefix .venv/hub configurable-http-proxy@5.3.0
	$(ONE_THREAD) $(PY) -m pytest -n 0 tests/test_hub.py $(ARGS)

quick: env ## an author's loop, in a minute: what is built, and every exercise on the recorded cases
	$(PY) -m ruff check .
	$(ONE_THREAD) $(PY) -m grader build --check
	$(ONE_THREAD) $(PY) -m grader selftest --workers 2 --seeds

lint: env ## ruff, the rooms of the code (import-linter), types (pyright)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/basedpyright

build: env ## solutions/*/*.py -> executed solutions, learner notebooks, recorded cases
	$(ONE_THREAD) $(PY) -m grader build $(ARGS)

mutants: env ## are small changes of the solutions noticed? (ARGS=--changed: only of what is new)
	$(ONE_THREAD) $(PY) -m grader selftest --mutants $(ARGS)

demo: env ## grade an invented class with nbgrader and print its gradebook
	$(ONE_THREAD) $(PY) -m grader demo $(ARGS)

bench: env ## how fast a class is graded, beside stock nbgrader
	$(ONE_THREAD) $(PY) -m grader bench $(ARGS)
