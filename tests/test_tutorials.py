"""The files of Start and of the tutorials compile, and their commands are commands of rlf."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from rlf.cli import app
from rlf.runs.plans import check_spec

from .pages import commands_of, why_not, write_files_of

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "docs/start.md", *sorted((ROOT / "docs/tutorials").glob("*.md"))]
BLOCK = re.compile(r"^```(?P<language>\w+)(?: (?P<name>\S+))?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [(page, found.groupdict()) for page in PAGES for found in BLOCK.finditer(page.read_text(encoding="utf-8"))]
SPECS = [(page, block["name"]) for page, block in BLOCKS if (block["name"] or "").startswith("specs/")]
COMMANDS = [
    (page, line) for page, block in BLOCKS if block["language"] == "console" for line in block["text"].splitlines()
]
GUIDES = [ROOT / "docs/commands.md", *sorted((ROOT / "docs/guides").glob("*.md"))]
SHELL = re.compile(r"^```(?:console|sh|bash)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# These pages train, which `test_pages.py` runs on request; what only checks and tests is run here.
IN_ORDER = ["tutorials/your-own.md", "tutorials/from-trl.md", "guides/specs.md"]
QUICK = ("rlf check ", "rlf plan ", "rlf tools ")


def write_files(page: Path, folder: Path) -> None:
    for owner, block in BLOCKS:
        if owner == page and block["name"]:
            path = folder / block["name"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block["text"], encoding="utf-8")


def show_page(case) -> str:
    return f"{case[0].stem}: {case[1]}"


def test_every_block_is_a_file_or_commands():
    assert all(block["name"] or block["language"] == "console" for _, block in BLOCKS)


@pytest.mark.parametrize("case", SPECS, ids=show_page)
def test_a_spec_has_no_faults(case, tmp_path, monkeypatch):
    page, name = case
    monkeypatch.chdir(tmp_path)
    write_files(page, tmp_path)
    check_spec([tmp_path / name], [])


@pytest.mark.parametrize("case", COMMANDS, ids=show_page)
def test_a_command_is_one_of_rlf(case):
    program, *words = shlex.split(case[1], comments=True)
    if case[1] == "source .venv/bin/activate":  # what makes `rlf` a command after `make run`
        return
    assert program == "rlf"
    parse_command(words)


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_the_commands_of_a_guide_are_commands_of_rlf(page):
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.strip() for block in SHELL.findall(text) for line in block.splitlines()]
    lines += [line.strip() for line in text.splitlines() if line.startswith("    rlf ")]
    for line in lines:
        if line.startswith("rlf "):
            words = shlex.split(line, comments=True)[1:]
            end = next((place for place, word in enumerate(words) if word in ("|", ">", "&", "&&", ";")), None)
            parse_command([word.strip("[]") for word in words[:end] if word != "..."])


ASKS_FOR_MORE = re.compile(
    r"--setup|--vllm|vllm serve|rlf (web|serve|chat)(?! export)|env (play|serve)|0\.0\.0\.0|https:"
)


@pytest.mark.parametrize(
    "page", [ROOT / "AGENTS.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda page: page.stem
)
def test_a_command_that_asks_for_more_than_a_clone_says_so(page):
    lines = [line for line in commands_of(page.read_text(encoding="utf-8")) if page.parent.name != "reference"]
    assert [line for line in lines if ASKS_FOR_MORE.search(line.partition(" #")[0]) and not why_not(line)] == []


def parse_command(words: list[str]) -> None:
    """Parses the words behind `rlf`; raises click's UsageError for what is no command, option or argument."""
    command = typer.main.get_command(app)
    context = command.make_context("rlf", words)
    while hasattr(command, "resolve_command"):
        name, command, words = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, words, parent=context)


@pytest.mark.parametrize("name", IN_ORDER)
def test_the_commands_of_a_page_that_train_nothing_run_in_order_as_they_stand(name, tmp_path, monkeypatch):
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    write_files_of(text, tmp_path)
    lines = [line for line in commands_of(text) if line.startswith(QUICK)]
    assert lines
    for line in lines:
        done = CliRunner().invoke(app, shlex.split(line, comments=True)[1:])
        assert done.exit_code == 0, f"{line}\n{done.output}"
