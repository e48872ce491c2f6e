# Every target sets up what it needs: a .venv, Java and, for tests, PostgreSQL and Redis.
.PHONY: help setup demo test test-all soak coverage classes check bench lock clean
PYTHON := .venv/bin/python
# Tests that have to reach every branch run by themselves, and count what they reach.
COVERED := tests/log tests/core tests/verifier
SOURCES := src/lossless/log,src/lossless/core,src/lossless/verifier
WHOLE := "src/lossless/log/*,src/lossless/verifier/*,src/lossless/core/replica.py,src/lossless/core/in_sync.py"
# Failed tests run once more, alone; those that pass then are printed as FLAKY.
RETRY := $(PYTHON) scripts/retry-failed
# Three processes, on two cores too: much of a test is waiting (tests/conftest.py distributes them).
# A process that crashes ends the run: pytest-xdist would replace it, lose its tests, and wait for them for ever.
TESTS := $(RETRY) $(PYTHON) -m pytest -n 3 --max-worker-restart 0 --dist loadscope --no-loadscope-reorder $(COVERED:%=--ignore %)
SEEDS := 5000
ROUNDS := 1000
SECONDS := 1800

help: ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: ## a .venv with the locked packages, and Java
	@scripts/setup

demo: ## three brokers, a pipeline, two kills, and the audit that shows nothing was lost
	@scripts/setup
	@.venv/bin/lossless demo

test: ## the checks and the tests that CI runs
	@scripts/setup postgres kcat redis
	@rm -f build/flaky.txt
	@$(MAKE) --no-print-directory --jobs 2 --output-sync check coverage classes
	@$(TESTS) -m "not full"

test-all: ## every test, the whole crash matrix and clients in Go and JavaScript included
	@scripts/setup postgres kcat redis go node
	@rm -f build/flaky.txt
	@$(MAKE) --no-print-directory --jobs 2 --output-sync check coverage classes
	@$(TESTS)

soak: ## long searches: schedules of safe settings, brokers killed, requests by chance, clients under faults
	@scripts/setup postgres
	@$(PYTHON) -m pytest -m "full" tests/simulator
	@$(PYTHON) -m benchmarks.sound $(SEEDS)
	@$(PYTHON) -m benchmarks.mutations
	@.venv/bin/lossless prove --set segment-bytes=300 --seeds $(SEEDS)
	@LOSSLESS_CRASH_ROUNDS=$(ROUNDS) $(PYTHON) -m pytest -s tests/broker/crash/test_crash_rounds.py
	@LOSSLESS_FUZZ_S=$(SECONDS) $(PYTHON) -m pytest -s tests/broker/robustness/test_random_requests.py
	@LOSSLESS_CLIENT_SOAK_S=$(SECONDS) $(PYTHON) -m pytest -s --timeout 3600 tests/client/soak

coverage: ## the tests of log, machines and verifier, which must reach every branch
	@scripts/setup
	@.venv/bin/coverage erase
	@$(RETRY) .venv/bin/coverage run --append --branch --source $(SOURCES) -m pytest -q $(COVERED)
	@.venv/bin/coverage report --fail-under 100 --skip-covered --show-missing --include $(WHOLE)
	@.venv/bin/coverage report --fail-under 95 --skip-covered --show-missing

classes: # of Spark, kept at hand for the tests
	@scripts/keep-classes

check: ## formatting, lint, types, import arrows
	@scripts/setup
	@.venv/bin/ruff format --check --quiet .
	@.venv/bin/ruff check --quiet .
	@.venv/bin/mypy --no-error-summary
	@.venv/bin/lint-imports 

bench: ## us and the peer side by side; writes build/bench.json
	@scripts/setup postgres
	@$(PYTHON) -m benchmarks

lock: ## pin what pyproject.toml asks for, with hashes
	@scripts/lock

clean: ## what builds and tests leave behind
	@rm -rf build .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
