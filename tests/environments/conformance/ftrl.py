"""Rows with tools of their own, in the sandbox."""

import json
import tempfile
from contextlib import contextmanager
from pathlib import Path

from rlf.types import Message, Task, ToolCall

from ._subject import Subject

SOURCE = """\
import os, sys, time
def look(what):
    if what == "hang":
        time.sleep(20)
    if what == "leave":
        os._exit(3)
    return {"river": "Orla"}[what]
"""


@contextmanager
def sandboxed():
    document = {
        "name": "look",
        "description": "Look.",
        "parameters": {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]},
    }
    row = {
        "messages": [{"role": "user", "content": "Which river?"}],
        "tools": json.dumps([{"type": "function", "function": document}]),
        "codes": json.dumps({"look": SOURCE}),
        "unsolved_set": json.dumps({"look": ["Orla"]}),
    }
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.jsonl"
        rows.write_text(json.dumps(row) + "\n")
        yield Subject(
            {"kind": "ftrl", "rows": [str(rows)]},
            solve=[ToolCall("look", {"what": "river"})],
            score="solved",
            hang=[ToolCall("look", {"what": "hang"})],
            breaks=[ToolCall("look", {"what": "leave"})],
            says="the world's code ended its process (killed)",
            task=Task("t", (Message("user", "Which river?"),), columns=row),
        )


SUBJECTS = {"sandbox": sandboxed}
