"""What would end a job after minutes is told before anything is started."""

from __future__ import annotations

import pytest

from rlf.core import RlfError
from rlf.testing.vision import make_tiny_llava

from .test_engine import place, start

TOOL = """
import sys
if "rlf.tools.python.worker" in sys.orig_argv:
    raise ImportError("no licence in this process")
def look(query: str) -> str:
    return query
"""


def test_an_agent_that_cannot_be_imported_there(tmp_path):
    broken = tmp_path / "site" / "pydantic.py"
    broken.parent.mkdir()
    broken.write_text("raise ImportError('pydantic is half installed')\n")
    there = place().model_copy(update={"paths": (str(broken.parent), *place().paths)})
    with pytest.raises(RlfError, match="cannot report what it has: ImportError: pydantic is half installed"):
        start(tmp_path / "runs", at=there)
    assert list(tmp_path.glob("runs/*/job")) == []


def test_a_model_whose_processor_does_not_load_there(tmp_path):
    pytest.importorskip("PIL")
    model = make_tiny_llava(tmp_path / "model")
    (model / "processor_config.json").unlink()
    extra = [f"model.path={model}", "+rollout.max_images=1", "+engine.packing=false"]
    with pytest.raises(RlfError, match=r"cannot report what it has: model\.path: "):
        start(tmp_path / "runs", extra=extra)
    assert list(tmp_path.glob("runs/*/job")) == []


def test_a_tool_that_does_not_open(tmp_path):
    (tmp_path / "look.py").write_text(TOOL)
    tool = (
        "tools.0={name: look, description: Look., inputSchema: {type: object, properties: {query: {type: string}}, "
        f"required: [query]}}, target: {{kind: python, callable: '{tmp_path}/look.py:look', isolation: process}}}}"
    )
    with pytest.raises(RlfError, match="no licence in this process"):
        start(tmp_path / "runs", extra=[tool])
    assert list(tmp_path.glob("runs/*/job")) == []
