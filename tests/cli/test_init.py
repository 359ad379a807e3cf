"""`rlf init`: a project that is right, whose tool works, and that trains."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Callable
from functools import cache
from pathlib import Path

import jsonschema_rs
import pytest
import yaml
from typer.testing import Result

from rlf.apps.init.projects import templates
from rlf.apps.schema import schemas
from rlf.apps.schema.schemas import schema_text
from rlf.apps.servers import stdio
from rlf.cli.commands import HOMES
from tests.warm import MCP, warm_python

from ..metrics import find_metric

Rlf = Callable[..., Result]
OWN_FUNCTION = {"tool_specs/search.yaml", "tools/search.py"}
QUESTIONS = {"reward_specs/right.yaml", "data/questions.jsonl"}
OWN_FILES = {
    "search": OWN_FUNCTION | QUESTIONS,
    "python": {
        *("tool_specs/look_up.yaml", "tools/look_up.py", "reward_specs/right.yaml"),
        *("data/people.csv", "data/train.jsonl", "data/heldout.jsonl"),
    },
    "mcp": {"tool_specs/search.yaml", "servers/passages.py"} | QUESTIONS,
    "sql": {"tool_specs/sql.yaml"} | QUESTIONS,
    "code": {"tool_specs/python.yaml"} | QUESTIONS,
    "shop": set(),
    "cold-start": set(),
    "judge": {"reward_specs/writing.yaml", "data/topics.jsonl", "data/labels.jsonl"},
}
SMALL = (
    *("train.steps=2", "train.prompts_per_step=2", "rollout.num_generations=2"),
    *("rollout.max_new_tokens=24", "eval.limit=2"),
)
_schema_text = cache(schema_text)


@pytest.fixture(autouse=True)
def _schemas_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "schema_text", _schema_text)


@pytest.mark.usefixtures("own_lists")
@pytest.mark.parametrize("template", templates())
def test_a_new_project_checks_tests_its_tool_and_trains(
    template: str, rlf: Rlf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "_find_program", lambda command: warm_python(*MCP) if command == "python" else command)
    made = rlf("init", "mine", "--template", template)
    assert made.exit_code == 0, made.output
    assert made.stdout.endswith("cd mine && rlf run specs/mine.yaml\n")
    monkeypatch.chdir(tmp_path / "mine")
    checked = rlf("check", "specs/mine.yaml")
    assert checked.exit_code == 0, checked.output
    assert "warning" not in checked.output
    if Path("tool_specs").is_dir():
        tested = rlf("tools", "test")
        assert tested.exit_code == 0 and " ok " in tested.stdout, tested.output
    if template != "judge":  # whose judge is a model that takes seconds to start
        tried = rlf("rewards", "test", "specs/mine.yaml")
        assert tried.exit_code == 0, tried.output
    fewer = ["data.demonstrations.steps=1"] if template == "cold-start" else []
    trained = rlf("run", "specs/mine.yaml", *SMALL, *fewer, "--json")
    assert trained.exit_code == 0, trained.output
    events = [json.loads(line) for line in trained.stdout.splitlines()]
    assert [event["data"]["step"] for event in events if event.get("event") == "step"] == [1, 2]
    names = {name for event in events for name in event.get("data", {}).get("metrics", {})}
    assert names and not {name for name in names if find_metric(name) is None}, "a metric that rlf.types.events lacks"


@pytest.mark.parametrize("template", templates())
def test_its_files_are_the_users_own(template: str, rlf: Rlf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = json.loads(rlf("init", "mine", "--template", template, "--json").stdout)["data"]
    expected = {
        ".env.example",
        ".gitignore",
        "README.md",
        "AGENTS.md",
        "specs/mine.yaml",
        "schema/spec.json",
    } | OWN_FILES[template]
    assert expected <= set(data["files"])
    texts = {name: (tmp_path / "mine" / name).read_text(encoding="utf-8") for name in data["files"]}
    assert not [name for name, text in texts.items() if "{{name}}" in text]
    named = re.findall(r"^    (rlf .*?)(?:  |$)", texts["AGENTS.md"], re.MULTILINE)
    assert len(named) == 7 and not [
        line for line in named if not set(HOMES) & {line.split()[1], " ".join(line.split()[1:3])}
    ]
    monkeypatch.chdir(tmp_path / "mine")
    (short,) = (line.split()[2:] for line in named if line.startswith("rlf run "))
    assert rlf("check", *(word for word in short if word != "--json")).exit_code == 0
    assert "runs/" in texts[".gitignore"] and ".env\n" in texts[".gitignore"]
    for folder, role in (("specs", "spec"), ("tool_specs", "tool"), ("reward_specs", "reward")):
        validator = jsonschema_rs.Draft202012Validator(json.loads(texts[f"schema/{role}.json"]))
        for name in (name for name in texts if name.startswith(f"{folder}/")):
            assert f"$schema=../schema/{role}.json" in texts[name]
            # 3e-4 is a number to YAML 1.2 and a text to this reader
            values = yaml.safe_load(texts[name].replace("3e-4", "0.0003"))
            assert validator.is_valid(values), name


def test_five_recipes_are_listed_whose_specs_and_pages_are_there_and_the_tutorial_has_them(rlf: Rlf) -> None:
    root = Path(__file__).parents[2]
    tutorial = (root / "docs/tutorials/which-spec.md").read_text(encoding="utf-8")
    listed = json.loads(rlf("init", "--list", "--json").stdout)["data"]
    assert len(listed) == 5
    for one in listed:
        assert (root / one["spec"]).is_file() and (root / one["page"]).is_file()
        assert one["template"] in templates()
        assert f"| {one['name']} | {one['have']} | " in tutorial and f"| {one['measured']} (" in tutorial
    assert "10 % -> 96 %" in " ".join(rlf("init", "--list").stdout.split())


def test_without_a_name_the_empty_folder_here_is_filled(
    rlf: Rlf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert rlf("init").stdout.endswith("\n\nrlf run specs/here.yaml\n")
    assert (tmp_path / "here/specs/here.yaml").is_file()


def test_a_folder_that_holds_something_is_left_alone(rlf: Rlf, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes").write_text("x")
    result = rlf("init", "mine")
    assert result.exit_code == 2
    assert result.stderr == "mine is there and not empty; a project starts in a new folder. Choose another name.\n"
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("a b",), "got the name 'a b'; expected letters, digits"),
        (
            ("mine", "--template", "serch"),
            "unknown template 'serch'; did you mean 'search'? "
            "(known: code, cold-start, judge, mcp, python, search, shop, sql)",
        ),
    ],
)
def test_a_wrong_name_or_template_makes_nothing(
    arguments: tuple[str, ...], words: str, rlf: Rlf, tmp_path: Path
) -> None:
    result = rlf("init", *arguments)
    assert result.exit_code == 2 and words in result.stderr
    assert list(tmp_path.iterdir()) == []


TABLE = "Craft Name;op erator;mass\n" + "".join(f"Kolu {n};Team {n % 3};{n}.5\n" for n in range(12))


def test_what_the_built_in_model_cannot_copy_is_counted_when_a_project_is_made(rlf: Rlf, tmp_path: Path) -> None:
    (tmp_path / "crafts.csv").write_text(TABLE + "Zoë;one;1\n", encoding="utf-8")
    warning = rlf("init", "mine", "--template", "python", "--data", "crafts.csv").stderr
    assert warning.startswith("warning: 2 of 26 questions, e.g. 'What is the ") and "of Zoë?" in warning
    assert rlf("init", "shipped", "--template", "python").stderr == ""


def test_a_table_of_ones_own_brings_its_tool_and_questions(
    rlf: Rlf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "crafts.csv").write_text(TABLE + ";no name;1\nKolu 3;a second;1\n", encoding="utf-8")
    made = rlf("init", "mine", "--template", "python", "--data", "crafts.csv")
    assert made.exit_code == 0, made.output
    monkeypatch.chdir(tmp_path / "mine")
    assert rlf("check", "specs/mine.yaml").exit_code == 0
    assert rlf("tools", "test").exit_code == 0
    parts = [
        [json.loads(line) for line in Path(f"data/{split}.jsonl").read_text().splitlines()]
        for split in ("train", "heldout")
    ]
    assert [len(part) for part in parts] == [18, 6]
    assert {"question": "What is the mass of Kolu 3?", "answer": "3.5", "column": "mass"} in [*parts[0], *parts[1]]
    names = [{row["question"].rpartition(" of ")[2] for row in part} for part in parts]
    assert not names[0] & names[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name\nBo\n", "expected two or more, each with a name of its own"),
        ("name,age\nBo,3\n", "got 1 rows with a name; expected 8 or more"),
    ],
)
def test_a_table_that_cannot_be_asked_about_is_refused(rlf: Rlf, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "few.csv").write_text(text)
    refused = rlf("init", "mine", "--template", "python", "--data", "few.csv")
    assert refused.exit_code == 2 and message in refused.output and not Path("mine").exists()
    assert rlf("init", "mine", "--template", "sql", "--data", "few.csv").exit_code == 2
    missing = rlf("init", "mine", "--template", "python", "--data", "none.csv").stderr
    assert missing.startswith("none.csv: no such file. Write the path of a .jsonl, .json, .csv, .parquet file.")


def test_the_server_of_a_project_reads_passages_with_line_separators_and_blank_lines(rlf: Rlf, tmp_path: Path) -> None:
    assert rlf("init", "mine", "--template", "mcp").exit_code == 0
    text = "one\u2028two\x85three"
    passages = tmp_path / "mine" / "data" / "passages.jsonl"
    passages.write_text(json.dumps({"text": text}, ensure_ascii=False) + "\n\n", encoding="utf-8")
    assert runpy.run_path(str(tmp_path / "mine" / "servers" / "passages.py"))["TEXTS"] == [text]


def test_the_search_of_a_project_is_ready_before_its_first_call(
    rlf: Rlf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rlf("init", "mine").exit_code == 0
    loaded: list[str] = []
    monkeypatch.setattr("rlf.builtin.encyclopedia.load_index", lambda: loaded.append("index"))
    runpy.run_path(str(tmp_path / "mine" / "tools" / "search.py"))
    assert loaded == ["index"]
