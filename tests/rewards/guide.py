"""A guide's code blocks: files of a project that is written out, and commands that are run in it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from typer.testing import CliRunner

from rlf.cli import app
from rlf.plan.warnings import Subject, find_warnings
from rlf.spec import load_spec
from rlf.spec.inputs import look
from rlf.spec.load import LoadedSpec

_BLOCK = re.compile(r"^```(?P<language>\w+)(?: (?P<name>\S+))?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


class Guide:
    """`docs/guides/<name>.md`."""

    def __init__(self, name: str) -> None:
        self.text = (Path(__file__).parents[2] / f"docs/guides/{name}.md").read_text(encoding="utf-8")
        blocks = [found.groupdict() for found in _BLOCK.finditer(self.text)]
        self.files = {block["name"]: block["text"] for block in blocks if block["name"]}
        self.specs = [name for name in self.files if re.fullmatch(r"specs/\w+\.yaml", name)]
        shown = "".join(block["text"] for block in blocks if block["language"] == "console")
        self.commands = shown.splitlines()
        assert self.specs and self.commands

    def write(self, folder: Path) -> None:
        """Writes the files."""
        for name, text in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def flawless(name: str) -> LoadedSpec:
    """A spec of the working folder, which has neither faults nor warnings."""
    loaded = load_spec([Path(name)])
    looked = look(loaded)
    assert looked.faults == []
    warnings = find_warnings(Subject(loaded, looked.train, looked.evaluation))
    assert [one for one in warnings if one.path != "train.prompts_per_step"] == []  # the guide shows a row or two
    return loaded


def ends_well(command: str) -> None:
    """Runs `rlf ...`."""
    result = CliRunner().invoke(app, shlex.split(command)[1:])
    assert result.exit_code == 0, result.output
