# Two commands are enough: `make dev` and `make test`. Both make .venv first if need be.
.DEFAULT_GOAL := help
.PHONY: help setup dev test lint format types check lock clean

BIN := .venv/bin
export PYTHON

help: ## Say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/.ready ## Make the environment in .venv, with the embed-pipeline command

.venv/.ready: requirements.lock pyproject.toml
	@sh scripts/setup.sh

dev: setup ## Start everything: Neo4j, sample graph, Dagster UI on 127.0.0.1:3000
	@exec $(BIN)/embed-pipeline dev

test: setup ## Run all tests against a real Neo4j
	@$(BIN)/python -m pytest

lint: setup ## Look for mistakes and wrong format
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

format: setup ## Put the code into its format
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

types: setup ## Check the types
	@$(BIN)/pyright

check: lint types test ## Everything that CI does

lock: setup ## Renew requirements.lock from pyproject.toml
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-strip-extras --all-extras --group dev \
		--custom-compile-command "make lock" pyproject.toml --output-file requirements.lock

clean: ## Remove the environment and all local data (Neo4j and Dagster history)
	@if [ -x $(BIN)/embed-pipeline ]; then $(BIN)/embed-pipeline neo4j stop; fi
	@rm -rf .venv .embed_pipeline
