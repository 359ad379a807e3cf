"""Worlds as folders: the same bytes in another process, resumed where they were cut off, and as FTRL's rows."""

import ast
import asyncio
import builtins
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from rlf.apps.build import folder
from rlf.apps.build.build import enclose, write_ftrl
from rlf.apps.build.folder import WORK, build_world, read_world
from rlf.apps.build.kind import load_build
from rlf.cli.main import app
from rlf.core import RlfError, SpecError, hash_path
from rlf.data import load_tasks
from rlf.rewards.values import Finding, count_solved, keyed_golds, read_golds, text_keys, value_keys
from rlf.spec import load_spec
from rlf.spec.inputs import look
from rlf.tools.outputs import to_text
from tests.apps.build.worlds import rewards_of_gold, settings

FILE = """\
build: {kind: graph, count: 24, entities: 12, worlds: 3}
gates: {no_tool: 0.2, null: 0.0}
complexity: {function: 3, parameters: 2, types: 1}
out: worlds/small
"""


def silent(done, total, tally):
    """Tells nobody."""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    out = tmp_path_factory.mktemp("worlds") / "small"
    build_world(settings(out, complexity={"function": 3, "parameters": 2, "types": 1}), silent)
    return out


@pytest.fixture(scope="module")
def ftrl(world):
    """The files with the rows of the world that FTRL reads."""
    return list(write_ftrl(world))


@pytest.fixture(scope="module")
def uncut(tmp_path_factory):
    """The certificate of a build that nothing interrupts."""
    return build_world(settings(tmp_path_factory.mktemp("uncut") / "out"), silent)


@pytest.fixture(scope="module")
def cut_off(tmp_path_factory):
    """The folder of a build that ends before it writes its world; what is left of it is read alone."""
    out = tmp_path_factory.mktemp("cut") / "out"
    with pytest.MonkeyPatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(folder, "_write_world", interrupt)
        build_world(settings(out), silent)
    return out


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(FILE, encoding="utf-8")
    return tmp_path


def test_another_process_with_other_hashes_and_another_locale_writes_the_same_bytes(project):
    program = "import sys; from rlf.cli.main import main; sys.exit(main())"
    for name, own in {
        "one": {"PYTHONHASHSEED": "1"},
        "two": {"PYTHONHASHSEED": "2", "LC_ALL": "C", "TZ": "Asia/Tokyo"},
    }.items():
        command = [sys.executable, "-c", program, "env", "build", "small.yaml", f"out={name}/small"]
        subprocess.run(command, env={**os.environ, **own}, check=True, timeout=120)
    assert hash_path(project / "one/small/certificate.json") == hash_path(project / "two/small/certificate.json")
    assert hash_path(project / "one/small/world.db") == hash_path(project / "two/small/world.db")


def test_the_certificate_has_the_hash_of_every_file(world):
    certificate, tasks = read_world(world)
    assert certificate.holds and len(tasks) == 48
    assert all(hash_path(world / name) == sha256 for name, sha256 in certificate.files.items())
    there = {str(path.relative_to(world)) for path in world.rglob("*") if path.is_file()}
    assert there - {"certificate.json"} - {name for name in there if name.startswith("ftrl")} == set(certificate.files)


@pytest.mark.parametrize("place", ["in the third part", "in the database"])
def test_a_build_that_was_killed_continues_and_writes_the_same_bytes(tmp_path, monkeypatch, uncut, place):
    chosen = settings(tmp_path / "out")
    if (child := os.fork()) == 0:

        def kill(*arguments):
            if place == "in the database" or len(list((tmp_path / "out" / WORK).rglob("w*.json"))) == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            return admit(*arguments)

        admit = folder.Register.admitted
        target = (folder, "_write_database") if place == "in the database" else (folder.Register, "admitted")
        monkeypatch.setattr(*target, kill)
        build_world(chosen, silent)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    saved = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / WORK).rglob("w*.json")}
    assert len(saved) == (5 if place == "in the database" else 2)

    def check(done, total, tally):
        assert all(path.stat().st_mtime_ns == stamp for path, stamp in saved.items())

    assert build_world(chosen, check) == uncut


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RlfError, match="holds other files"):
        build_world(settings(tmp_path), silent)


@pytest.mark.parametrize("content", [b'{"tasks"', b"{}", b"[]", b"null", b"\xff", b'{"tasks": 3}'])
def test_a_damaged_part_of_an_earlier_build_is_made_again(tmp_path, caplog, cut_off, uncut, content):
    out = shutil.copytree(cut_off, tmp_path / "out")
    parts = sorted((out / WORK).rglob("w*.json"))
    parts[1].write_bytes(content)
    assert build_world(settings(out), silent) == uncut
    assert f"{parts[1]}: the part is damaged and is made again: " in caplog.text


def interrupt(*_):
    raise KeyboardInterrupt


def test_two_builds_do_not_write_one_folder(tmp_path, monkeypatch):
    chosen = settings(tmp_path / "out")

    def build_beside(*arguments):
        with pytest.raises(RlfError, match=r"another build is at work there. Wait for it, or name another folder"):
            build_world(settings(tmp_path / "out", build={"seed": 1}), silent)
        write(*arguments)

    write = folder._write_world
    monkeypatch.setattr(folder, "_write_world", build_beside)
    assert build_world(chosen, silent).holds


def test_a_place_that_takes_no_folder_is_named():
    with pytest.raises(RlfError, match=r"/proc/world: no folder can be made there. Name another one with `out`"):
        build_world(settings("/proc/world"), silent)


def test_rows_of_ftrl_score_as_the_world_does(world, ftrl):
    _, tasks = read_world(world)
    rows = {}
    for path in ftrl:
        rows |= {row["id"]: row for row in map(json.loads, path.read_text(encoding="utf-8").splitlines())}
    assert list(rows) == [task.id for task in tasks]
    for task in tasks[::3]:
        row = rows[task.id]
        codes, golds = json.loads(row["codes"]), json.loads(row["unsolved_set"])
        documents = {tool["function"]["name"]: tool["function"] for tool in json.loads(row["tools"])}
        assert set(documents) == set(codes) == set(task.tools)
        findings = []
        for step in task.steps:
            arguments = step.filled([each.gold for each in task.steps])
            space = {}
            exec(codes[step.tool], space)
            findings.append(
                Finding(step.tool, text_keys(to_text(space[step.tool](**arguments))), value_keys(arguments))
            )
        assert count_solved(findings, keyed_golds(golds)) == len(task.steps)


def call_as_ftrl(name, arguments, code):
    """What FTRL shows of a call: the code runs in the scope of a function of its own, which is no module."""
    found = {}
    exec(code, {"__builtins__": builtins, "json": json}, found)
    value = eval(name, {"__builtins__": builtins}, found)(**arguments)
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return value if isinstance(value, str) else str(value)


def is_found_by_ftrl(shown, gold):
    """Whether FTRL finds each part of a gold in what a call shows."""
    shown = shown.lower().replace(",", "").strip()
    return all(part.lower().replace(",", "").strip() in shown for part in gold.split(", "))


@pytest.mark.parametrize("function", [0, 1, 3])
def test_ftrls_own_code_runs_every_gold_call_and_finds_its_gold(tmp_path, request, function):
    if function == 3:
        out, paths = request.getfixturevalue("world"), request.getfixturevalue("ftrl")
    else:
        out, scaled = tmp_path / "small", {"function": function, "parameters": 2, "types": 1}
        build_world(settings(out, count=24, complexity=scaled), silent)
        paths = write_ftrl(out)
    _, tasks = read_world(out)
    rows = [json.loads(line) for path in paths for line in path.read_text("utf-8").splitlines()]
    assert {type(step.gold) for task in tasks for step in task.steps} >= {str, int}
    for task, row in zip(tasks, rows, strict=True):
        codes, left = json.loads(row["codes"]), json.loads(row["unsolved_set"])
        for step in task.steps:
            shown = call_as_ftrl(step.tool, step.filled([each.gold for each in task.steps]), codes[step.tool])
            left[step.tool].remove(next(gold for gold in left[step.tool] if is_found_by_ftrl(shown, gold)))
        assert not any(left.values())


MODULE = '''
"""A module as a model writes it."""
from __future__ import annotations
import re, math
from collections import Counter as C
from dataclasses import dataclass
from functools import lru_cache

LIMIT: int = 3
seen = C()

@dataclass
class Town:
    name: str
    size: "int" = LIMIT

@lru_cache
def size(town):
    global calls
    calls = 1
    seen[town] += 1
    return Town(town, size=int(math.sqrt(9)) if re.match("[a-z]", town) else LIMIT)

def countdown(n):
    return [] if n == 0 else [n, *countdown(n - 1)]

def tool(size_of, n: int = LIMIT, **rest):
    """What it does."""
    found = [size(one) for one in (size_of,) if len(seen) < LIMIT]
    return {"town": found[0].name, "size": found[0].size, "down": countdown(n), "calls": calls, "rest": rest}

if __name__ == "__main__":
    print(tool("a"))
'''


def test_a_module_of_any_shape_is_one_function_that_does_the_same():
    source = enclose(ast.parse(MODULE), "tool")
    space = {"__name__": __name__}
    exec(MODULE, space)
    for arguments in ({"size_of": "ulm"}, {"size_of": "Ulm", "n": 1, "more": True}):
        assert call_as_ftrl("tool", arguments, source) == json.dumps(space["tool"](**arguments))
    names = [node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    assert names == ["tool"]


def test_a_module_that_cannot_be_one_function_is_refused_by_its_name():
    with pytest.raises(RlfError, match=r"tool: its source cannot be one function: .*import \*"):
        enclose(ast.parse("from math import *\ndef tool(x):\n    return sqrt(x)"), "tool")


def test_a_code_of_ftrl_fails_with_words_that_help(ftrl):
    row = json.loads(ftrl[0].read_text(encoding="utf-8").splitlines()[0])
    name, code = next(iter(json.loads(row["codes"]).items()))
    space = {}
    exec(code, space)
    schema = next(t["function"] for t in json.loads(row["tools"]) if t["function"]["name"] == name)["parameters"]
    values = {key: schema["properties"][key].get("enum", ["Nobody"])[0] for key in schema["required"]}
    with pytest.raises(LookupError, match=r"no .* has the name 'Nobody'"):
        space[name](**values)


def test_a_build_file_has_its_faults_with_places(project):
    (project / "small.yaml").write_text("build: {kind: graf}\nhops: [4, 2]\nhop: 3\n", encoding="utf-8")
    with pytest.raises(SpecError) as raised:
        load_build(project / "small.yaml")
    text = str(raised.value)
    assert "small.yaml:1:15 build.kind: unknown build kind 'graf'; did you mean 'graph'?" in text
    assert "small.yaml:3:1 hop: unknown key 'hop'" in text
    assert "out: the key 'out' is missing" in text


def test_the_commands_build_show_and_count(project):
    runner = CliRunner()
    counted = runner.invoke(app, ["env", "build", "small.yaml", "--dry-run"])
    assert counted.exit_code == 0 and "tasks/heldout" in counted.output
    assert not (project / "worlds").exists()
    many = runner.invoke(app, ["env", "build", "small.yaml", "build.count=1000000000", "--dry-run"])
    assert many.exit_code == 0 and "1000000000" in many.output
    built = runner.invoke(app, ["env", "build", "small.yaml", "build.count=12", "--json"])
    assert built.exit_code == 0, built.output
    shown = runner.invoke(app, ["env", "show", "worlds/small", "--task", "2"])
    assert shown.exit_code == 0 and "answer (" in shown.output
    assert "[0]" in shown.output
    page = runner.invoke(app, ["env", "show", "worlds/small"])
    assert "no_tool" in page.output and "dropped" not in page.output.partition("gate")[0]


def test_a_gate_that_does_not_hold_is_a_failed_check(project):
    result = CliRunner().invoke(app, ["env", "build", "small.yaml", "gates.spam=0.01"])
    assert result.exit_code == 3
    assert "BROKEN" in result.output


def test_the_spec_of_a_world_has_no_faults(world):
    looked = look(load_spec([world / "spec.yaml"]))
    assert looked.faults == []
    assert {task.kind for task in looked.train} == {"single", "parallel_single", "multi", "parallel_multi"}
    assert all(task.tools for task in looked.train)


def test_gold_calls_made_by_the_executor_have_the_whole_reward(world):
    _, tasks = read_world(world)
    tasks = [task for task in tasks if task.split == "train"]
    rewards = asyncio.run(rewards_of_gold(world / "spec.yaml", tasks))
    assert len(rewards) == len(tasks) and set(rewards.values()) == {(1.0, 1.0)}


def test_rows_of_ftrl_are_tasks_whose_golds_are_read(world, ftrl):
    tasks = load_tasks(str(ftrl[0]), prompt="messages", answer="answer", tools="tools")
    _, built = read_world(world)
    for task, own in zip(tasks, (one for one in built if one.split == "train"), strict=True):
        assert (task.tools, task.messages[0].content, task.answer) == (own.tools, own.question, own.answer)
        assert read_golds(task.columns["unsolved_set"]) == {
            tool: [gold if isinstance(gold, str) else json.dumps(gold) for gold in golds]
            for tool, golds in own.unsolved_set.items()
        }


def test_a_question_with_a_line_separator_is_one_row_and_a_damaged_file_is_named(world, tmp_path):
    copy = tmp_path / "world"
    shutil.copytree(world, copy)
    rows = copy / "train.jsonl"
    text = rows.read_text(encoding="utf-8")
    rows.write_text(text.replace('"question": "', '"question": "\u2028'), encoding="utf-8")
    assert len(read_world(copy)[1]) == len(read_world(world)[1])
    rows.write_text(text[:-20], encoding="utf-8")
    with pytest.raises(RlfError, match="damaged"):
        read_world(copy)
    rows.unlink()
    with pytest.raises(RlfError, match=r"it has no train\.jsonl"):
        read_world(copy)


def edit_line(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


EDITS = {
    "an answer": lambda folder: edit_line(folder / "train.jsonl", '"answer": "', '"answer": "not '),
    "a gold": lambda folder: edit_line(folder / "train.jsonl", '"gold": ', '"gold": 1, "was": '),
    "a question of another split": lambda folder: edit_line(
        folder / "heldout.jsonl", '"question": "', '"question": "O'
    ),
    "a tool's words": lambda folder: edit_line(
        next((folder / "tools").iterdir()), "description: ", "description: Not "
    ),
    "a tool's code": lambda folder: edit_line(folder / "tools.py", "return value", "return 7"),
    "the database": lambda folder: (folder / "world.db").write_bytes((folder / "world.db").read_bytes()[:-1] + b"x"),
    "a file that is gone": lambda folder: (folder / "heldout.jsonl").unlink(),
    "a row of FTRL's": lambda folder: edit_line(folder / "ftrl" / "train.jsonl", '"answer": "', '"answer": "not '),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A small world with FTRL's rows of it; both of its specs are sound."""
    out = tmp_path_factory.mktemp("whole") / "world"
    build_world(settings(out, count=12, build={"worlds": 1}), silent)
    list(write_ftrl(out))
    assert faults_of_spec(out / "spec.yaml") == faults_of_spec(out / "ftrl" / "spec.yaml") == []
    return out


@pytest.mark.parametrize("name", EDITS)
def test_a_spec_over_a_built_world_that_was_edited_has_a_fault_unless_it_allows_that(whole, tmp_path, name):
    copy = shutil.copytree(whole, tmp_path / "world")
    spec = copy / ("ftrl" if "FTRL" in name else "") / "spec.yaml"
    EDITS[name](copy)
    (fault,) = faults_of_spec(spec)
    assert "not as proven" in fault and "rlf env prove" in fault
    if name in ("an answer", "a file that is gone", "a row of FTRL's"):
        assert faults_of_spec(spec, "data.allow_edited=true") == []


CERTIFICATE_EDITS = {
    "a figure": lambda text: text.replace('"gold/f1": ', '"gold/f1": 1', 1),
    "a gate": lambda text: text.replace('"bound": ', '"bound": 1', 1),
    "no gates": lambda text: text.replace('"gates"', '"fates"', 1),
    "its own hash": lambda text: text.replace('"sha256": "', '"sha256": "0', 1),
    "half of it": lambda text: text[: len(text) // 2],
}


@pytest.mark.parametrize("name", CERTIFICATE_EDITS)
@pytest.mark.parametrize("place", ["", "ftrl"])
def test_a_certificate_that_was_edited_is_a_fault_and_is_not_shown(whole, tmp_path, name, place):
    copy = shutil.copytree(whole, tmp_path / "world")
    file, spec = copy / place / "certificate.json", copy / place / "spec.yaml"
    file.write_text(CERTIFICATE_EDITS[name](file.read_text(encoding="utf-8")), encoding="utf-8")
    (fault,) = faults_of_spec(spec)
    assert "certificate.json: not as proven" in fault and "Build it again" in fault
    if name in ("a figure", "half of it"):
        assert faults_of_spec(spec, "data.allow_edited=true") == []
    if not place:
        with pytest.raises(RlfError, match="Build it again"):
            read_world(copy)


def test_a_spec_of_ones_own_over_a_built_worlds_rows_is_held_against_its_certificate(whole, tmp_path):
    copy = shutil.copytree(whole, tmp_path / "world")
    edit_line(copy / "spec.yaml", "learning_rate: 0.0003", "learning_rate: 0.0001")
    assert faults_of_spec(copy / "spec.yaml") == []
    own = tmp_path / "own.yaml"
    spec = {
        "name": "own",
        "model": {"path": "builtin:tiny"},
        "data": {"train": {"path": "world/train.jsonl", "prompt": "question"}},
        "rewards": [{"kind": "rule", "name": "answer", "rule": "exact_match", "weight": 1.0}],
        "train": {"steps": 1, "algorithm": "grpo"},
    }
    own.write_text(json.dumps(spec), encoding="utf-8")
    assert not any("not as proven" in fault for fault in faults_of_spec(own))
    EDITS["an answer"](copy)
    assert sum("not as proven" in fault for fault in faults_of_spec(own)) == 1


def faults_of_spec(spec, *overrides):
    return [str(fault) for fault in look(load_spec([spec], [*overrides])).faults]
