.PHONY: demo test test-all check bench bench-hosts bench-regions bench-health bench-maintenance bench-sync experiments prior soak env clean

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
STAMP := $(VENV)/.complete
# One more worker than cores: a third of the time tests wait for disks and servers.
WORKERS := -n $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1) --dist loadfile --no-loadscope-reorder

demo: $(STAMP)  ## index real passages and compare with plain Chroma
	$(BIN)/crabpath demo

test: $(STAMP)  ## what shows that a checkout works, in a few minutes
	$(BIN)/pytest $(WORKERS) -m "not slow"

test-all: $(STAMP)  ## all tests: kills, servers, examples, experiments, and both databases everywhere
	$(BIN)/pytest $(WORKERS)

check: $(STAMP)  ## lint, types, architecture, dependencies
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy tests/typing/api.py
	$(BIN)/lint-imports
	$(BIN)/deptry .

bench: $(STAMP)  ## the figures of the README; DATA is a HotpotQA folder in BEIR format
	$(BIN)/python -m crabpath_retrievers.evaluation.speed.bench $(if $(DATA),--data $(DATA))

bench-hosts: $(STAMP)  ## what LangChain, LangGraph and LlamaIndex add to a call; a hundred calls at once
	$(BIN)/python -m crabpath_retrievers.evaluation.speed.hosts

bench-regions: $(STAMP)  ## what regions add to a query at 100,000 nodes; counts and memory over 5,000 turns
	$(BIN)/python -m crabpath_retrievers.evaluation.speed.regions $(if $(DATA),--data $(DATA))

bench-health: $(STAMP)  ## how long health takes at 100,000 nodes and a million edges
	$(BIN)/python -m crabpath_retrievers.evaluation.speed.health

bench-maintenance: $(STAMP)  ## how long maintenance takes at 100,000 nodes, what queries beside it notice, a kill
	$(BIN)/python -m crabpath_retrievers.evaluation.speed.maintenance

bench-sync: $(STAMP)  ## what is kept of what was learned when documents are edited; DOCS is a folder of Markdown files
	$(BIN)/python -m crabpath_retrievers.evaluation.following.measure $(or $(DOCS),docs)

soak: $(STAMP)  ## break memories on purpose, and count what was lost; ONLY and RUNS for one check, SEED repeats
	PYTHONPATH=tests/stubs $(BIN)/python tests/soak/run.py --minutes $(or $(MINUTES),15) $(if $(SEED),--seed $(SEED)) \
		$(if $(ONLY),--only $(ONLY)) $(if $(RUNS),--runs $(RUNS)) $(if $(REPORT),--report $(REPORT))

experiments: $(STAMP)  ## what the papers claim, played with ten seeds; writes docs/experiments
	$(BIN)/crabpath experiment all --seeds $(or $(SEEDS),10) --report docs/experiments

env: $(STAMP)

# torch first and pinned: without the pin the CUDA build and its gigabytes come along.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "pip>=25.1"
	$(BIN)/python -m pip install --quiet $$(grep '^torch==' constraints.txt)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[all]" --group dev
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache dist
