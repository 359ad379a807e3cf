"""Rows that bring their tools, and a class that answers them."""

import json
import tempfile
from contextlib import contextmanager
from pathlib import Path

from rlf.types import ToolCall

from ._subject import Subject

FILE = Path(__file__).parents[1] / "row_worlds.py"
ROW = {"prompt": "Go.", "tools": [{"name": name, "parameters": {"type": "object"}} for name in ("add", "do")]}


@contextmanager
def made():
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder, "rows.jsonl")
        rows.write_text(json.dumps(ROW))
        yield Subject(
            {"kind": "rows", "rows": [str(rows)], "callable": f"{FILE}:Adder", "scores": ["exact", "written"]},
            solve=[ToolCall("add", {"amount": 1}), ToolCall("add", {"amount": 2})],
            score="exact",
            hang=[ToolCall("do", {"what": "hang"})],
            breaks=[ToolCall("do", {"what": "break"})],
            says="RuntimeError: the world is broken",
        )


SUBJECTS = {"process": made}
