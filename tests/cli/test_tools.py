"""`rlf tools`: listing and dry runs through the real executor."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from tests.warm import MCP, warm_python

Rlf = Callable[..., Result]
SPEC = Path(__file__).parents[2] / "specs" / "search.yaml"

CODE = '''
def add(a: int, b: int) -> int:
    """Adds."""
    if a < 0:
        raise ValueError("a is negative")
    return a + b
'''
TOOL = """
name: add
description: "Adds [bold]two[/bold] numbers."
inputSchema: {type: object, properties: {a: {type: integer}, b: {type: integer}}, required: [a, b]}
target: {kind: python, callable: "adding.py:add"}
tests:
  - {arguments: {a: 1, b: 2}, expect: {equals: "3"}}
  - {arguments: {a: -1, b: 2}, expect: {error: negative}}
"""
FAILING = '  - {arguments: {a: 2, b: 2}, expect: {equals: "5"}}\n'


@pytest.fixture
def tool(rlf: Rlf, tmp_path: Path) -> Path:
    (tmp_path / "tool_specs").mkdir()
    (tmp_path / "tool_specs" / "adding.py").write_text(CODE)
    file = tmp_path / "tool_specs" / "add.yaml"
    file.write_text(TOOL)
    return file


def test_list_shows_arguments_and_takes_descriptions_as_they_are(rlf: Rlf, tool: Path) -> None:
    result = rlf("tools", "list", tool)
    assert result.exit_code == 0, result.output
    flowed = " ".join(result.stdout.split())
    assert "add" in flowed
    assert "python" in flowed
    assert "[bold]" in flowed


def test_without_a_file_the_folder_tool_specs_is_taken(rlf: Rlf, tool: Path) -> None:
    listed = json.loads(rlf("tools", "list", "--json").stdout)
    assert [item["name"] for item in listed["data"]] == ["add"]
    tool.unlink()
    result = rlf("tools", "list")
    assert result.exit_code == 2
    assert "no tool is declared" in result.stderr


def test_a_spec_brings_its_tools(rlf: Rlf) -> None:
    listed = json.loads(rlf("tools", "list", SPEC, "--json").stdout)
    assert [item["name"] for item in listed["data"]] == ["search", "calculator"]


def test_examples_run_and_pass(rlf: Rlf, tool: Path) -> None:
    result = rlf("tools", "test", tool)
    assert result.exit_code == 0, result.output
    row = next(line.split() for line in result.stdout.splitlines() if line.startswith("add"))
    assert row[:8] == ["add", "python", "2", "of", "2", "4", "of", "4"]
    assert row[-1] == "ok"
    assert " ms" in result.stdout


def test_a_failing_example_exits_with_3_and_says_what_came(rlf: Rlf, tool: Path) -> None:
    tool.write_text(TOOL + FAILING)
    result = rlf("tools", "test", tool)
    assert result.exit_code == 3
    assert "failed" in result.stdout
    assert "equals '5': got '4'" in " ".join(result.stdout.split())
    assert result.stderr.endswith("1 of 1 tools failed: add\n")


def test_json_has_a_verdict_per_example(rlf: Rlf, tool: Path) -> None:
    tool.write_text(TOOL + FAILING)
    result = rlf("tools", "test", tool, "--json")
    (told,) = json.loads(result.stdout)["data"]
    assert result.exit_code == 3
    assert (told["tool"], told["ok"], len(told["shortfalls"])) == ("add", False, 1)
    assert [example["ok"] for example in told["examples"]] == [True, True, False]
    assert told["examples"][0]["result"]["text"] == "3"
    assert [run["fault"] for run in told["drill"]] == [
        "missing 'a'",
        "'a' of another type",
        "an unknown argument",
        "a deadline of 1 ms",
    ]
    assert [run["shortfall"] for run in told["drill"]] == [None] * 4


def test_a_tool_without_examples_is_reported_and_does_not_fail(rlf: Rlf, tool: Path) -> None:
    tool.write_text(TOOL.partition("tests:")[0])
    result = rlf("tools", "test", tool)
    assert result.exit_code == 0
    assert "no example" in result.stdout


def test_a_function_without_examples_is_called_after_stderr_has_said_with_what(rlf: Rlf, tool: Path) -> None:
    tool.write_text(TOOL.partition("tests:")[0])
    result = rlf("tools", "test", tool, "--json")
    (tried,) = json.loads(result.stdout)["data"]
    (sample,) = tried["samples"]
    assert (tried["ok"], sample["ok"], sample["arguments"]) == (True, True, {"a": 1, "b": 1})
    assert 'add: no example under `tests:`; calling it with {"a": 1, "b": 1}' in result.stderr


def test_a_function_for_which_no_arguments_can_be_made_up_is_reported_as_not_called(rlf: Rlf, tool: Path) -> None:
    unmade = TOOL.partition("tests:")[0].replace("a: {type: integer}", "a: {type: integer, not: {minimum: 0}}")
    tool.write_text(unmade)
    result = rlf("tools", "test", tool)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "no call was made" in " ".join(result.stdout.split())


def test_a_service_where_nobody_answers_is_reported_though_no_example_calls_it(rlf: Rlf, tool: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        url = f"{{kind: http, url: 'http://127.0.0.1:{port}/add'}}"
        tool.write_text(TOOL.partition("target:")[0] + f"target: {url}\n")
        answered = rlf("tools", "test", tool)
        assert (answered.exit_code, "no example" in answered.stdout) == (0, True)
    (absent,) = json.loads(rlf("tools", "test", tool, "--json").stdout)["data"]
    assert absent["unreachable"] == f"nothing answers at 127.0.0.1:{port} (Connection refused)"
    assert "not tried: nothing answers" in " ".join(rlf("tools", "test", tool).stdout.split())


def test_tools_of_one_name_are_distinguished_by_their_files(rlf: Rlf, tool: Path) -> None:
    (tool.parent / "sum.yaml").write_text(TOOL.replace("Adds", "Sums"))
    listed = json.loads(rlf("tools", "list", "--json").stdout)["data"]
    assert [(item["name"], Path(item["file"]).name) for item in listed] == [("add", "add.yaml"), ("add", "sum.yaml")]
    shown = rlf("tools", "list").stdout
    assert "add.yaml" in shown and "sum.yaml" in shown
    assert "file" not in rlf("tools", "list", tool).stdout


def test_one_call_prints_what_the_model_would_read(rlf: Rlf, tool: Path) -> None:
    result = rlf("tools", "test", tool, "--call", "add", '{"a": 20, "b": 22}')
    assert result.exit_code == 0
    assert result.stdout == "42\n"


def test_a_call_that_fails_exits_with_3(rlf: Rlf, tool: Path) -> None:
    result = rlf("tools", "test", tool, "--call", "add", '{"a": "x"}')
    assert result.exit_code == 3
    assert "invalid arguments for add" in result.stdout
    assert "add: invalid_arguments" in result.stderr


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_arguments_that_are_no_object_are_refused(rlf: Rlf, tool: Path, text: str) -> None:
    result = rlf("tools", "test", tool, "--call", "add", text)
    assert result.exit_code == 2
    assert "expected a JSON object" in result.stderr


def test_faults_of_a_tool_file_have_their_places(rlf: Rlf, tool: Path) -> None:
    tool.write_text(TOOL.replace("kind: python", "kind: pyton") + "limit: {}\n")
    result = rlf("tools", "test", tool)
    assert result.exit_code == 2
    assert "add.yaml:5:16 target.kind: unknown tool kind 'pyton'; did you mean 'python'?" in result.stderr
    assert "add.yaml:9:1 limit: unknown key 'limit'; did you mean 'limits'?" in result.stderr


def test_the_shipped_tools_pass_their_examples(rlf: Rlf) -> None:
    result = rlf("tools", "test", SPEC)
    assert result.exit_code == 0, result.output


def test_files_that_declare_one_name_in_several_ways_are_each_tried(
    rlf: Rlf, tool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = TOOL.replace('equals: "3"', 'equals: "4"')
    (tool.parent / "add_wrong.yaml").write_text(wrong)
    result = rlf("tools", "test")
    assert result.exit_code == 3
    assert "1 of 2 tools failed: add" in result.stderr
    monkeypatch.chdir(SPEC.parents[1])
    assert rlf("tools", "test").exit_code == 0


def test_one_call_of_a_name_that_several_files_declare_asks_which(rlf: Rlf, tool: Path) -> None:
    (tool.parent / "other.yaml").write_text(TOOL.replace("Adds", "Also adds"))
    result = rlf("tools", "test", "--call", "add", '{"a": 1, "b": 2}')
    assert result.exit_code == 2
    assert "'add' is declared in several files" in result.stderr


def test_a_tool_that_cannot_be_opened_has_that_as_its_verdict(rlf: Rlf, tool: Path) -> None:
    tool.write_text(TOOL.replace("adding.py:add", "adding.py:ad"))
    result = rlf("tools", "test", tool)
    assert result.exit_code == 3
    assert "cannot be opened" in result.stdout
    assert "did you mean 'add'?" in " ".join(result.stdout.split())


def test_examples_may_expect_a_schema_and_a_time(rlf: Rlf, tool: Path) -> None:
    tool.write_text(TOOL + "  - {arguments: {a: 2, b: 2}, expect: {schema: {type: integer}, max_ms: 60000}}\n")
    assert rlf("tools", "test", tool).exit_code == 0
    tool.write_text(TOOL + "  - {arguments: {a: 2, b: 2}, expect: {schema: {type: string}, max_ms: 0.000001}}\n")
    result = rlf("tools", "test", tool)
    flowed = " ".join(result.stdout.split())
    assert result.exit_code == 3
    assert "the result breaks its schema: 4 is not of type" in flowed
    assert "max_ms 1e-06: took" in flowed


def test_show_tells_what_the_model_of_a_spec_is_shown_and_how_many_tokens_it_takes(rlf: Rlf) -> None:
    result = rlf("tools", "show", "search", SPEC)
    assert result.exit_code == 0, result.output
    assert "hermes: 7 tokens of the prompt's 16" in result.stdout
    assert "<|im_start|>system\nTools: search<|im_end|>" in result.stdout
    told = json.loads(rlf("tools", "show", "search", SPEC, "--json").stdout)["data"]
    assert (told["name"], told["prompts"][0]["num_added"]) == ("search", 7)


def test_show_without_a_spec_tells_what_the_file_says(rlf: Rlf, tool: Path) -> None:
    result = rlf("tools", "show", "add", tool)
    assert result.exit_code == 0, result.output
    assert '"name": "add"' in result.stdout
    assert "Name a spec to see the prompt" in result.stdout
    unknown = rlf("tools", "show", "ad", tool)
    assert (unknown.exit_code, "did you mean 'add'?" in unknown.stderr) == (2, True)


def test_bench_counts_every_call_and_its_outcome(rlf: Rlf, tool: Path) -> None:
    told = json.loads(rlf("tools", "bench", "add", tool, "-c", "4", "-n", "50", "--json").stdout)["data"]["report"]
    assert (told["num_calls"], told["concurrency"], told["num_by_outcome"]) == (50, 4, {"ok": 50})
    assert 0 < told["run_s"]["p50"] <= told["run_s"]["p95"] <= told["run_s"]["p99"] <= told["run_s"]["max"]
    failing = rlf("tools", "bench", "add", tool, "-n", "10", "--arguments", '{"a": -1, "b": 1}')
    assert failing.exit_code == 0
    assert "tool_error 10" in failing.stdout
    assert "a is negative" in failing.stdout


def test_bench_holds_a_load_test_against_plain_calls(rlf: Rlf, tool: Path) -> None:
    (tool.parent / "adding.py").write_text(
        "import asyncio\ncalls = 0\n"
        "async def add(a, b):\n    global calls\n    calls += 1\n    await asyncio.sleep(0.01)\n    return calls\n"
    )
    limited = tool.read_text() + "limits: {max_concurrency: 2}\n"
    tool.write_text(limited)
    printed = rlf("tools", "bench", "add", tool, "-n", "8", "--json").stdout
    report = json.loads(printed)["data"]["report"]
    assert report["floor_s"] > 8 * 0.01 / 2  # two permits
    assert report["times_floor"] == report["wall_s"] / report["floor_s"]
    assert "x the floor" in rlf("tools", "bench", "add", tool, "-n", "2").stdout
    refused = rlf("tools", "bench", "add", tool, "-n", "2", "--arguments", "{}", "--json").stdout
    assert json.loads(refused)["data"]["report"]["floor_s"] is None
    tool.write_text(limited.replace("max_concurrency: 2", "rate: {per_second: 1000}"))
    assert (
        json.loads(rlf("tools", "bench", "add", tool, "-n", "2", "--json").stdout)["data"]["report"]["floor_s"] is None
    )


def test_a_recording_goes_with_one_run(rlf: Rlf) -> None:
    result = rlf("run", SPEC, "-m", "seed=0,1", "--record")
    assert result.exit_code == 2
    assert "--record and --replay go with one run" in result.stderr
    both = rlf("run", SPEC, "--record", "--replay", "latest")
    assert (both.exit_code, "Remove one of the two" in both.stderr) == (2, True)


def test_a_secret_that_a_tool_lets_out_is_not_shown(rlf: Rlf, tool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEB_API_KEY", "canary-4711-aviary")
    (tool.parent / "adding.py").write_text("import os\ndef add(a, b):\n    return os.environ['WEB_API_KEY']\n")
    called = rlf("tools", "test", tool, "--call", "add", '{"a": 1, "b": 2}')
    tried = rlf("tools", "test", tool, "--json")
    assert called.stdout == "[redacted]\n"
    assert "[redacted]" in tried.stdout
    assert "canary" not in called.output + tried.output


LOUD = """
print("imported")


class Loud:
    def open(self):
        print("opened")

    def __call__(self, q: str) -> str:
        \"\"\"Say it.\"\"\"
        print("called")
        return q
"""


@pytest.fixture
def loud(tmp_path):
    """The file of a tool that prints while it is imported, opened and called."""
    (tmp_path / "loud.py").write_text(LOUD)
    file = tmp_path / "loud.yaml"
    file.write_text(
        "name: loud\ntarget: {kind: python, callable: 'loud.py:Loud', state: run}\n"
        "tests: [{arguments: {q: a}, expect: {equals: a}}]\n"
    )
    return file


@pytest.mark.parametrize(
    "command",
    [["test", "--json"], ["list", "--json"], ["show", "loud", "--json"], ["bench", "loud", "-n", "2", "--json"]],
)
def test_what_a_tool_prints_is_not_on_stdout(rlf, loud, command):
    place = 2 if "loud" in command else 1
    ran = rlf("tools", *command[:place], loud, *command[place:])
    assert ran.exit_code == 0
    assert json.loads(ran.stdout)["command"] == f"tools {command[0]}"


def test_what_a_tool_prints_is_not_on_the_wire_of_a_served_tool(loud):
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    lines = [
        {"id": 1, "method": "initialize", "params": about},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "loud", "arguments": {"q": "x"}}},
    ]
    command = [warm_python(*MCP), "-m", "rlf", "tools", "serve", str(loud), "--mcp", "stdio"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, text=True, bufsize=1, **pipes) as process:
        process.stdin.writelines(json.dumps({"jsonrpc": "2.0", **line}) + "\n" for line in lines)
        answers = [json.loads(process.stdout.readline())["id"] for _ in range(2)]
        process.stdin.close()
        printed = process.stderr.read()
        assert process.wait(30) == 0
    assert answers == [1, 2]
    assert printed.split() == ["imported", "opened", "called"]


def test_the_request_of_an_http_tool_is_shown_on_request_without_its_key(
    rlf: Rlf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOK_API_KEY", "sk-live-0123456789")
    (tmp_path / "look.yaml").write_text(
        "name: look\ndescription: Looks.\n"
        "inputSchema: {type: object, properties: {query: {type: string}}, required: [query]}\n"
        "target:\n  kind: http\n  url: http://127.0.0.1:9/find\n  method: POST\n"
        "  headers: {Authorization: 'Bearer ${oc.env:LOOK_API_KEY}'}\n"
        "  body: {q: '{{query}}', key: '${oc.env:LOOK_API_KEY}'}\n"
    )
    call = ("tools", "test", "look.yaml", "--call", "look", '{"query": "a b"}')
    quiet, shown = rlf(*call), rlf("-v", *call)
    assert quiet.exit_code == shown.exit_code == 3 and "POST" not in quiet.stderr
    sent = next(line for line in shown.stderr.split("\n") if "POST http://127.0.0.1:9/find " in line)
    assert json.loads(sent[sent.index("{") :]) == {"q": "a b", "key": "[redacted]"}
    assert "sk-live" not in shown.output
