.PHONY: demo test test-all test-pooler check release docs figures bench bench-hosts bench-scale bench-health bench-maintenance bench-sync bench-serve openapi reference fuzz-server experiments prior soak env clean

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
STAMP := $(VENV)/.complete
# Distributions beside the base.
PARTS := adapters/llama_index adapters/crabpath_server adapters/crabpath_lab
# The embedder, whose wheel gets its model when it is built.
MODEL := adapters/minilm_onnx
# One more worker than cores: a third of the time tests wait for disks and servers.
WORKERS := -n $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1) --dist loadfile --no-loadscope-reorder

# langchain-mcp-adapters needs release 1 of mcp, and the server release 2: a test runs it apart.
MCP_ADAPTERS := $(CURDIR)/$(VENV)/mcp-adapters
test-all: export CRABPATH_MCP_ADAPTERS = $(MCP_ADAPTERS)

# Compiled modules are kept, so that each worker and child process need not compile them again.
test test-all: export PYTHONDONTWRITEBYTECODE =

demo: $(STAMP)  ## index real passages and compare with plain Chroma
	$(BIN)/crabpath demo

# Optional parts, suites for authors of extensions and the pages of docs/ are tested by test-all.
PARTS_TESTED := $(addprefix --ignore=tests/,lab benchmarks parts server examples hosts/langgraph \
	hosts/test_workers.py ingest/linkers/test_linker_conformance.py vectors/test_index_conformance.py \
	test_suites.py test_docs.py)

test: $(STAMP)  ## what shows that the base of a checkout works, in four minutes
	$(BIN)/pytest $(WORKERS) -m "not slow" $(PARTS_TESTED)

test-all: $(STAMP)  ## all tests: also of server and laboratory, kills, examples, both databases everywhere
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder

test-pooler: $(STAMP)  ## the tests of PostgreSQL behind PgBouncer, which pools transactions
	CRABPATH_TEST_POOLER=1 $(BIN)/pytest $(WORKERS) -k "(postgres or pgvector or pooler) and not sqlite"

check: $(STAMP)  ## lint, types, architecture, dependencies, figures
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy tests/typing/api.py
	$(BIN)/lint-imports
	$(BIN)/deptry .
	for part in $(PARTS) $(MODEL); do (cd $$part && $(CURDIR)/$(BIN)/deptry .) || exit 1; done
	$(BIN)/python -m benchmarks figures --check
	$(MAKE) --no-print-directory docs

release: $(STAMP)  ## what is published, in dist/; stops where a figure is older than its code
	$(BIN)/python -m benchmarks figures --check --fresh
	$(BIN)/python -m pip install --quiet build twine
	for part in . $(PARTS) $(MODEL); do $(BIN)/python -m build --outdir dist $$part || exit 1; done
	$(BIN)/twine check --strict dist/*

figures: $(STAMP)  ## the numbers of docs/figures.json, in the pages; RUNS of it measured again first, DATA the data sets
	$(BIN)/python -m benchmarks figures $(RUNS) $(if $(DATA),--data $(DATA))

docs: $(STAMP)  ## the documentation site, in site/; every broken link is an error
	$(BIN)/python docs/generate.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(STAMP)  ## size, speed and quality as a table; DATA is a HotpotQA folder in BEIR format, NODES=100000 the large store
	$(BIN)/python -m benchmarks speed $(if $(DATA),--data $(DATA)) $(if $(NODES),--nodes $(NODES))

bench-hosts: $(STAMP)  ## what LangChain, LangGraph and LlamaIndex add to a call; a hundred calls at once
	$(BIN)/python -m benchmarks hosts

bench-scale: $(STAMP)  ## queries and feedback a second of one and four workers on PostgreSQL, beside plain stores there; MINUTES of 64 clients; with DATA and the folder CORPUS a million passages
	$(BIN)/python -m benchmarks scale
	$(if $(MINUTES),$(BIN)/python -m benchmarks load --minutes $(MINUTES))
	$(if $(CORPUS),$(BIN)/python -m benchmarks million $(CORPUS) --data $(DATA))

bench-health: $(STAMP)  ## how long a health report takes at 100,000 nodes and a million edges
	$(BIN)/python -m benchmarks health

bench-maintenance: $(STAMP)  ## how long maintenance takes at 100,000 nodes, latency of queries beside it, resuming after a kill
	$(BIN)/python -m benchmarks maintenance

bench-sync: $(STAMP)  ## learned weights kept when documents are edited and synced; DOCS is a folder of Markdown files
	$(BIN)/python -m benchmarks sync $(or $(DOCS),docs)

bench-serve: $(STAMP)  ## what HTTP adds to a question; 64 clients with tokens of theirs for MINUTES
	$(BIN)/python -m benchmarks serve $(if $(MINUTES),--minutes $(MINUTES))

openapi: $(STAMP)  ## the description of the server in docs/reference, and the types of TypeScript made from it
	$(BIN)/python -c "import json; from crabpath_server.app import ENDPOINTS, describe_api; \
		print(json.dumps(describe_api(ENDPOINTS), indent=2))" > docs/reference/openapi.json
	npm --prefix adapters/npm ci --silent && npm --prefix adapters/npm run --silent build
	cp adapters/npm/src/schema.ts docs/reference/crabpath.d.ts

reference: $(STAMP)  ## what docs/reference says of classes, settings and commands, from the code
	$(BIN)/python docs/generate.py

fuzz-server: $(STAMP)  ## more than 20,000 requests made from the OpenAPI description
	CRABPATH_FUZZ=$(or $(EXAMPLES),400) $(BIN)/pytest -s -m "not slow" tests/server/test_fuzz.py

soak: $(STAMP)  ## break memories on purpose, and count what was lost; ONLY and RUNS for one check, SEED repeats
	$(BIN)/python -m benchmarks soak --minutes $(or $(MINUTES),15) $(if $(SEED),--seed $(SEED)) \
		$(if $(ONLY),--only $(ONLY)) $(if $(RUNS),--runs $(RUNS)) $(if $(REPORT),--report $(REPORT))

experiments: $(STAMP)  ## reproduce what the papers claim, with ten seeds; writes docs/experiments
	$(BIN)/crabpath experiment all --seeds $(or $(SEEDS),10) --report docs/experiments

prior: $(STAMP)  ## fit the ranker's prior; HOTPOTQA, TWO_WIKI, MUSIQUE, SCIFACT and NFCORPUS are training files
	$(BIN)/python -m benchmarks fit-prior --hotpotqa $(HOTPOTQA) --2wiki $(TWO_WIKI) --musique $(MUSIQUE) \
		--scifact $(SCIFACT) --nfcorpus $(NFCORPUS) $(if $(CACHE),--cache $(CACHE))

env: $(STAMP)

# torch first and pinned: without the pin the CUDA build and its gigabytes come along.
$(STAMP): pyproject.toml $(PARTS:%=%/pyproject.toml) $(shell find $(MODEL) -type f) constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "pip>=25.1"
	$(BIN)/python -m pip install --quiet $$(grep '^torch==' constraints.txt)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[all]" $(PARTS:%=-e %) ./$(MODEL) --group dev
	rm -rf $(MCP_ADAPTERS)
	$(BIN)/python -m pip install --quiet --no-deps --target $(MCP_ADAPTERS) mcp==1.30.0 langchain-mcp-adapters==0.3.2
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache dist
