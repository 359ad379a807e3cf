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
    from rlf.api.schemas import schema_text, write_schemas

    if folder is not None:
        paths = write_schemas(folder)
        if as_json:
            print_envelope("schema", {"files": paths})
        else:
            print("\n".join(str(path) for path in paths))
    elif as_json:
        print_envelope("schema", json.loads(schema_text(role)))
    else:
        print(schema_text(role), end="")
