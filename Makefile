PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo test test-floors test-slow bench-apps bench-beliefs bench-flower bench-impact bench-incentives bench-learning bench-market bench-own-models bench-pricing bench-rivals bench-stability bench-web clean docs release

demo: $(VENV)/.installed-all  ## reproduce the paper's Setup 1 with a few seeds, and write a report
	$(BIN)/fedprice reproduce setup1 --quick --out build/demo
	@echo "see it in a browser: $(BIN)/fedprice serve --results build/demo"

test: $(VENV)/.installed-test  ## lint, types, import contracts, all tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	rm -f src/fedprice/learning/__pycache__/*.nb[ci]  # numba looks at the changes of one file only
	$(BIN)/pytest -m "not slow" --numprocesses auto --dist loadfile --no-loadscope-reorder

test-slow: $(VENV)/.installed-test  ## real deployments and their faults (takes minutes)
	$(BIN)/pytest -m slow tests

FLOOR_EXTRAS := digits,excel,learn,market,pandas,plot,postgres,reference,reproduce,web
FLOOR_TESTS  := tests/pricing tests/beliefs tests/data tests/learning tests/rounds tests/market $(filter-out tests/test_readme.py tests/test_examples.py tests/test_deploy.py,$(wildcard tests/test_*.py))

test-floors:  ## all but Flower, the pages and the commands, with the oldest supported versions, then with the newest
	rm -rf build/floors build/newest
	$(PYTHON) -m venv build/floors
	$(PYTHON) -m venv build/newest
	$(PYTHON) tests/floors.py > build/floors.txt
	for versions in "floors --constraint build/floors.txt" "newest --upgrade"; do \
	  set -- $$versions; name=$$1; shift; \
	  build/$$name/bin/python -m pip --disable-pip-version-check --quiet install "$$@" '.[$(FLOOR_EXTRAS)]' beancount hypothesis pytest pytest-xdist pyyaml || exit 1; \
	  build/$$name/bin/python -m pytest -W default -m "not slow" --numprocesses auto --dist loadfile --ignore tests/rounds/test_histories.py $(FLOOR_TESTS) || exit 1; \
	done  # old releases warn about newer ones beneath them, so warnings are not errors here; histories round as numba does

bench-pricing: $(VENV)/.installed-test  ## the solver against its rivals; writes benchmarks/pricing.{md,json}
	$(BIN)/python -m benchmarks.pricing

bench-rivals: $(VENV)/.installed-test  ## the equilibrium beside auctions, Shapley payments, sampling, contracts and tariffs; writes benchmarks/rivals.{md,json}
	$(BIN)/python -m benchmarks.rivals

bench-beliefs: $(VENV)/.installed-test  ## what not knowing costs, form by form; writes benchmarks/beliefs.{md,json}
	$(BIN)/python -m benchmarks.beliefs

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

bench-apps: $(VENV)/.installed-test $(VENV)/.installed-torch  ## six foreign apps in process, on Ray, as deployments (trees if xgboost is there); writes benchmarks/apps.{md,json}
	$(BIN)/python -m benchmarks.apps

bench-stability: $(VENV)/.installed-test $(VENV)/.installed-torch  ## estimators on models that are not convex; writes benchmarks/stability.{md,json}
	$(BIN)/python -m benchmarks.stability

bench-own-models: $(VENV)/.installed-test $(VENV)/.installed-torch  ## an MLP and a CNN calibrated, priced, trained; writes benchmarks/own_models.{md,json}
	$(BIN)/python -m benchmarks.own_models

bench-web: $(VENV)/.installed-test  ## the pages in a real browser: a million clients, 100,000 rounds, 20 browsers; writes benchmarks/web.{md,json}
	$(BIN)/python -m benchmarks.web

docs: $(VENV)/.installed-docs  ## build the site and execute its tutorials: build/site/index.html
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/sphinx-build --fail-on-warning --keep-going -b html -d build/doctrees docs build/site
	@echo "open build/site/index.html"

release: $(VENV)/.installed-release  ## build the wheel, check it, and try it in a fresh environment
	rm -rf dist build/release
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv build/release
	build/release/bin/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt "$$(ls dist/*.whl)[plot]"
	cd build/release && bin/fedprice example -o clients.csv && bin/fedprice price clients.csv --alpha 3.3 --plot price.png && bin/fedprice flower new app
	@echo "to publish: $(BIN)/twine upload dist/*"

# One stamp per extra: `make` installs again only when the requirements change.
$(VENV)/.installed-%: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --constraint constraints.txt --editable '.[$*]'
	touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "fedprice needs Python 3.11 or newer; try: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) build dist
