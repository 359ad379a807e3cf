"""docs/loop.py, the algorithm in plain torch, and `rlf run docs/loop.yaml` have the same numbers."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

import rlf

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture
def loop(monkeypatch):
    """The module of docs/loop.py, computing on one thread."""
    found = importlib.util.spec_from_file_location("docs_loop", DOCS / "loop.py")
    module = importlib.util.module_from_spec(found)
    monkeypatch.setitem(sys.modules, "docs_loop", module)
    found.loader.exec_module(module)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield module
    torch.set_num_threads(threads)


def test_the_loop_in_plain_torch_has_the_tokens_advantages_and_losses_of_the_run(loop, tmp_path):
    run = rlf.run(DOCS / "loop.yaml", runs_folder=tmp_path / "runs")
    plain, losses = loop.Loop(), [step.metrics["loss/policy"] for step in run.steps()]
    num_called = 0
    for number in range(1, loop.STEPS + 1):
        trajectories, loss = plain.step(number)
        assert loss == pytest.approx(losses[number - 1], rel=1e-4, abs=1e-6)
        summaries = run.trajectories(phase="train", step=number)
        assert len(summaries) == len(trajectories) == loop.PROMPTS_PER_STEP * loop.NUM_GENERATIONS
        for k, (own, summary) in enumerate(zip(trajectories, summaries, strict=True)):
            theirs = run.trajectory(k, step=number).scored
            assert own.tokens == list(theirs.trajectory.tokens)
            assert own.action_mask == list(theirs.trajectory.action_mask)
            assert own.logprobs == pytest.approx(list(theirs.trajectory.rollout_logprobs), abs=1e-4)
            assert own.reward == theirs.reward
            assert own.advantage == pytest.approx(summary.advantage, abs=1e-5)
            num_called += summary.num_calls
    assert len(losses) == loop.STEPS and all(losses) and num_called > 10


def test_the_loop_is_one_page():
    assert len((DOCS / "loop.py").read_text(encoding="utf-8").splitlines()) <= 150
