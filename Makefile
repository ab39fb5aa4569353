# Every target sets up what it needs: a virtual environment of its own in .venv, by uv where it is there, else by pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
COMPILED := $(VENV)/.compiled
DOCS := $(VENV)/.docs
SOURCES := examples
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run demo test test-all docs pictures nightly check bench release fmt clean

run: $(READY)  ## the MCP server on the example tools
	@$(BIN)/toolcrib serve $(SOURCES)

demo: $(READY)  ## transcripts: the official MCP client calls the example tools; a scripted model does, in a chat
	@$(BIN)/python examples/client/demo.py
	@echo
	@$(BIN)/python examples/chat/demo.py

test: $(COMPILED)  ## what every change must pass
	@$(BIN)/python -m pytest -m "not full and not nightly" -n 6 --dist worksteal

test-all: $(READY)  ## the rest: browsers, PostgreSQL, node clients, frameworks, wheels in clean environments
	@$(BIN)/python -m pytest -m "full and not nightly" -n 3 --dist loadgroup

docs: $(DOCS)  ## the site of the documentation, in build/docs, a folder a version
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q
	@echo "Built build/docs. To see it: $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/docs"

pictures: $(READY)  ## of the console, for the documentation: by the story that walks through it
	@PICTURES=$(CURDIR)/docs/images $(BIN)/python -m pytest -q tests/stories/test_monday.py

nightly: $(READY)  ## long fuzzers, storms, many kills, version matrices, mutants
	@$(BIN)/python -m pytest -m nightly

check: $(READY)  ## style, types, floors, the budgets of the house
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/pyright
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python scripts/house.py

bench: $(READY)  ## ten minutes of clients; then side by side with peers; writes benchmarks/results.md
	@$(BIN)/python benchmarks/soak.py
	@$(BIN)/python benchmarks/run.py

release: $(READY)  ## into dist: sdist and wheel, built twice and compared, an SBOM, checksums; tried with each Python
	@$(BIN)/python scripts/release.py
	@RELEASE_DIST=$(CURDIR)/dist $(BIN)/python -m pytest tests/packaging/test_wheel.py

fmt: $(READY)
	@$(BIN)/ruff check --fix -q . ; $(BIN)/ruff format -q .

clean:
	rm -rf $(VENV) .node .cache dist build

$(READY): pyproject.toml constraints.txt
	@if command -v uv >/dev/null 2>&1; then \
	  uv venv -q --seed --allow-existing --python $(PYTHON) $(VENV) && \
	  uv pip install -q --compile-bytecode --python $(BIN)/python -c constraints.txt -e '.[all]' --group dev; \
	else \
	  $(PYTHON) -m venv $(VENV) && \
	  $(BIN)/python -m pip install -q --upgrade 'pip>=25.1' && \
	  $(BIN)/python -m pip install -q -c constraints.txt -e '.[all]' --group dev; \
	fi
	@touch $(READY)

$(DOCS): $(READY)
	@$(BIN)/uv pip install -q --python $(BIN)/python -c constraints.txt --group docs
	@touch $(DOCS)

# Once, not in each process: tests start many, some of which write no bytecode. Each half of the tests takes one processor.
$(COMPILED): $(READY) $(shell find src tests -name '*.py')
	@$(BIN)/python -m compileall -q -j 0 src
	@ls -d tests/*/ tests/test_*.py | xargs -n 16 -P 2 $(BIN)/python -m pytest --collect-only -qq >/dev/null || true
	@touch $(COMPILED)
