"""The real OpenRLHF job on this CPU: trainer, Ray, DeepSpeed, agent and tools, with a stand-in for vLLM."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlf.api.rehearsals import rehearse
from rlf.core import RlfError
from rlf.core.supervise import descendants
from rlf.engines.openrlhf.rehearse_env import rehearsal_environment

ROOT = Path(__file__).parents[3]
FAULTS = Path(__file__).with_name("faults.yaml")


@pytest.mark.skipif(
    not rehearsal_environment().is_ready(vllm=False),
    reason="THE OPENRLHF JOB IS NOT REHEARSED: its environment is not there (rlf rehearse --setup makes it)",
)
def test_the_real_job_goes_on_whatever_its_tools_do():
    before, told = descendants(os.getpid()), []
    done = rehearse([FAULTS], [], vllm=False, tell=told.append)
    assert [stage.name for stage in done.stages] == [stage.name for stage in told]
    words = {stage.name: stage.words for stage in done.stages}
    assert list(words)[:5] == ["spec", "model", "parts", "ray", "models"]
    assert {"step 1", "step 2", "evaluation after step 0", "evaluation after step 2", "checkpoint"} < set(words)
    calls = words["step 1"] + words["step 2"]
    assert " ok" in calls
    assert " tool_error" in calls
    assert " timeout" in calls
    assert words["tools"] == "each was called"
    assert "16 trajectories" in words["step 1"]
    assert words["model saved"].startswith("it loads; training moved its weights by up to")
    assert {change.key for change in done.changes} >= {"engine.packing", "engine.attention", "train.steps"}
    assert descendants(os.getpid()) - before == set()


def test_a_rehearsal_is_of_openrlhf_jobs_alone():
    with pytest.raises(RlfError, match=r"got local; a rehearsal is of .* Add `engine.kind=openrlhf`"):
        rehearse([ROOT / "specs" / "search.yaml"], [], vllm=False, tell=print)


def test_without_its_environment_a_rehearsal_says_how_to_make_it(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(RlfError, match=r"not there yet\. Make it once with `rlf rehearse --setup --vllm`"):
        rehearse([ROOT / "specs" / "search_openrlhf.yaml"], [], vllm=True, tell=print)
