"""JSON Schemas: of the files that people write, and of what commands print."""

from __future__ import annotations

from pathlib import Path

from rlf.api.output_schema import output_schema_text
from rlf.spec.meaning import schema

OUTPUT = "output"


def schema_text(role: str) -> str:
    """The schema of spec, tool or reward files, or of what commands print with `--json`."""
    return output_schema_text() if role == OUTPUT else schema.schema_text(role)


def write_schemas(folder: Path) -> list[Path]:
    """Writes a file for each of them."""
    paths = [*schema.write_schemas(folder), folder / f"{OUTPUT}.json"]
    paths[-1].write_text(output_schema_text(), encoding="utf-8")
    return paths
