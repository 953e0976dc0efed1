# What is compiled once is read by all processes of the tests, and by all that these start.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN  := $(VENV)/bin
PIP  := $(BIN)/python -m pip --disable-pip-version-check --quiet

# The interpreter: PYTHON if it is given, or else that of the environment that is there, or python3.
ifeq ($(origin PYTHON), undefined)
PYTHON := $(firstword $(wildcard $(BIN)/python) python3)
endif
MINOR = 'import sys; print(*sys.version_info[:2], sep=".")'
VERSION := $(shell $(PYTHON) -c $(MINOR) 2>/dev/null)
ifeq ($(VERSION),)  # pyenv does not look for python3.13 in all of its versions unless it is told to
PYENV := PYENV_VERSION=$(patsubst python%,%,$(PYTHON))
VERSION := $(or $(shell $(PYENV) $(PYTHON) -c $(MINOR) 2>/dev/null),none)
endif

.PHONY: demo test test-all test-floors test-flower-versions bench-apps bench-availability bench-beliefs bench-flower bench-impact bench-incentives bench-intervals bench-learning bench-market bench-own-models bench-participation bench-pricing bench-rivals bench-stability bench-strategies bench-web clean docs locks release verify.pyz

demo: $(VENV)/.compiled-all  ## the paper's Setup 1 in a minute: prices, training, a screen and a report
	@$(BIN)/fedprice study setup1 --quick --out build/demo

LINT   = $(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy && $(BIN)/lint-imports
# One process more than cores: some tests wait, for a browser or a lock.
PYTEST = OPENBLAS_NUM_THREADS=1 $(BIN)/pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder

test: $(VENV)/.compiled-test  ## lint, types, import contracts, and tests that find nearly every defect
	$(LINT)
	$(PYTEST)

test-all: $(VENV)/.compiled-test  ## everything: all pages, both databases, real deployments, exhaustive properties
	$(LINT)
	$(PYTEST) -m "" --hypothesis-profile all

FLOOR_EXTRAS := digits,excel,learn,market,pandas,plot,postgres,reference,reproduce,web
FLOOR_TESTS  := tests/pricing tests/beliefs tests/data tests/learning tests/rounds tests/market $(filter-out tests/test_readme.py tests/test_examples.py tests/test_deploy.py,$(wildcard tests/test_*.py))

test-floors:  ## all but Flower, the pages and the commands, with the oldest supported versions, then with the newest
	rm -rf build/floors build/newest
	$(PYENV) $(PYTHON) -m venv build/floors
	$(PYENV) $(PYTHON) -m venv build/newest
	$(PYENV) $(PYTHON) tests/floors.py > build/floors.txt
	for versions in "floors --constraint build/floors.txt" "newest --upgrade"; do \
	  set -- $$versions; name=$$1; shift; \
	  build/$$name/bin/python -m pip --disable-pip-version-check --quiet install "$$@" '.[$(FLOOR_EXTRAS)]' beancount hypothesis pytest pytest-xdist pyyaml || exit 1; \
	  build/$$name/bin/python -m pytest -W default --numprocesses auto --dist loadfile --ignore tests/rounds/test_histories.py $(FLOOR_TESTS) || exit 1; \
	done  # old releases warn about newer ones beneath them, so warnings are not errors here; histories round as numba does

test-flower-versions: $(VENV)/.installed-test  ## in-process Flower tests with the oldest, the newest and two other versions of Flower
	$(BIN)/python -m tests.flower.versions

bench-pricing: $(VENV)/.installed-test  ## the solver against its rivals; writes benchmarks/pricing.{md,json}
	$(BIN)/python -m benchmarks.pricing

bench-rivals: $(VENV)/.installed-test  ## the equilibrium beside auctions, Shapley payments, sampling, contracts and tariffs; writes benchmarks/rivals.{md,json}
	$(BIN)/python -m benchmarks.rivals

bench-participation: $(VENV)/.installed-test  ## full participation's model from some of the joins (images from FEDPRICE_DATA or a download); writes benchmarks/participation.{md,json}
	$(BIN)/python -m benchmarks.participation

bench-beliefs: $(VENV)/.installed-test  ## what not knowing costs, form by form; writes benchmarks/beliefs.{md,json}
	$(BIN)/python -m benchmarks.beliefs

bench-intervals: $(VENV)/.installed-test  ## how often intervals of few seeds contain the truth; writes benchmarks/intervals.{md,json}
	$(BIN)/fedprice study setup1 --quick --seeds 60 --out build/intervals
	$(BIN)/python -m benchmarks.intervals build/intervals

bench-impact: $(VENV)/.installed-test  ## norms of updates or of gradients: which order training (images from FEDPRICE_DATA or a download); writes benchmarks/impact.{md,json}
	$(BIN)/python -m benchmarks.impact

bench-learning: $(VENV)/.installed-test $(VENV)/.installed-rivals  ## the engine against numpy and JAX; writes benchmarks/learning.{md,json}
	$(BIN)/python -m benchmarks.learning

bench-market: $(VENV)/.installed-test  ## kills, damage, cheaters, speed; writes benchmarks/market.{md,json}
	$(BIN)/python -m benchmarks.market

bench-incentives: $(VENV)/.installed-test  ## does skipping heads pay, and what do strategic clients do to the model; writes benchmarks/incentives.{md,json}
	$(BIN)/python -m benchmarks.incentives

bench-flower: $(VENV)/.installed-test  ## what the market costs on top of Flower; writes benchmarks/flower.{md,json}
	$(BIN)/python -m benchmarks.flower

bench-strategies: $(VENV)/.installed-test  ## `Participation` beside FedAvg on Flower; writes benchmarks/strategies.{md,json}
	$(BIN)/python -m benchmarks.strategies

bench-apps: $(VENV)/.installed-test $(VENV)/.installed-torch  ## six foreign apps in process, on Ray, as deployments (trees if xgboost is there); writes benchmarks/apps.{md,json}
	$(BIN)/python -m benchmarks.apps

bench-stability: $(VENV)/.installed-test $(VENV)/.installed-torch  ## estimators on models that are not convex; writes benchmarks/stability.{md,json}
	$(BIN)/python -m benchmarks.stability

bench-availability: $(VENV)/.installed-test  ## estimators when clients are away; writes benchmarks/availability.{md,json}
	$(BIN)/python -m benchmarks.availability

bench-own-models: $(VENV)/.installed-test $(VENV)/.installed-torch  ## an MLP and a CNN calibrated, priced, trained; writes benchmarks/own_models.{md,json}
	$(BIN)/python -m benchmarks.own_models

bench-web: $(VENV)/.installed-test  ## the pages in a real browser: a million clients, 100,000 rounds, 20 browsers; writes benchmarks/web.{md,json}
	$(BIN)/python -m benchmarks.web

docs: $(VENV)/.installed-docs  ## build the site and execute its tutorials: build/site/index.html
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/sphinx-build --fail-on-warning --keep-going -b html -d build/doctrees docs build/site
	@echo "open build/site/index.html"

verify.pyz: $(VENV)/.installed-test  ## the verifier as one file, for auditors: build/verify.pyz
	mkdir -p build
	$(BIN)/python -m tests.packed build/verify.pyz

release: $(VENV)/.installed-release  ## build the wheel, check it, and try it in a fresh environment
	rm -rf dist build/release
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(PYENV) $(PYTHON) -m venv build/release
	build/release/bin/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt "$$(ls dist/*.whl)[plot]"
	$(BIN)/python -m tests.packed build/verify.pyz
	build/release/bin/python -I build/verify.pyz --help >/dev/null
	cd build/release && bin/fedprice data example -o clients.csv && bin/fedprice price clients.csv --alpha 3.3 --plot price.png && bin/fedprice flower new app
	@echo "to publish: $(BIN)/twine upload dist/*; for auditors: build/verify.pyz"

# One stamp per extra: `make` installs again only when the requirements or the interpreter change.
# What is locked is installed by its hashes: pip takes none for the package itself, which comes after.
$(VENV)/.installed-%: pyproject.toml constraints.txt $(wildcard locks/*.txt) $(VENV)/.python-$(VERSION)
	if test -f locks/$*.txt; then \
	  $(PIP) install --require-hashes --no-deps --requirement locks/$*.txt && \
	  $(PIP) install --no-deps --no-build-isolation --editable . && \
	  $(BIN)/python -m pip --disable-pip-version-check check; \
	else $(PIP) install --constraint constraints.txt --editable '.[$*]'; fi
	touch $@

.PRECIOUS: $(VENV)/.installed-%

# The engine is compiled as a part of the installation, as Python does with its own files, and so are
# the assertions of tests, which each process of them would rewrite otherwise.
$(VENV)/.compiled-%: $(wildcard src/fedprice/learning/*.py) $(VENV)/.installed-%
	test $* != test || $(BIN)/pytest --collect-only --quiet > /dev/null
	$(BIN)/python -c 'import fedprice as fp; from fedprice.data.synthetic import synthetic; \
	  fp.simulate(fp.LogisticRegression(synthetic(num_clients=4, samples=400)), 0.5, rounds=1)'
	touch $@

$(VENV)/.python-$(VERSION):
	@$(PYENV) $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "fedprice needs Python 3.11 or newer, not $(PYTHON); try: make PYTHON=python3.13" >&2; exit 1; }
	test "$$($(BIN)/python -c $(MINOR) 2>/dev/null)" = $(VERSION) || $(PYENV) $(PYTHON) -m venv --clear $(VENV)
	touch $@

locks:  ## write locks/*.txt, the hashes of what `make demo` and `make test` install, after a change of constraints.txt
	$(BIN)/python -m tests.locks

clean:
	rm -rf $(VENV) build dist
