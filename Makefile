# make demo       check a sample job that is ill in several ways, and show the report
# make test       ruff, mypy, every test of single parts, and the launches that stand for the others: minutes
# make test-slow  the tests that `make test` leaves out, those marked `slow`: every ill job and its cure, every trainer and
#                 way to end, whole trials, gates and programs of the clinic, the installed wheel
# make test-browser  HTML reports in a real browser, Debian's chromium: skipped, with a word, where there is none
# make test-clusters  Ray, Spark, torchrun as several nodes, Slurm and object storage, each on this machine: skipped, with a
#                 word, where one is missing
# make docs       docs/checks/*.md from the docstrings of the checks, the options, the schema and the pictures of a report
# make clinic     how often perfdoctor is right, on a subset of sick and well programs; make clinic-full: on all, with
#                 other tools beside it; hours. Judgements are kept in clinic.jsonl: a run that was broken off goes on there
#
# All set up .venv on the first run and again when pyproject.toml or constraints.txt changes. A machine without a
# GPU needs none of the CUDA libraries that PyPI's torch brings:
#   make demo PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"

PYTHON ?= python3
PIP_ARGS ?=
VENV := .venv
PIP_INSTALL = $(VENV)/bin/python -m pip install -c constraints.txt $(PIP_ARGS)
# Two workers: many tests launch whole training jobs, and more of them at a time disturb one another. A test that
# launches and fails while hardly a CPU is idle, or while the hypervisor takes some, runs again (tests/conftest.py).
RERUN := --reruns 3 --only-rerun DisturbedError
PYTEST_ARGS ?= -n 2 --dist loadfile --no-loadscope-reorder $(RERUN)
PYTEST = OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest
# $(call TESTS,EXPRESSION): the tests that are marked so. Where nothing failed but by DisturbedError (75), at every try,
# what failed is run once more with nothing beside it.
TESTS = $(PYTEST) $(PYTEST_ARGS) -m '$(1)' || \
	{ test $$? -eq 75 && $(PYTEST) --last-failed --last-failed-no-failures none $(RERUN) -m '$(1)'; }

CLUSTERS ?= tests/clusters

.PHONY: demo test test-slow test-browser test-clusters docs clinic clinic-full clean

demo: $(VENV)/installed
	$(VENV)/bin/perfdoctor check --fail-on never sample_configs/demo_train.py

test: $(VENV)/installed-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(call TESTS,not slow and not browser and not cluster)

test-slow: $(VENV)/installed-dev
	$(call TESTS,slow)

test-browser: $(VENV)/installed-dev
	$(PIP_INSTALL) -e '.[dev,browser]'
	$(PYTEST) $(PYTEST_ARGS) -m browser tests/browser

# One engine at a time: each brings its own processes.
test-clusters: $(VENV)/installed-dev
	$(PIP_INSTALL) -e '.[dev,clusters]'
	$(PYTEST) -m cluster $(RERUN) $(CLUSTERS)

docs: $(VENV)/installed
	$(VENV)/bin/python docs/generate.py

clinic: $(VENV)/installed-dev
	$(VENV)/bin/python -m benchmarks.clinic

clinic-full: $(VENV)/installed-dev
	PIP_ARGS='$(PIP_ARGS)' $(VENV)/bin/python -m benchmarks.clinic --full --peers --output clinic.jsonl --resume --scores clinic.json

clean:
	rm -rf $(VENV) build dist *.egg-info .perfdoctor .mypy_cache .ruff_cache .pytest_cache

$(VENV)/installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP_INSTALL) -e .
	@touch $@

$(VENV)/installed-dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP_INSTALL) -e '.[dev]'
	@touch $(VENV)/installed $@

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	    { echo "Python 3.10 or newer is needed: apt-get install python3 (or make PYTHON=/path/to/python3)" >&2; exit 1; }
	@# Debian keeps venv's other half in a package of its own; what fails half-way must not be taken for an environment.
	@$(PYTHON) -m venv $(VENV) || \
	    { rm -rf $(VENV); echo "cannot make $(VENV): apt-get install python3-venv" >&2; exit 1; }
