import os
import signal
import time
from functools import cache
from pathlib import Path

import pytest
from safetensors.torch import load_file

from rlf.core import RlfError
from rlf.engines.local import checkpoint
from rlf.engines.local.update import Updater
from rlf.lineage.reader import Reader
from rlf.lineage.records import TrajectoryFilter
from rlf.runs.place import open_lineage
from rlf.runs.resume import resume
from rlf.runs.start import run
from rlf.types import EvaluationFinished, RunStatus, StepFinished, StopReason

from ..processes import Process, call_rlf

NUMBERS = ("loss/policy", "policy/grad_norm", "policy/entropy", "policy/mismatch_kl", "reward/mean", "tokens/total")
"""Metrics that depend on the seed alone, not on the clock."""


class Watch:
    """A view that keeps every event, and may do something at one."""

    def __init__(self, at=None):
        self.events, self.info, self.at = [], None, at

    def __call__(self, info):
        self.info = info
        return self.take

    def take(self, event):
        self.events.append(event)
        if self.at is not None:
            self.at(event)


def start(small, folder, watch=None, extra=()):
    files, overrides = small
    return run(files, [*overrides, *extra], runs_folder=folder, view=watch or Watch(), command=["rlf", "run"])


@cache
def history(folder, run_id):
    """Step and evaluation numbers, tokens of every trajectory, and the final weights."""
    with open_lineage(folder) as store:
        reader = Reader(store)
        steps = [(s.step, {n: s.metrics.get(n) for n in NUMBERS}) for s in reader.steps(run_id)]
        evaluations = [(e.step, e.mode, e.metrics.get("success")) for e in reader.evaluations(run_id)]
        heads = [head for head in reader.trajectories(run_id, TrajectoryFilter(phase="train")) if head.k < 8]
        tokens = [one.scored.trajectory.tokens for one in reader.wholes(run_id, heads)]
        assert len(tokens) == 8 * len(steps)
        checkpoint = reader.checkpoints(run_id)[-1].path
    weights = load_file(Path(checkpoint) / "weights.safetensors")
    return steps, evaluations, [list(t) for t in tokens], {n: w.tolist() for n, w in weights.items()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run."""
    from tests.runs.conftest import ROOT, SMALL

    folder = tmp_path_factory.mktemp("whole")
    watch = Watch()
    outcome = start(([ROOT / "specs" / "search.yaml"], SMALL), folder, watch)
    return folder, outcome, watch


def test_a_run_leaves_its_whole_lineage(whole):
    folder, outcome, watch = whole
    assert outcome.status is RunStatus.FINISHED and outcome.step == 6
    with open_lineage(folder) as store:
        reader = Reader(store)
        stored = reader.get_run("latest")
        assert [s.step for s in reader.steps(outcome.run_id)] == [1, 2, 3, 4, 5, 6]
        modes = [(e.step, e.mode) for e in reader.evaluations(outcome.run_id)]
        assert modes == [(s, m) for s in (0, 3, 6) for m in ("greedy", "sampled")]
        roles = {"spec", "tool", "reward", "data", "model", "source", "tokenizer", "template"}
        assert {f.role for f in stored.record.files} == roles
        assert all(len(f.sha256) == 64 for f in stored.record.files)
        assert stored.record.plan_hash == watch.info.plan_hash
        everything = reader.trajectories(outcome.run_id, TrajectoryFilter(phase="train", limit=1000))
        assert len(everything) == 6 * 8
        shown = reader.trajectory(outcome.run_id, k=0, step=1).scored
        emitted = next(e for e in watch.events if isinstance(e, StepFinished)).trajectories[0]
        assert list(shown.trajectory.tokens) == emitted.trajectory.tokens
        assert list(shown.trajectory.action_mask) == emitted.trajectory.action_mask
        assert shown.scores[0].term == "exact_match" and shown.reward == emitted.reward


def test_each_turn_extends_the_tokens_before_it_and_the_mask_marks_the_sampled_ones(whole):
    _, _, watch = whole
    for event in watch.events:
        if not isinstance(event, StepFinished | EvaluationFinished):
            continue
        for scored in event.trajectories:
            t = scored.trajectory
            sampled = [i for turn in t.turns for i in range(turn.start, turn.end)]
            assert [i for i, action in enumerate(t.action_mask) if action] == sampled
            assert all((lp != 0.0) <= action for lp, action in zip(t.rollout_logprobs, t.action_mask, strict=True))
            for turn, following in zip(t.turns, t.turns[1:], strict=False):
                assert turn.observation_end == following.start


def test_the_sampler_and_the_trainer_agree_on_every_sampled_token(whole):
    for event in whole[2].events:
        if isinstance(event, StepFinished):
            assert abs(event.metrics["policy/mismatch_kl"]) < 1e-5


def test_the_final_model_loads_with_transformers(whole):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, outcome, _ = whole
    model = AutoModelForCausalLM.from_pretrained(folder / outcome.run_id / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder / outcome.run_id / "model")
    weights = load_file(folder / outcome.run_id / "checkpoints" / "step-000006" / "weights.safetensors")
    assert all((model.get_parameter(name) == value).all() for name, value in weights.items())
    assert tokenizer.chat_template


def test_the_same_seed_gives_the_same_run_and_another_seed_another(whole, small, tmp_path):
    folder, outcome, _ = whole
    again = start(small, tmp_path, extra=["engine.threads=1"])
    assert history(tmp_path, again.run_id) == history(folder, outcome.run_id)
    other = start(small, tmp_path, extra=["seed=1", "train.steps=1"])
    assert history(tmp_path, other.run_id)[2][:8] != history(folder, outcome.run_id)[2][:8]


def test_a_stop_during_an_update_comes_after_its_step(whole, small, tmp_path, monkeypatch):
    plain_update = Updater.update

    def update(self, batch, step):
        if step == 3:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)
        return plain_update(self, batch, step)

    monkeypatch.setattr(Updater, "update", update)
    outcome = start(small, tmp_path)
    monkeypatch.undo()
    assert (outcome.status, outcome.step) == (RunStatus.INTERRUPTED, 3)
    with open_lineage(tmp_path) as store:
        assert [c.step for c in Reader(store).checkpoints(outcome.run_id)] == [2, 3]
    resume(outcome.run_id, runs_folder=tmp_path, view=Watch(), command=["rlf", "resume"])
    assert history(tmp_path, outcome.run_id) == history(whole[0], whole[1].run_id)


def run_and_be_killed_in_a_checkpoint(moment, *arguments):
    """A run that is killed in the middle of its checkpoint of step 4."""
    plain_sync, plain_rename = checkpoint.sync_path, Path.rename

    def sync(path):
        if "000004" in str(path) and path.name == "weights.safetensors":
            path.write_bytes(path.read_bytes()[:100])
            os.kill(os.getpid(), signal.SIGKILL)
        plain_sync(path)

    def rename(self, target):
        done = plain_rename(self, target)
        if "step-000004" in str(target):
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    if moment == "half of a file":
        checkpoint.sync_path = sync
    else:
        Path.rename = rename
    call_rlf(*arguments)


@pytest.mark.parametrize("moment", ["half of a file", "renamed, and not yet in the lineage"])
def test_a_run_killed_inside_a_checkpoint_write_resumes_to_the_same_numbers(whole, tmp_path, moment):
    from tests.runs.conftest import ROOT, SMALL

    command = ["run", str(ROOT / "specs/search.yaml"), *SMALL, "--runs", str(tmp_path), "--json"]
    with Process(run_and_be_killed_in_a_checkpoint, moment, *command) as killed:
        killed.communicate()
        assert killed.returncode == -signal.SIGKILL
    with open_lineage(tmp_path) as store:
        assert [saved.step for saved in Reader(store).checkpoints(Reader(store).get_run("latest").record.id)] == [2, 3]
    resumed = resume("latest", runs_folder=tmp_path, view=Watch(), command=["rlf", "resume"])
    assert history(tmp_path, resumed.run_id) == history(whole[0], whole[1].run_id)
    folders = [path.name for path in (tmp_path / resumed.run_id / "checkpoints").iterdir()]
    assert sorted(folders) == ["step-000004", "step-000006"], "the newest two, the best among them"


def test_a_finished_run_is_not_resumed(whole):
    with pytest.raises(RlfError, match="finished already"):
        resume("latest", runs_folder=whole[0], view=Watch(), command=["rlf"])


def test_infrastructure_failures_are_recorded_and_left_out_of_the_loss(small, tmp_path):
    spec = tmp_path / "flaky.yaml"
    (tmp_path / "flaky.py").write_text(
        "import zlib\n\n\n"
        "def search(query: str) -> str:\n"
        "    if zlib.crc32(query.encode()) % 4 == 0:  # a quarter of the calls, fewer than a step may lose\n"
        "        raise ConnectionRefusedError('the index is down')\n"
        "    return 'No passage found.'\n"
    )
    spec.write_text(
        f"extends: {small[0][0]}\n"
        "name: flaky\n"
        "tools:\n"
        "  - {name: search, description: Find passages., target: {kind: python, callable: 'flaky.py:search'},\n"
        "     inputSchema: {type: object, properties: {query: {type: string}}, required: [query]}}\n"
    )
    watch = Watch()
    outcome = run([spec], small[1], runs_folder=tmp_path / "runs", view=watch, command=["rlf"])
    assert outcome.status is RunStatus.FINISHED
    steps = [e for e in watch.events if isinstance(e, StepFinished)]
    broken = [
        (scored, advantage)
        for e in steps
        for scored, advantage in zip(e.trajectories, e.advantages, strict=True)
        if scored.trajectory.stop is StopReason.INFRA_FAILURE
    ]
    assert broken, "no call met the broken index"
    assert all(scored.reward is None and advantage is None for scored, advantage in broken)
    assert sum(e.metrics["unscorable"] for e in steps) == len(broken)
