"""Every example of the guides is a file or a command that works."""

import re
import shlex
from pathlib import Path

import pytest

from rlf.apps.sweep.axes import members_of
from rlf.cli.arguments import split_arguments
from rlf.plan import compile as compile_plan
from rlf.plan.warnings import Subject, find_warnings
from rlf.spec import load_spec
from rlf.spec.inputs import look
from rlf.spec.reader import forget_env_files

GUIDE = Path(__file__).parents[1] / "docs/guides/specs.md"
BLOCK = re.compile(r"^```(?P<language>\w+)(?: (?P<name>\S+))?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [found.groupdict() for found in BLOCK.finditer(GUIDE.read_text(encoding="utf-8"))]
SPECS = [
    block["name"] for block in BLOCKS if (block["name"] or "").startswith("specs/") and block["language"] == "yaml"
]
COMMANDS = [line for block in BLOCKS if block["language"] == "console" for line in block["text"].splitlines()]


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """The guide's files, in the current folder."""
    monkeypatch.chdir(tmp_path)
    for block in BLOCKS:
        if block["name"]:
            path = tmp_path / block["name"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block["text"], encoding="utf-8")
    yield
    forget_env_files()


def right(files, overrides=()):
    loaded = load_spec(files, overrides)
    looked = look(loaded)
    assert looked.faults == []
    warnings = find_warnings(Subject(loaded, looked.train, looked.evaluation))
    assert [one for one in warnings if one.path != "train.prompts_per_step"] == []  # the guide shows a row or two
    return compile_plan(loaded), looked


def test_every_block_is_a_file_or_commands():
    assert all(block["name"] or block["language"] == "console" for block in BLOCKS)


@pytest.mark.parametrize("name", SPECS)
def test_an_example_has_neither_faults_nor_warnings(name):
    right([Path(name)])


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_guide_is_right(command):
    program, verb, *arguments = shlex.split(command)
    assert (program, verb in ("check", "run")) == ("rlf", True)
    file = Path(arguments[arguments.index("--sweep") + 1]) if "--sweep" in arguments else None
    files, overrides = split_arguments([word for word in arguments if word not in ("-m", "--sweep", str(file))])
    members = [()]
    if verb == "run":
        overrides, members = members_of(overrides, file, commas="-m" in arguments)
    hashes = {right(files, [*overrides, *own])[0].plan_hash for own in members}
    assert len(hashes) == len(members)


def test_rows_of_other_projects_become_the_tasks_that_the_guide_says():
    _, searched = right([Path("specs/search_r1.yaml")])
    assert [(task.id, task.answer, task.kind) for task in searched.train] == [("7", ["Ann"], "nq")]
    _, solved = right([Path("specs/ftrl.yaml")])
    assert [(task.tools, task.answer) for task in solved.train] == [(("search",), "3 km")]


def test_the_template_of_the_guide_asks_as_it_says():
    _, looked = right([Path("specs/asked.yaml")])
    first = looked.train[0].messages
    assert [message.role for message in first] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert first[1].content == "Question: Where was Ann born?"
    assert first[-1].content.startswith("Question: ")
