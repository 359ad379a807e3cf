"""What ends a run in the middle of a step, and its resumption to the same numbers, of runs with state of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlf.apps.chaos import chaos as module
from rlf.apps.chaos.chaos import Survival, chaos
from rlf.apps.keep.verification import verify_folder

from .fork import Fork

SPECS = Path(__file__).parents[3] / "specs"
SMALL = ["train.prompts_per_step=2", "rollout.num_generations=4", "eval.limit=2", "data.train.limit=64"]
SEARCH = [*SMALL, "train.learning_rate=1e-3"]
POOLS = [
    "+train.sampler=pools",
    "+train.dynamic_filtering={max_rounds: 2}",
    "+rollout.context={limit: 20, keep_last: 0}",
    "+train.kl={coef: 0.1, sync_every: 2, sync_mix: 0.5}",
]
REMAX = ["train.algorithm=remax", "+train.dynamic_filtering={}", "+train.kl={coef: 0.1, sync_every: 1}"]
IMITATES = {"steps": 1, "per_step": 3, "learning_rate": 1e-2, "heldout": 2}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Demonstrations, which a run imitates in its first step; the teacher is the policy after it."""
    path = tmp_path_factory.mktemp("shown") / "shown.jsonl"
    turns = [{"role": role, "content": "Fentes"} for role in ("user", "assistant")]
    path.write_text("".join(json.dumps({"id": f"d{number}", "messages": turns}) + "\n" for number in range(7)))
    return f"+data.demonstrations={json.dumps({'path': str(path), **IMITATES})}"


@pytest.mark.parametrize(
    ("spec", "overrides", "faults"),
    [
        ("search", SEARCH, "early kill,kill"),
        ("search", [*SEARCH, "+train.staleness=1"], "stop"),
        ("search", [*SEARCH, *POOLS], "kill"),
        ("search", [*SEARCH, "SHOWN", *REMAX], "kill"),
        ("search", [*SEARCH, "SHOWN", "train.algorithm=distillation", "train.loss.kind=gpg"], "kill"),
        ("shop", SMALL, "interrupt"),
    ],
    ids=["plain", "pipelined", "pools and reference", "demonstrations and remax", "teacher", "world"],
)
def test_a_run_that_ends_anywhere_is_resumed_to_the_same_numbers(
    spec: str, overrides: list[str], faults: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.subprocess, "Popen", Fork)
    monkeypatch.setattr(module, "_verify", lambda runs: "; ".join(map(str, verify_folder(runs).faults)))
    changes = [shown if change == "SHOWN" else change for change in overrides]
    found = chaos([SPECS / f"{spec}.yaml"], changes, only=faults.split(","), note=lambda line: None)
    assert found.holds and {(one.verdict, one.is_equal) for one in found.ordeals} == {(Survival.RESUMED, True)}, found
    assert [one.exit_code for one in found.ordeals] == [-9 if "kill" in name else 130 for name in faults.split(",")]
