"""Specs of the OpenRLHF engine."""

from pathlib import Path

import pytest

from rlf.apps.openrlhf import checks as preflight
from rlf.apps.openrlhf.job import Job
from rlf.spec import load_spec

SPECS = Path(__file__).parents[3] / "specs"
SHIPPED = (
    "search_openrlhf",
    "search_qwen3_lora_one_gpu",
    "search_r1_qwen25_3b",
    "rl_factory_qwen3_4b",
    "ftrl_qwen3_8b",
    "search_r1_two_nodes",
)
"""The specs of this engine."""
JOB = Job(Path("/runs/r/job"), Path("/runs/r/job"))


@pytest.fixture
def load():
    """Loads the shipped search spec with overrides, on this engine."""
    return lambda *overrides: load_spec([SPECS / "search.yaml"], ["engine.kind=openrlhf", *overrides])


@pytest.fixture(autouse=True, scope="session")
def _probed_once():
    """What a place has is asked of it once: it has the same for every test."""
    known, probe = {}, preflight._run_probe

    def remembered(place, source, *arguments):
        key = place.python, place.paths, source, *arguments
        if key not in known:
            known[key] = probe(place, source, *arguments)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preflight, "_run_probe", remembered)
        yield
