# Each target does all of its own set-up, in a virtual environment of this folder's.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check

# What contains model-written code best; had where it needs no asking: by root, on Debian and its kin.
APT := DEBIAN_FRONTEND=noninteractive timeout 120 apt-get -qq
BUBBLEWRAP := command -v bwrap >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	{ $(APT) install -y bubblewrap || { $(APT) update && $(APT) install -y bubblewrap; }; } >/dev/null 2>&1; }

.PHONY: run test lint embedded reference clean

run: .venv/installed  ## Trains the embedded model: the main job.
	$(BIN)/rlf run specs/search.yaml

test: .venv/installed-dev .venv/rehearsals .venv/mcp-servers/ready  ## Passes the tests, on up to four cores.
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

lint: .venv/installed-dev  ## Style, types, and the direction of imports.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

embedded: .venv/installed  ## Makes the built-in encyclopedia and model again from their seeds.
	$(BIN)/python -m rlf.builtin.encyclopedia.build
	$(BIN)/python -m rlf.builtin.tiny.build

reference: .venv/installed  ## Makes docs/schema and docs/reference again from the code.
	$(BIN)/rlf schema --write docs/schema
	$(BIN)/python -m rlf.spec.meaning.reference docs/reference
	$(BIN)/python -m rlf.engines.openrlhf.compile.reference docs/reference

clean:
	rm -rf .venv

.venv/installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -e .
	@$(BUBBLEWRAP) || echo "bubblewrap was not installed; 'rlf doctor' says what contains model-written code without it"
	touch $@

# Without their dependencies: OpenRLHF, whose own maths rlf's is held against (it needs torch alone), and TRL, for the
# chat templates of real models that its wheel ships.
.venv/installed-dev: .venv/installed
	$(PIP) -e '.[dev]'
	$(PIP) --no-deps openrlhf==0.11.2 trl==1.16.0
	touch $@

# MCP servers that others wrote, in an environment of their own: theirs needs an older SDK. Tests of those that cannot be
# installed skip and say so.
MCP := .venv/mcp-servers
.venv/mcp-servers/ready:
	@test -x $(MCP)/bin/python || $(PYTHON) -m venv $(MCP)
	@$(MCP)/bin/pip install --quiet --disable-pip-version-check 'mcp<2' mcp-server-git==2026.10.10 \
		mcp-server-sqlite==2025.4.25 mcp-server-time==2026.10.10 \
		|| echo "MCP servers were not installed from PyPI; their tests will be skipped"
	@npm install --silent --no-audit --no-fund --prefix $(MCP) @modelcontextprotocol/server-everything@2026.8.31 \
		@modelcontextprotocol/server-filesystem@2026.8.31 \
		|| echo "MCP servers were not installed by npm; their tests will be skipped"
	touch $@

# Where it cannot be made, the tests of OpenRLHF's job skip and say so.
.venv/rehearsals: .venv/installed-dev
	@$(BIN)/rlf rehearse --setup || echo "the rehearsal of OpenRLHF's job will be skipped"
	touch $@
