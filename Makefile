# Each target does all of its own set-up, in a virtual environment of this folder's.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check
# Python's bytecode is kept: without, each of the many processes of a run and of the tests would compile rlf first.
export PYTHONDONTWRITEBYTECODE =

# uv installs packages in a third of pip's time, from where pip is set to take them (a torch without CUDA, say); pip
# installs them where uv cannot.
pip_setting = $$($(PIP) config get $(1) 2>/dev/null || true)
SOURCES = UV_FIND_LINKS="$${PIP_FIND_LINKS-$(call pip_setting,global.find-links)}" \
	UV_INDEX="$${PIP_EXTRA_INDEX_URL-$(call pip_setting,global.extra-index-url)}" UV_INDEX_STRATEGY=unsafe-best-match
UV = $(SOURCES) $(BIN)/uv pip install --quiet --python
install = $(UV) $(BIN)/python $(1) 2>/dev/null || $(PIP) install --quiet $(1)

# What contains model-written code best; had where it needs no asking: by root, on Debian and its kin.
APT := DEBIAN_FRONTEND=noninteractive timeout 120 apt-get -qq
BUBBLEWRAP := command -v bwrap >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	{ $(APT) install -y bubblewrap || { $(APT) update && $(APT) install -y bubblewrap; }; } >/dev/null 2>&1; }

.PHONY: run tested test docs-test installed gpu coverage mutation foreign lint embedded reference docs vendor clean

run: .venv/installed  ## Trains the embedded model: the main job.
	$(BIN)/rlf run specs/search.yaml

# Tests wait for processes and servers about as long as they compute: two workers more than there are cores, up to six.
WORKERS = -n $$(( $$(nproc 2>/dev/null || echo 1) + 2 )) --maxprocesses 6
# Environments that tests use. Each waits for the network and the disk, so that four are made at a time.
TESTED := .venv/browser/ready .venv/rehearsals .venv/worlds/ready .venv/mcp-servers/ready .venv/clients/ready .venv/postgres
tested: .venv/installed-dev
	@$(MAKE) --no-print-directory --jobs=4 --output-sync=target $(TESTED)

test: tested  ## Passes the tests, on several cores.
	$(BIN)/python -m pytest $(WORKERS) --dist worksteal

docs-test: tested  ## Runs every command of the documentation's pages, one page after the other.
	$(BIN)/python -m pytest -m docs -rP -o faulthandler_timeout=0 tests/test_pages.py

installed: .venv/installed  ## Builds sdist and wheel, and tries rlf where no file of the repository is.
	.ci/installed

gpu: .venv/installed  ## What there is to see on one card, in half an hour without a network: build/gpu.md.
	$(BIN)/python benchmarks/gpu.py

coverage: tested  ## Which lines and branches the tests run.
	$(BIN)/python -m pytest $(WORKERS) --dist worksteal --cov --cov-report=term-missing:skip-covered

mutation: .venv/installed-dev  ## How many small faults in the heart of rlf its tests notice, on a sample.
	$(call install,mutmut==3.8.1 coverage)
	$(BIN)/python benchmarks/mutation.py

foreign: .venv/installed-dev  ## Plays examples of other projects with pinned and newest releases; says what changed.
	$(SOURCES) $(BIN)/python benchmarks/foreign/examples.py

lint: .venv/installed-dev  ## Style, types, the direction of imports, and the size of both rings.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python .ci/size

# Data first: what is shipped as questions is what the models are measured on. Two models at a time, a core each;
# `agent` last, since it begins with `tiny`.
EMBEDDED_DATA := encyclopedia shop programs rooms bisect compose
EMBEDDED_MODELS := tiny small reader clerk games prober bookkeeper agent
embedded: .venv/installed  ## Makes the built-in worlds and models again from their seeds.
	for part in $(EMBEDDED_DATA); do $(BIN)/python -m benchmarks.embedded.$$part.build || exit; done
	printf '%s\n' $(EMBEDDED_MODELS) | xargs -P 2 -I {} $(BIN)/python -m benchmarks.embedded.{}.build

reference: .venv/installed  ## Makes docs/schema and docs/reference again from the code.
	$(BIN)/rlf schema --write docs/schema
	$(BIN)/python docs/reference.py
	$(BIN)/python docs/generate.py

docs: .venv/docs/ready  ## Builds the documentation as a site in build/site, to open without a server.
	.venv/docs/bin/python docs/build_site.py
	@echo "open build/site/index.html"

# The generator has an environment of its own. Zensical is the successor of Material for MkDocs, by the same people.
.venv/docs/ready:
	@test -x .venv/docs/bin/python || $(PYTHON) -m venv .venv/docs
	.venv/docs/bin/pip --disable-pip-version-check install --quiet zensical==0.0.73
	touch $@

vendor: .venv/installed  ## Bundles the page's browser code of others again from its lock file; needs npm.
	$(BIN)/python -m rlf.apps.web.vendor.build

clean:
	rm -rf .venv build

# uv compiles no bytecode, as pip does for a minute: here that of what is imported most is made.
.venv/installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) install --quiet uv || true
	$(call install,-e .)
	@$(BIN)/python -c "import transformers.models.auto.modeling_auto"
	@$(BUBBLEWRAP) || echo "bubblewrap was not installed; 'rlf doctor' says what contains model-written code without it"
	touch $@

# Without their dependencies: OpenRLHF, whose own maths rlf's is held against (it needs torch alone), and TRL, for the
# chat templates of real models that its wheel ships.
.venv/installed-dev: .venv/installed
	$(call install,-e '.[dev]')
	$(call install,--no-deps openrlhf==0.11.2 trl==1.16.0)
	touch $@

# MCP servers that others wrote, in an environment of their own: theirs needs an older SDK. Tests of those that cannot be
# installed skip and say so.
MCP := .venv/mcp-servers
MCP_SERVERS := 'mcp<2' mcp-server-git==2026.10.10 mcp-server-sqlite==2025.4.25 mcp-server-time==2026.10.10
.venv/mcp-servers/ready: .venv/installed
	@test -x $(MCP)/bin/python || $(BIN)/uv venv --quiet --allow-existing --seed $(MCP) || $(PYTHON) -m venv $(MCP)
	@$(UV) $(MCP)/bin/python $(MCP_SERVERS) || $(MCP)/bin/pip install --quiet $(MCP_SERVERS) \
		|| echo "MCP servers were not installed from PyPI; their tests will be skipped"
	@npm install --silent --no-audit --no-fund --prefix $(MCP) @modelcontextprotocol/server-everything@2026.8.31 \
		@modelcontextprotocol/server-filesystem@2026.8.31 \
		|| echo "MCP servers were not installed by npm; their tests will be skipped"
	touch $@

# Clients of model servers, each as its users have it. Where they cannot be installed their tests skip and say so.
CLIENTS := .venv/clients
CLIENT_PACKAGES := 'openai[aiohttp]==3.57.0' anthropic==2.14.0 openai-agents==0.24.0
.venv/clients/ready: .venv/installed
	@test -x $(CLIENTS)/bin/python || $(BIN)/uv venv --quiet --allow-existing --seed $(CLIENTS) || $(PYTHON) -m venv $(CLIENTS)
	@$(UV) $(CLIENTS)/bin/python $(CLIENT_PACKAGES) || $(CLIENTS)/bin/pip install --quiet $(CLIENT_PACKAGES) \
		|| { rm -rf $(CLIENTS)/bin; echo "clients of model servers were not installed; their tests will be skipped"; }
	@mkdir -p $(CLIENTS) && touch $@

# Packages that have worlds, each in an environment of its own; that of text worlds, which rlf plays in its own process,
# sees rlf's packages too. Tests of those that cannot be installed skip and say so.
WORLDS := .venv/worlds
TEXT_WORLDS := textarena==0.7.4 reasoning-gym==0.1.25
.venv/worlds/ready: .venv/installed-dev
	@for name in text openenv verifiers; do \
		$(BIN)/uv venv --quiet --allow-existing --python $(BIN)/python $(WORLDS)/$$name \
		|| $(PYTHON) -m venv $(WORLDS)/$$name; done
	@$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" \
		> $$(echo $(WORLDS)/text/lib/python3.*/site-packages)/rlf.pth
	@$(UV) $(WORLDS)/text/bin/python $(TEXT_WORLDS) || echo "text worlds were not installed; their tests will be skipped"
	@$(UV) $(WORLDS)/openenv/bin/python openenv==0.10.0 || echo "openenv was not installed; its tests will be skipped"
	@$(UV) $(WORLDS)/verifiers/bin/python verifiers==0.4.0 uv textarena==0.7.4 \
		|| echo "verifiers was not installed; its tests will be skipped"
	touch $@

# A browser for the tests of pages: Playwright drives the system's Chromium, had as bubblewrap is, and axe-core looks for
# what keeps people out. Its build without a window needs a third of the CPU. Tests skip and say so where neither is.
BROWSER := .venv/browser
INSTALL := DEBIAN_FRONTEND=noninteractive timeout 300 apt-get -qq install -y --no-install-recommends
CHROMIUM := command -v chromium-headless-shell >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	{ $(INSTALL) chromium-headless-shell || $(INSTALL) chromium; }; } >/dev/null 2>&1 || command -v chromium >/dev/null
.venv/browser/ready: .venv/installed
	@test -x $(BROWSER)/bin/python || $(BIN)/uv venv --quiet --allow-existing --python $(BIN)/python $(BROWSER) \
		|| $(PYTHON) -m venv $(BROWSER)
	@$(UV) $(BROWSER)/bin/python playwright==1.65.2 || $(BROWSER)/bin/pip install --quiet playwright==1.65.2 \
		|| echo "Playwright was not installed; tests of pages will be skipped"
	@$(CHROMIUM) || echo "Chromium was not installed; tests of pages will be skipped"
	@npm install --silent --no-audit --no-fund --prefix $(BROWSER) axe-core@4.14.1 \
		|| echo "axe-core was not installed; pages will not be held against it"
	@mkdir -p $(BROWSER) && touch $@

# A database server for the tests of a team's lineage, had as bubblewrap is, after the browser, since apt has one lock.
# They start it themselves; without it they skip and say so.
POSTGRES := ls /usr/lib/postgresql/*/bin/postgres >/dev/null || command -v initdb >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	{ $(INSTALL) postgresql || { $(APT) update && $(INSTALL) postgresql; }; }; }
.venv/postgres: .venv/installed | .venv/browser/ready
	@{ $(POSTGRES); } >/dev/null 2>&1 || echo "PostgreSQL was not installed; tests of a lineage on it will be skipped"
	touch $@

# Where it cannot be made, the tests of OpenRLHF's job skip and say so.
.venv/rehearsals: .venv/installed-dev
	@$(BIN)/rlf rehearse --setup || echo "the rehearsal of OpenRLHF's job will be skipped"
	touch $@
