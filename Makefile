# Everything runs in .venv, which tools/environment.py makes and keeps up to date.
# No make (Windows)? README.md has the same in plain pip lines.

# The first Python that can carry the course; if none can, any that runs: tools/environment.py says what it lacks.
FIND_PYTHON = for test in 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 'pass'; do \
	for python in python3.13 python3.12 python3.14 python3.11 python3 python; do \
	"$$python" -c "$$test" >/dev/null 2>&1 && echo "$$python" && exit; done; done
PYTHON ?= $(shell $(FIND_PYTHON))
VENV_PYTHON = .venv/bin/python

.PHONY: help lab test ci test-browser test-colab test-binder test-site test-versions html notebooks execute bench links environment

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' Makefile

lab: environment  ## open the course in JupyterLab, on your own copy (ARGS="--no-browser --port 8890")
	@$(VENV_PYTHON) tools/lab.py $(ARGS)

test: environment  ## prove everything: ruff, the tests, every notebook against its stored outputs (NB=03: only that one; ARGS=--loose)
	@$(VENV_PYTHON) tools/check.py $(NB) $(ARGS)

ci: test test-binder test-colab test-site test-browser  ## what continuous integration runs

test-browser: environment  ## every notebook in JupyterLab in a real browser, by keyboard (NB=03, SHOTS=1: whole pages)
	@$(VENV_PYTHON) tests/ways/browser.py $(NB) $(if $(SHOTS),--shots)

test-colab: environment  ## every notebook alone, on Colab's versions, installed by its own first cell (NB=03)
	@$(VENV_PYTHON) tests/ways/colab.py $(NB)

test-binder: environment  ## the image that Binder would build, and what its visitors get (NB=03)
	@$(VENV_PYTHON) tests/ways/binder.py $(NB)

test-site: html  ## the pages of make html in a browser without a network, and on paper
	@$(VENV_PYTHON) tests/ways/pages.py

test-versions: environment  ## the library with the oldest and newest packages, on every Python of this machine
	@$(VENV_PYTHON) tests/ways/versions.py

html: build/html-env/ready  ## the course as web pages, to read offline or to print: build/html/index.html
	@rm -rf build/html
	@build/html-env/bin/python -m sphinx -q -E -W --keep-going -d build/doctrees -c docs . build/html
	@echo "open build/html/index.html"

build/html-env/ready: docs/requirements.txt | environment
	@echo "making build/html-env (once)"
	@$(VENV_PYTHON) -m venv --clear build/html-env
	@build/html-env/bin/python -m pip install -q --disable-pip-version-check -r docs/requirements.txt
	@touch $@

notebooks: environment  ## for authors: run the notebooks anew and store the outputs (NB=03, REMEASURE=1)
	@$(VENV_PYTHON) tools/notebooks.py run $(if $(REMEASURE),--remeasure) $(NB)

execute: environment  ## run all notebooks, store nothing, show seconds and memory of each
	@$(VENV_PYTHON) tools/notebooks.py execute $(NB)

bench: environment  ## time and memory against the goals -> docs/benchmarks.md (QUICK=1 prints only; DEVICE=cuda)
	@$(VENV_PYTHON) tools/bench.py $(if $(QUICK),--quick) $(if $(DEVICE),--device $(DEVICE))

links: environment  ## for authors: stamp the repository and version into all links (REPO=owner/name)
	@$(VENV_PYTHON) tools/links.py $(REPO)

environment:  ## make .venv or bring it up to date (the others do it by themselves)
	@PYTHON="$(PYTHON)"; if [ -z "$$PYTHON" ]; then \
	echo "No Python found. Install Python 3.11 or newer (python.org), or say where: make PYTHON=/path/to/python3 ..."; \
	exit 1; fi; "$$PYTHON" tools/environment.py
