"""`python -m rlf.apps.build.reference [FOLDER]` writes the reference and the JSON Schema of build files."""

from __future__ import annotations

import sys
from pathlib import Path

from rlf.apps.build.kind import BUILD_KINDS, BuildKind, BuildSettings
from rlf.spec.reference import model_page
from rlf.spec.schema import dump_schema, model_schema


def build_files() -> dict[str, str]:
    """The texts by their path below `docs`."""
    schema = dump_schema(model_schema(BuildSettings, "rlf build file"))
    page = model_page("Build files", BuildSettings, BUILD_KINDS, BuildKind, "build: {{kind: {}}}")
    return {"schema/build.json": schema, "reference/build.md": page}


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs")
    for name, text in build_files().items():
        (folder / name).write_text(text, encoding="utf-8")
