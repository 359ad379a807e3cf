"""`rlf schema`: JSON Schema of the files that people write, for their editors, and of what commands print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from rlf.cli.arguments import AsJson
from rlf.cli.envelope import print_result


def schema(
    role: Annotated[Literal["spec", "tool", "reward", "output"], typer.Argument(help="Which kind of file.")] = "spec",
    folder: Annotated[
        Path | None, typer.Option("--write", metavar="DIR", help="Write a file for each of them there.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the JSON Schema of spec, tool or reward files, every installed kind included, or of what commands print.

    A first line `# yaml-language-server: $schema=PATH` in a file lets editors complete and check it.
    """
    from rlf.apps.schema.outputs import any_schema_text, write_all_schemas

    if folder is not None:
        written = write_all_schemas(folder)
        print_result("schema", written, as_json, "\n".join(map(str, written.files)))
        return
    text = any_schema_text(role)
    print_result("schema", json.loads(text), as_json, text.removesuffix("\n"))
