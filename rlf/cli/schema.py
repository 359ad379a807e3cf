"""`rlf schema`: JSON Schema of the files that people write, for their editors."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rlf.cli.arguments import AsJson
from rlf.cli.envelope import print_envelope


class Role(StrEnum):
    """What a file is."""

    SPEC = "spec"
    TOOL = "tool"
    REWARD = "reward"
    OUTPUT = "output"
    """What commands print with `--json`."""


def schema(
    role: Annotated[Role, typer.Argument(help="Which kind of file.")] = Role.SPEC,
    folder: Annotated[
        Path | None,
        typer.Option("--write", metavar="DIR", help="Write a file for each of them there."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the JSON Schema of spec, tool or reward files, every installed kind included, or of what commands print.

    A first line `# yaml-language-server: $schema=PATH` in a file lets editors complete and check it.
    """
    if folder is not None:
        paths = _write(folder)
        if as_json:
            print_envelope("schema", {"files": paths})
        else:
            print("\n".join(str(path) for path in paths))
    elif as_json:
        print_envelope("schema", json.loads(_text(role)))
    else:
        print(_text(role), end="")


def _text(role: Role) -> str:
    from rlf.cli.output_schema import output_schema_text
    from rlf.spec.meaning.schema import schema_text

    return output_schema_text() if role is Role.OUTPUT else schema_text(role)


def _write(folder: Path) -> list[Path]:
    from rlf.cli.output_schema import output_schema_text
    from rlf.spec.meaning.schema import write_schemas

    paths = [*write_schemas(folder), folder / f"{Role.OUTPUT}.json"]
    paths[-1].write_text(output_schema_text(), encoding="utf-8")
    return paths
