"""`rlf check` and code that is not rlf's: read as source, named before it runs, and never run with `--no-import`."""

import json
import os
import subprocess
import sys

import pytest

SPEC = """\
name: strange
model: {path: builtin:tiny}
data: {train: {path: builtin:encyclopedia/train, prompt: question, answer: answer}}
tools: [tool.yaml]
rewards: [{kind: python, name: mine, callable: "reward.py:score", range: [0, 1]}]
rollout: {num_generations: 4, max_total_tokens: 300}
train: {algorithm: grpo, steps: 2, prompts_per_step: 2}
engine: local
"""
TOOL = """\
name: look
description: Looks.
inputSchema: {type: object, properties: {query: {type: string}}, required: [query]}
target: {kind: python, callable: "tool.py:look"}
"""
RAN = "import pathlib\npathlib.Path('ran').write_text('')\n"


@pytest.fixture
def strange(tmp_path, monkeypatch):
    """A spec of a stranger's, whose Python leaves a mark when it runs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.yaml").write_text(SPEC)
    (tmp_path / "tool.yaml").write_text(TOOL)
    (tmp_path / "tool.py").write_text(f"{RAN}def look(query: str) -> str:\n    return query\n")
    (tmp_path / "reward.py").write_text(f"{RAN}def score(trajectory):\n    return 1.0\n")
    return tmp_path


def test_python_is_named_before_it_is_imported(rlf, strange):
    result = rlf("check", "spec.yaml")
    assert result.exit_code == 0
    assert [line for line in result.stderr.splitlines() if "about to" in line] == [
        "about to import tool.py (not with --no-import)",
        "about to import reward.py (not with --no-import)",
    ]
    assert (strange / "ran").exists()


LOOKS = (["plan"], ["tools", "list"], ["tools", "show", "look"], ["rewards", "list"], ["format", "show"])


@pytest.mark.parametrize("command", LOOKS, ids=" ".join)
def test_each_command_that_only_looks_names_what_it_runs_and_runs_nothing_with_no_import(command, rlf, strange):
    refused = rlf(*command, "spec.yaml", "--no-import")
    assert refused.exception is None or isinstance(refused.exception, SystemExit)
    assert "about to" not in refused.stderr
    assert not (strange / "ran").exists()
    result = rlf(*command, "spec.yaml")
    assert ("about to import" in result.stderr) == (strange / "ran").exists()


def test_no_import_checks_all_else_and_runs_nothing(rlf, strange):
    result = rlf("check", "spec.yaml", "--no-import", "train.mini_batches=7", "data.train.answer=gold")
    assert "train.mini_batches" in result.stderr
    assert "data.train.answer" in result.stderr
    assert rlf("check", "spec.yaml", "--no-import").exit_code == 0
    assert not (strange / "ran").exists()


def test_a_signature_that_does_not_fit_is_a_fault_without_an_import(rlf, strange):
    (strange / "tool.py").write_text(f"{RAN}def look(question: str, n) -> str:\n    return question\n")
    (strange / "reward.py").write_text(f"{RAN}def scores(trajectory):\n    return 1.0\n")
    result = rlf("check", "spec.yaml")
    assert result.exit_code == 2
    assert "inputSchema has 'query', which the function does not take" in result.stderr
    assert "parameter 'n' has no default" in result.stderr
    assert "has no 'score'; did you mean 'scores'?" in result.stderr
    assert not (strange / "ran").exists()


def test_what_only_an_import_shows_is_a_fault_with_one_alone(rlf, strange):
    (strange / "tool.py").write_text("import no_such_module_anywhere\ndef look(query: str) -> str:\n    return query\n")
    assert rlf("check", "spec.yaml", "--no-import").exit_code == 0
    assert "no_such_module_anywhere" in rlf("check", "spec.yaml").stderr


def test_no_import_reads_description_and_schema_from_the_source(rlf, strange):
    (strange / "tool.yaml").write_text('name: look\ntarget: {kind: python, callable: "tool.py:look"}\n')
    source = f'{RAN}def look(query: str, most: "int | None" = None) -> list[str]:\n    """Looks."""\n'
    (strange / "tool.py").write_text(source)
    assert rlf("check", "spec.yaml", "--no-import").exit_code == 0
    assert not (strange / "ran").exists()


def test_no_import_starts_no_mcp_server(rlf, strange, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(strange))
    server = f"{{command: {sys.executable}, args: ['-c', \"open('ran', 'w')\"]}}"
    (strange / "spec.yaml").write_text(SPEC.replace("tools: [tool.yaml]", f"tools: [{{mcp: {server}}}]"))
    result = rlf("check", "spec.yaml", "--no-import")
    assert "tools[0].mcp: this check must start the MCP server" in result.stderr
    assert not (strange / "ran").exists()
    assert "about to start the MCP server" in rlf("check", "spec.yaml").stderr


def test_a_file_in_the_current_folder_takes_the_place_of_no_library(strange):
    for name in ("yaml", "omegaconf", "tokenizers", "jsonschema_rs"):
        (strange / f"{name}.py").write_text(RAN)
    command = [sys.executable, "-P", "-m", "rlf", "check", "spec.yaml", "--no-import", "--json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert json.loads(result.stdout)["data"]["ok"], result.stderr
    assert not (strange / "ran").exists()


def test_a_plan_names_python_before_it_is_imported_and_imports_none_where_asked(rlf, strange):
    assert rlf("plan", "spec.yaml", "--no-import").exit_code == 0
    assert rlf("plan", "--diff", "spec.yaml", "spec.yaml", "--no-import").exit_code == 0
    assert not (strange / "ran").exists()
    result = rlf("plan", "spec.yaml")
    assert "about to import tool.py (not with --no-import)" in result.stderr
    assert (strange / "ran").exists()


def test_an_import_of_python_tools_names_the_module_first(rlf, strange):
    result = rlf("tools", "import", "python", "tool.py", "--out", "out")
    assert result.stderr.splitlines()[0] == "about to import tool.py"
