"""Every command and option is told in the documents."""

from __future__ import annotations

from pathlib import Path

import typer

from rlf.cli.commands import COMMANDS, HOMES
from rlf.cli.main import app

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
TOLD = (REPOSITORY / "docs/commands.md").read_text(encoding="utf-8")


def test_every_command_is_in_the_readme() -> None:
    assert {name for name in COMMANDS if f"`rlf {name}" not in README} == set()


def test_every_command_that_takes_a_spec_takes_overrides_of_it() -> None:
    commands = typer.main.get_group(app)
    for words in HOMES:
        context, command = typer.Context(commands), commands
        for word in words.split():
            command = command.get_command(context, word)  # type: ignore[attr-defined,assignment,union-attr]
        assert command is not None
        texts = [parameter.metavar or "" for parameter in command.params if parameter.param_type_name == "argument"]
        assert "SPEC" not in " ".join(texts) or "KEY=VALUE" in " ".join(texts), words


def test_every_option_of_the_plan_is_reported() -> None:
    command = typer.main.get_group(app).get_command(None, "plan")  # type: ignore[arg-type]
    assert command is not None
    options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
    assert {option for option in options - {"--json", "--help"} if option not in TOLD} == set()


def test_the_formulas_are_those_of_the_code() -> None:
    from rlf.engines.local import memory

    source = Path(memory.__file__).read_text(encoding="utf-8")
    for formula in (
        "threads x N x (L x (6 H + 5 Q + 4 K + 4 F) + 5 H) x bytes",
        "2 x L x slots x K x max_total_tokens",
    ):
        assert formula in source and formula in TOLD
