# Frazil's commands. `make run` and `make test` need Python >= 3.11 and make, nothing else.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SEEDS ?= 100000
CHANGES ?= 6000
MINUTES ?= 10
SECONDS ?= 180
# Integration tests wait more than they compute, so one process of them more than there are cores,
# but each has servers of its own: 3 GB of memory.
SIDE_BY_SIDE ?= $(shell $(PYTHON) -c 'import os; memory = os.sysconf("SC_PAGE_SIZE") * \
  os.sysconf("SC_PHYS_PAGES"); print(max(2, min(os.cpu_count() + 1, memory // (3 << 30))))')
UNIT_TESTS := $(BIN)/python -m pytest -m "not integration and not sim" -n logical --dist worksteal
# One pip at a time, from what constraints.txt has the hashes of; what a step needs is in that file.
INSTALL := $(BIN)/python -m tests.packages
# Says which step of `make test` begins.
STEP := $(BIN)/python -m tests.steps

# Whatever the shell says, what was compiled is kept: tests start agents and commands by the hundred.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run check plan test bench profile bench-export readers debezium demo faults sim explore fuzz mutants keep screenshots constraints docs lint static style clean help

help:
	@echo "make run    one agent on localhost:9092, everything embedded; then installs what exports need behind it"
	@echo "make check  in three minutes what starts no other program: lint, types, unit tests, some seeds"
	@echo "make test   installs what the tests need and runs them all, and lint"
	@echo "make demo   produce, consume, export and query, with counts"
	@echo "make bench  throughput, CPU and latency beside Apache Kafka; writes BENCHMARKS.md; CASE=c: only that"
	@echo "make profile CASE=c   a flame graph of an agent while it does a case of the benchmarks"
	@echo "make bench-export   exports beside Spark's Kafka source and Kafka Connect's Iceberg sink; writes there, too"
	@echo "make readers   tables as DuckDB, ClickHouse, Spark SQL and Trino read them"
	@echo "make debezium CHANGES=n   tables beside the PostgreSQL that Debezium copies them from"
	@echo "make sim SEEDS=n   n fresh seeds of the simulator (100000: hours); one that fails is made a short script"
	@echo "make explore MINUTES=n   fresh cases of all tests that draw, and how to replay what fails"
	@echo "make fuzz MINUTES=n   hostile bytes for every parser and for whole agents; what is found is kept"
	@echo "make faults real processes, real etcd, a real S3 server, and what befalls them, also under Flink, Kafka Connect and"
	@echo "            Spark, which make test leaves out; then faults drawn from a seed"
	@echo "make faults SEED=n SECONDS=n   only those that this seed draws; and a page of what came of them"
	@echo "make keep VERSION=v   keeps this release for tests of later ones (tests/releases)"
	@echo "make mutants   plants bugs, one at a time, and tells which of them no test finds: 2 minutes"
	@echo "make mutants SIMULATE=1   which of them a seed of the simulator finds (docs/planted-bugs.md)"
	@echo "make screenshots   takes those of the console that docs show"
	@echo "make constraints   writes constraints.txt from pyproject.toml; UPGRADE=--upgrade for newer versions"
	@echo "make docs   the site, into build/site; links that lead nowhere fail"
	@echo "make lint   format, lint, types, structure"

# The environment: made once, brought up to date when what it is made from changes.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Frazil needs Python >= 3.11; $(PYTHON) is older (set PYTHON=...)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "installing python3-venv (Debian leaves it out of python3) ..."; \
	    $$(test "$$(id -u)" = 0 || echo sudo) apt-get install -y python3-venv >/dev/null || \
	    { echo "please install python3-venv and try again"; exit 1; }; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.agent: $(BIN)/python pyproject.toml constraints.txt
	@$(INSTALL) agent

$(VENV)/.run: $(VENV)/.agent
	@$(INSTALL) exporter

$(VENV)/.test: $(VENV)/.run
	@$(INSTALL) tests

# The exporter's packages are ten times an agent's, which needs none of them. The agent is not their
# installer's parent: it would not look after it.
run: $(VENV)/.agent
	@($(INSTALL) exporter --behind &)
	@exec $(BIN)/frazil dev

# The same sets in the same order, too.
check test: export PYTHONHASHSEED = 0

# Some tests wait for a while; types are checked meanwhile.
check: $(VENV)/.test
	@$(MAKE) --no-print-directory static & looked=$$!; trap "kill $$looked" INT TERM; \
	  $(UNIT_TESTS) -q && $(BIN)/python -m tests.sim --first 1 --seeds 20; \
	  failed=$$?; wait $$looked && exit $$failed

plan: $(BIN)/python
	@$(STEP) plan
	@$(STEP) packages

# Parts are made beside the tests that need none. Types are checked and the simulator runs by what the
# others leave: these two wait for nothing, and the others wait a lot.
test: plan $(VENV)/.test
	@$(STEP) style
	@$(MAKE) --no-print-directory style
	@$(STEP) unit; told=$$(mktemp -d); $(BIN)/python -m tests.parts --lines & made=$$!; \
	  nice -n 19 $(BIN)/mypy >$$told/types 2>&1 & typed=$$!; trap "kill $$made $$typed" INT TERM; \
	  $(UNIT_TESTS) || { kill $$made $$typed 2>/dev/null; exit 1; }; \
	  nice -n 19 $(BIN)/python -m pytest -m sim -o faulthandler_timeout=0 tests/sim \
	  >$$told/simulator 2>&1 & simulated=$$!; trap "kill $$made $$typed $$simulated" INT TERM; \
	  $(STEP) parts; wait $$made && $(STEP) real && $(BIN)/python -m pytest -m "integration and not alone and not long" \
	  --durations=15 --numprocesses $(SIDE_BY_SIDE) --dist loadfile --no-loadscope-reorder; failed=$$?; \
	  $(STEP) rest; wait $$typed || failed=1; wait $$simulated || failed=1; \
	  cat $$told/*; rm -r $$told; exit $$failed
	@$(STEP) alone
	@$(BIN)/python -m pytest -m "integration and alone" --durations=15 tests/faults tests/harm tests/clients/test_secure_page.py \
	  tests/releases/test_rolling.py

demo: $(VENV)/.test
	@$(BIN)/python -m tests.parts java iceberg
	@$(BIN)/python -m tests.demo

bench: $(VENV)/.test
	@$(BIN)/python -m tests.parts java kafka etcd minio
	@$(BIN)/python -m tests.bench $(if $(CASE),--only $(CASE))

profile: $(VENV)/.test
	@$(BIN)/python -m tests.parts etcd minio
	@$(BIN)/python -m tests.bench.profile $(CASE)

bench-export: $(VENV)/.test
	@$(BIN)/python -m tests.parts java kafka iceberg spark-kafka connect-iceberg
	@$(BIN)/python -m tests.bench.bench_export --write

readers: $(VENV)/.test
	@$(BIN)/python -m tests.parts java iceberg trino
	@$(BIN)/python -m pytest tests/iceberg_export/test_readers.py

debezium: $(VENV)/.test
	@$(BIN)/python -m tests.parts java iceberg trino postgres debezium
	@CHANGES=$(CHANGES) $(BIN)/python -m pytest tests/iceberg_export/cdc

faults: $(VENV)/.test
	@$(BIN)/python -m tests.parts etcd minio java kafka connect flink libfaketime
	@$(if $(SEED),,$(BIN)/python -m pytest tests/faults)
	@$(BIN)/python -m tests.faults.drawn --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

sim: $(VENV)/.test
	@$(BIN)/python -m tests.sim --seeds $(SEEDS)

explore: $(VENV)/.test
	@$(BIN)/python -m tests.explore --minutes $(MINUTES)

fuzz: $(VENV)/.test
	@$(BIN)/python -m tests.fuzz --minutes $(MINUTES)

keep: $(VENV)/.test
	@$(BIN)/python -m tests.parts java etcd
	@rm -rf dist/kept && $(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist/kept .
	@$(BIN)/python -m tests.releases dist/kept/frazil-*.whl $(VERSION)

# For all versions of Python that pyproject.toml names, on all platforms; what fits stays as it is.
constraints:
	@$(PYTHON) -m venv build/uv && build/uv/bin/python -m pip install --quiet uv
	@build/uv/bin/uv pip compile --quiet --universal --generate-hashes --no-annotate $(UPGRADE) \
	  --custom-compile-command 'make constraints' --extra export --group dev --group build \
	  --output-file constraints.txt pyproject.toml

# Into build/site; `python -m http.server --directory build/site` shows it.
docs: $(VENV)/.test
	@$(BIN)/python -m tests.docs

# A bug of the same length, planted in the same second, would not be compiled.
mutants: export PYTHONDONTWRITEBYTECODE = 1
mutants: $(VENV)/.test
	@$(if $(SIMULATE),,$(BIN)/python -m tests.parts etcd)
	@$(BIN)/python -m tests.mutants $(if $(SIMULATE),--simulate --write)

screenshots: $(VENV)/.test
	@$(BIN)/python -m tests.parts etcd minio chromium
	@FRAZIL_SCREENSHOTS=docs $(BIN)/python -m pytest -q tests/browser/test_console.py

lint: static
	@$(BIN)/python -m pytest -q tests/test_architecture.py tests/test_tidy.py

static: style
	@$(BIN)/mypy

style: $(VENV)/.test
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
