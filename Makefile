# Two commands are enough: `make dev` and `make test`. Both make .venv first if need be.
.DEFAULT_GOAL := help
.PHONY: help setup dev notebooks test quick quick-tests proof lint format types check chaos model mutants soak audit bench bench-quick lock clean

BIN := .venv/bin
export PYTHON
# Compiled modules are kept, also where the environment says otherwise (images and CI machines do): every
# process of a test run, and each that Dagster starts, would compile the project anew.
unexport PYTHONDONTWRITEBYTECODE
comma := ,

help: ## Say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/.ready ## Make the environment in .venv, with the embed-pipeline command

.venv/.ready: requirements.lock pyproject.toml
	@sh scripts/setup.sh

dev: setup ## Start everything: Neo4j, sample graph, Dagster UI on 127.0.0.1:3000
	@exec $(BIN)/embed-pipeline dev

notebooks: setup ## Open the analysts' notebooks on 127.0.0.1, with the data of this folder
	@exec $(BIN)/jupyter-lab --ip=127.0.0.1 --LabApp.news_url=None \
		--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate notebooks

# Three at once, each with a Neo4j of its own: most tests wait for something. A server that is given
# by NEO4J_TEST_URI can only be used by one.
TEST_WORKERS = $(if $(NEO4J_TEST_URI),,-n 3 --dist loadfile --no-loadscope-reorder)
test: setup ## Run all tests against a real Neo4j
	@MAKEFLAGS= $(BIN)/python -m pytest $(TEST_WORKERS)

lint: setup ## Look for mistakes and wrong format
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

format: setup ## Put the code into its format
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

types: setup ## Check the types
	@$(BIN)/pyright

# Types are checked beside the first tests.
check: lint ## Everything that CI does
	@$(MAKE) --no-print-directory --jobs 2 types test

# Types are checked beside the tests; one process is enough for what is left.
quick: setup ## Lint, types, unit tests and the contract of the queue on the fake and on one Neo4j
	@$(MAKE) --no-print-directory --jobs 2 --output-sync lint types quick-tests

quick-tests: setup
	@$(BIN)/python -m pytest -q tests/unit tests/contract tests/repository/test_architecture.py -k "not 2026 and not second_queue"

# Large samples of what rarely changes; CI keeps a small one of each.
proof: setup ## What CI leaves out, before a release: half an hour
	@$(BIN)/python -m pytest -m proof $(TEST_WORKERS)
	@EMBED_PIPELINE_EXAMPLES=300 $(BIN)/python -m pytest tests/integration/test_store_state_machine.py \
		tests/integration/test_store_names.py

# What takes too long for every change; docs/guarantees.md says what each one shows.
chaos: setup ## Break everything at random: SEED=1 for one run, else five
	@exec $(BIN)/python -m tests.proof.chaos --seeds $(or $(SEED),1$(comma)2$(comma)3$(comma)4$(comma)5)

model: setup ## Check the large model of the protocol exhaustively
	@exec $(BIN)/python -m tests.proof.model

mutants: setup ## Remove guards one at a time and see the tests go red
	@exec $(BIN)/python -m scripts.mutants

soak: setup ## Let everything run for MINUTES=60 and look for what grows
	@exec $(BIN)/python -m tests.proof.soak --minutes $(or $(MINUTES),60)

audit: setup ## Look for known holes in the locked packages
	@exec $(BIN)/python -m scripts.audit

bench: setup ## Measure against the limit and against other queues (a quarter of an hour)
	@exec $(BIN)/python -m benchmarks --write

bench-quick: setup ## The same in three minutes, with less to go by
	@exec $(BIN)/python -m benchmarks --quick

lock: setup ## Renew requirements.lock from pyproject.toml
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-strip-extras --group dev \
		--extra server --extra local --extra notebooks --extra mcp --extra otel \
		--extra postgres --extra celery --extra kubernetes \
		--custom-compile-command "make lock" pyproject.toml --output-file requirements.lock
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-strip-extras --custom-compile-command "make lock" \
		--constraint requirements.lock --extra postgres --extra kubernetes pyproject.toml \
		--output-file deploy/docker/requirements.lock
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --custom-compile-command "make lock" --constraint requirements.lock \
		--group build --output-file deploy/docker/build.lock

clean: ## Remove the environment and all local data (Neo4j and Dagster history)
	@if [ -x $(BIN)/embed-pipeline ]; then $(BIN)/embed-pipeline neo4j stop; fi
	@rm -rf .venv .embed_pipeline
