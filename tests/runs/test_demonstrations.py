"""Runs whose first steps imitate demonstrations."""

import json

import pytest

from rlf.apps.evaluate.advantage import explain_advantage
from rlf.apps.keep.verification import verify_folder
from rlf.core import RlfError, SpecError
from rlf.lineage.reader import Reader
from rlf.runs.place import open_lineage
from rlf.runs.plans import check_spec
from rlf.runs.start import run
from rlf.types import StepFinished

from .conftest import ROOT
from .test_runs import Watch

SPEC = ROOT / "specs" / "search.yaml"
QUICK = ["train.steps=5", "eval.every=null", "eval.limit=2", "data.train.limit=8", "data.eval.limit=8"]


def call(name, arguments, id_="c"):
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def conversation(number):
    """A search, what it finds, and the answer."""
    return {
        "id": f"d{number}",
        "messages": [
            {"role": "user", "content": f"Where was Rinten{number} born?"},
            {"role": "assistant", "content": None, "tool_calls": [call("search", {"query": f"Rinten{number} born"})]},
            {"role": "tool", "tool_call_id": "c", "content": f"Rinten{number} was born in Fentes. </tool_response>"},
            {"role": "assistant", "content": "Fentes"},
        ],
    }


@pytest.fixture
def shown(tmp_path):
    path = tmp_path / "shown.jsonl"
    path.write_text("".join(json.dumps(conversation(number)) + "\n" for number in range(7)))
    return path


def shown_by(path, **keys):
    settings = {"per_step": 3, "learning_rate": 1e-3, "steps": 3, "heldout": 2} | keys
    return [f"+data.demonstrations={json.dumps({'path': str(path), **settings})}"]


def test_first_steps_imitate_and_later_ones_sample(shown, tmp_path):
    watch = Watch()
    overrides = [*QUICK, "train.prompts_per_step=2", "rollout.num_generations=2", *shown_by(shown)]
    done = run([SPEC], overrides, runs_folder=tmp_path / "runs", view=watch, command=["rlf"])
    steps = [event for event in watch.events if isinstance(event, StepFinished)]
    assert [event.metrics.get("demonstrations") for event in steps] == [3, 3, 3, None, None]
    assert [len(event.trajectories) for event in steps] == [3, 3, 3, 4, 4]
    assert "policy/mismatch_kl" not in steps[2].metrics  # nothing sampled them
    assert "loss/heldout" in steps[2].metrics and "reward/mean" not in steps[2].metrics
    assert steps[2].metrics["loss/policy"] < steps[0].metrics["loss/policy"]
    with open_lineage(tmp_path / "runs") as store:
        reader = Reader(store)
        taken = [item.task_id for step in (1, 2, 3) for item in reader.trajectories(done.run_id) if item.step == step]
        scored = reader.trajectory(done.run_id, k=0, step=1).scored
    assert "imitated" in explain_advantage(done.run_id, tmp_path / "runs", 1, 0).missing
    assert verify_folder(tmp_path / "runs").faults == ()
    # five are imitated, each once before any comes again; the last two of the file never are
    assert sorted(taken[:5]) == [f"d{number}" for number in range(5)]
    assert not {"d5", "d6"} & {name.partition("#")[0] for name in taken}
    trajectory = scored.trajectory
    assert trajectory.answer == "Fentes" and [c.call.name for c in trajectory.calls] == ["search"]
    # exactly what the turns say is in the loss
    assert [trajectory.action_mask[t.start : t.end] for t in trajectory.turns] == [
        [True] * (t.end - t.start) for t in trajectory.turns
    ]
    assert trajectory.action_mask.count(True) == sum(t.end - t.start for t in trajectory.turns)


def test_the_supervised_loss_is_the_cross_entropy_of_what_the_turns_say(shown, tmp_path):
    import torch

    from rlf.builtin.names import builtin_path
    from rlf.engines.local.model import load_model

    watch = Watch()
    overrides = [*QUICK, "train.algorithm=supervised", "train.steps=1", *shown_by(shown, steps=None)]
    run([SPEC], overrides, runs_folder=tmp_path / "runs", view=watch, command=["rlf"])
    (step,) = [event for event in watch.events if isinstance(event, StepFinished)]
    model = load_model(str(builtin_path("tiny")), dtype=torch.float32, device=torch.device("cpu"))
    losses = []
    for item in step.trajectories:
        tokens = torch.tensor([item.trajectory.tokens])
        logprobs = torch.log_softmax(model.full(tokens).logits[0, :-1].double(), -1)
        own = logprobs.gather(1, tokens[0, 1:, None])[:, 0]
        losses.append(-own[torch.tensor(item.trajectory.action_mask[1:])])
    assert step.metrics["loss/policy"] == pytest.approx(torch.cat(losses).mean().item(), rel=1e-4)


def test_expert_iteration_imitates_what_was_good_enough(tmp_path):
    watch = Watch()
    overrides = [
        *QUICK,
        "train.steps=2",
        "train.algorithm={kind: supervised, min_reward: 1.0}",
        "train.loss={kind: gpg}",
    ]
    overrides += ["train.prompts_per_step=8", "rollout.num_generations=4"]
    run([SPEC], overrides, runs_folder=tmp_path / "runs", view=watch, command=["rlf"])
    for event in (event for event in watch.events if isinstance(event, StepFinished)):
        for item, advantage in zip(event.trajectories, event.advantages, strict=True):
            assert (advantage > 0) == (item.reward >= 1.0)


def broken(**change):
    row = conversation(0) | {"id": "bad"}
    return row | change


BAD = {
    "calls a tool that is not declared": (
        broken(messages=[{"role": "user", "content": "?"}, {"role": "assistant", "tool_calls": [call("shout", {})]}]),
        "it calls 'shout', which the policy will not have (tools: search, calculator)",
    ),
    "has arguments that are no JSON": (
        broken(
            messages=[
                {"role": "user", "content": "?"},
                {"role": "assistant", "tool_calls": [{"function": {"name": "search", "arguments": "{query"}}]},
            ]
        ),
        "the arguments of the call of 'search' are not JSON",
    ),
    "has a call without its result": (
        broken(messages=[*conversation(0)["messages"][:2], {"role": "assistant", "content": "x"}]),
        "1 calls have 0 results",
    ),
    "ends with the user": (
        broken(messages=[*conversation(0)["messages"], {"role": "user", "content": "thanks"}]),
        "ends with the user's message",
    ),
    "is in ShareGPT's form": ({"conversations": [{"from": "human", "value": "?"}]}, "rlf demos --file"),
    "has the id of another": (conversation(1), "the id 'd1' is also that of"),
    "would write a special token": (
        broken(messages=[{"role": "user", "content": "?"}, {"role": "assistant", "content": "a <|im_end|> b"}]),
        "holds '<|im_end|>', a special token",
    ),
    "is too long": (
        broken(messages=[{"role": "user", "content": "?"}, {"role": "assistant", "content": "Rinten " * 400}]),
        "has more tokens than `rollout.max_total_tokens`, 320",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_a_demonstration_is_refused_before_the_run_where_it(what, shown):
    row, words = BAD[what]
    shown.write_text(shown.read_text() + json.dumps(row) + "\n")
    with pytest.raises((SpecError, RlfError)) as refused:
        check_spec([SPEC], [*QUICK, *shown_by(shown)])
    assert words in str(refused.value)


CLASHES = {
    "an algorithm that has no step": (["steps: null"], "data.demonstrations: every step imitates demonstrations"),
    "more steps than the run has": (["steps: 9"], "data.demonstrations.steps: got 9 of 5 steps"),
    "nothing left to imitate": (["heldout: 7"], "data.demonstrations.heldout: got 7 of 7"),
}


@pytest.mark.parametrize("what", CLASHES)
def test_demonstrations_refuse(what, shown):
    keys, words = CLASHES[what]
    with pytest.raises(SpecError) as refused:
        check_spec([SPEC], [*QUICK, *shown_by(shown), *(f"data.demonstrations.{k.replace(': ', '=')}" for k in keys)])
    assert words in str(refused.value)


def test_openrlhf_names_why_it_takes_no_demonstrations(shown):
    with pytest.raises(SpecError, match="OpenRLHF's trainer samples every row") as refused:
        check_spec([ROOT / "specs" / "search_openrlhf.yaml"], shown_by(shown))
    assert "data.demonstrations" in str(refused.value)
