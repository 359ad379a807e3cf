"""What would end a job after minutes is told before anything is started."""

from __future__ import annotations

import sys

import pytest

from rlf.apps.openrlhf import flags as parser
from rlf.apps.openrlhf import settings as versions
from rlf.apps.openrlhf.checks import find_version_complaints
from rlf.apps.openrlhf.rehearsal_place import RehearsalEnvironment
from rlf.core import RlfError, RunError, SpecError
from rlf.plan import compile as compile_plan

from ...vision import make_tiny_llava
from .test_engine import place, start

TOOL = """
import sys
if "rlf.tools.python.processes" in sys.orig_argv:
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


NEWER = '{"openrlhf": "0.11.2", "vllm": "0.32.0+cpu", "ray": "2.55.0", "deepspeed": "0.19.6"}'


def test_another_version_is_refused_with_the_key_that_takes_it_on_purpose():
    why = "vllm is 0.32.0+cpu; jobs are written for 0.29.0 (on purpose: `engine.accept_versions: {vllm: 0.32.0}`)"
    assert find_version_complaints(NEWER, {}) == [why]
    assert find_version_complaints(NEWER, {"vllm": "0.31.0"}) == [why]
    assert find_version_complaints(NEWER, {"vllm": "0.32.0"}) == []
    lacking = NEWER.replace('"0.32.0+cpu"', "null")
    assert find_version_complaints(lacking, {"vllm": "0.32.0"}) == ["vllm is not installed there"]


def test_an_accepted_version_is_of_a_package_that_jobs_need_and_changes_no_plan(load):
    with pytest.raises(SpecError, match="vlm"):
        load("+engine.accept_versions={vlm: 0.32.0}")
    plans = [compile_plan(load(*extra)).plan_hash for extra in ((), ("+engine.accept_versions={vllm: 0.32.0}",))]
    assert plans[0] == plans[1]


def test_a_tool_that_does_not_open(tmp_path):
    (tmp_path / "look.py").write_text(TOOL)
    tool = (
        "tools.0={name: look, description: Look., inputSchema: {type: object, properties: {query: {type: string}}, "
        f"required: [query]}}, target: {{kind: python, callable: '{tmp_path}/look.py:look', isolation: process}}}}"
    )
    with pytest.raises(RlfError, match="no licence in this process"):
        start(tmp_path / "runs", extra=[tool])
    assert list(tmp_path.glob("runs/*/job")) == []


def test_a_python_without_a_wheel_of_openrlhf_is_named_by_the_check_and_the_setup(tmp_path, load, monkeypatch):
    monkeypatch.setattr(versions, "NEWEST_PYTHON", (3, 10))
    monkeypatch.setattr(parser, "has_openrlhf", lambda: False)
    why = f"cannot be installed for Python 3.{sys.version_info.minor}: it has wheels up to 3.10"
    _, (warning,) = parser.check_options(load())
    assert why in warning.message
    with pytest.raises(RunError, match=why):
        RehearsalEnvironment(tmp_path / "environment").setup(vllm=False, tell=str)
