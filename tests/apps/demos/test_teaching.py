"""What a teacher is shown, and where its log-probabilities stand."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rlf.algo.advantages.distillation import Distillation
from rlf.apps.demos.teaching import TeacherPrompts, find_teacher
from rlf.builtin.names import builtin_path
from rlf.chat.encoding import load_tokenizer
from rlf.core.errors import RlfError, SpecError
from rlf.engines.local.model import load_model
from rlf.engines.local.update import Updater
from rlf.runs.plans import check_spec
from rlf.spec import load_spec
from rlf.spec.models import TrainSpec
from rlf.training.batch import make_batch
from rlf.training.harness import build_harness
from rlf.types import (
    CallRecord,
    Message,
    Outcome,
    Score,
    Scored,
    StopReason,
    Task,
    ToolCall,
    ToolResult,
    Trajectory,
    Turn,
)

SPEC = Path(__file__).parents[3] / "specs" / "search.yaml"
TINY = str(builtin_path("tiny"))


@pytest.fixture(scope="module")
def harness():
    return build_harness(load_spec([SPEC], []).spec, load_tokenizer(TINY), lambda level, text: None)


def played(harness, task_id="d1", question="Where was Rin born?", *, result="nothing found", outcome=Outcome.OK):
    """A call, its result, and an answer that is wrong."""
    chat, task = harness.chat, Task(task_id, (Message("user", question),))
    prompt = chat.prompt(task.messages, harness.tools.descriptions)
    said = [list(harness.chat.tokenizer.encode(text, add_special_tokens=False)) for text in ("Rin", result, "Fen")]
    tokens, bounds = list(prompt), []
    for part in said:
        bounds.append((len(tokens), len(tokens) + len(part)))
        tokens += part
    (first, end), (_, seen), (last, over) = bounds
    record = CallRecord(ToolCall("search", {"query": "Rin"}), ToolResult(outcome, result))
    turns = (Turn(first, end, seen, "Rin", (record,)), Turn(last, over, over, "Fen"))
    mask = [first <= at < end or at >= last for at in range(len(tokens))]
    trajectory = Trajectory(
        "t", task, 0, tokens, mask, [-1.0 if on else 0.0 for on in mask], turns, StopReason.ANSWERED, "Fen"
    )
    return Scored(trajectory, (Score("exact", 0.0, 1.0, reason="expected a town"),), 0.0, 0.0)


@pytest.fixture
def solutions(tmp_path):
    path = tmp_path / "d.jsonl"
    call = {"type": "function", "function": {"name": "search", "arguments": '{"query": "Rin born"}'}}
    messages = [
        {"role": "user", "content": "Where was Rin born?"},
        {"role": "assistant", "tool_calls": [call | {"id": "c"}]},
        {"role": "tool", "tool_call_id": "c", "content": "Rin was born in Vell."},
        {"role": "assistant", "content": "Vell"},
    ]
    path.write_text(json.dumps({"id": "d1", "messages": messages}))
    return str(path)


def shown_text(teaching, harness, item):
    rows = teaching.add_rows(make_batch([item]), [item]).teacher_rows
    length = int(rows.batch.lengths_B[0])
    return harness.chat.decode(rows.batch.tokens_BT[0, :length].tolist()), rows


def test_the_teacher_sees_the_solution_in_the_question_and_then_the_policys_own_tokens(harness, solutions):
    item = played(harness, "d1#3", "Where is Rin from?")  # by its id, in a later pass
    text, rows = shown_text(TeacherPrompts(Distillation(demonstrations=solutions), harness, 999), harness, item)
    assert 'Where is Rin from?\n\nSolution:\nsearch {"query": "Rin born"}\nRin was born in Vell.\nVell' in text
    own, start = item.trajectory.tokens, item.trajectory.turns[0].start
    offset = int(rows.offset_B[0])
    length = int(rows.batch.lengths_B[0])
    assert rows.batch.tokens_BT[0, start + offset : length].tolist() == own[start:]
    assert rows.batch.loss_mask_BT[0, start + offset : length].tolist() == item.trajectory.action_mask[start:]
    assert rows.batch.loss_mask_BT.sum() == item.trajectory.num_sampled and bool(rows.is_taught_B[0])


def test_a_solution_is_found_by_the_question_too_and_none_teaches_nothing(harness, solutions):
    teaching = TeacherPrompts(Distillation(demonstrations=solutions), harness, 999)
    assert shown_text(teaching, harness, played(harness, "other"))[1].is_taught_B.tolist() == [True]
    assert shown_text(teaching, harness, played(harness, "other", "Who?"))[1].is_taught_B.tolist() == [False]


def test_the_teacher_sees_what_tools_and_rewards_say_against_the_attempt(harness):
    teaching = TeacherPrompts(Distillation(), harness, 999)
    text, _ = shown_text(teaching, harness, played(harness, result="no such query", outcome=Outcome.TOOL_ERROR))
    assert "An earlier attempt failed:\nno such query\nexpected a town" in text
    fine = replace(played(harness), scores=(Score("exact", 1.0, 1.0, reason="right"),), reward=1.0)
    assert shown_text(teaching, harness, fine)[1].is_taught_B.tolist() == [False]


def test_what_cannot_be_written_again_is_not_taught(harness):
    teaching, item = TeacherPrompts(Distillation(), harness, 999), played(harness)
    own = item.trajectory
    renamed = replace(own, tokens=[own.tokens[1], *own.tokens[1:]])  # another prompt than the chat format writes
    for trajectory in (renamed, replace(own, forks=(own.turns[0].end,))):
        other = replace(item, trajectory=trajectory)
        assert shown_text(teaching, harness, other)[1].is_taught_B.tolist() == [False]
    assert shown_text(TeacherPrompts(Distillation(), harness, 20), harness, item)[1].is_taught_B.tolist() == [False]


def test_the_teachers_logprobs_are_those_of_the_longer_text_at_the_policys_tokens(harness, solutions):
    model = load_model(TINY, dtype=torch.float32, device=torch.device("cpu"))
    estimator = Distillation(demonstrations=solutions, clip=1e6)
    updater = Updater(
        model, TrainSpec(algorithm=estimator, learning_rate=1e-9), temperature=1.0, seed=0, reference=model
    )
    used = [played(harness), played(harness, "x", "Who was it, who came to Fen?"), played(harness, result="ab")]
    batch = TeacherPrompts(estimator, harness, 999).add_rows(make_batch(used), used)
    asked = updater._asked(batch, updater._fixed(batch))

    def plain(tokens):
        ids = torch.tensor(tokens)
        logits = model.logits(model.hidden(ids.unsqueeze(0))[0]).log_softmax(-1)
        return torch.cat([torch.zeros(1), logits[:-1].gather(1, ids[1:, None])[:, 0]]).detach()

    rows = batch.teacher_rows
    for row, item in enumerate(used):
        mask = torch.tensor(item.trajectory.action_mask)
        got = asked.teacher_logprobs_BT[row, : len(mask)][mask]
        if row == 1:
            assert bool(got.isnan().all())
            continue
        length, offset = int(rows.batch.lengths_B[row]), int(rows.offset_B[row])
        theirs = plain(rows.batch.tokens_BT[row, :length].tolist())[offset:][mask]
        torch.testing.assert_close(got, theirs, atol=2e-5, rtol=1e-4)
        own = plain(item.trajectory.tokens)[mask]
        torch.testing.assert_close(asked.old_logprobs_BT[row, : len(mask)][mask], own, atol=2e-5, rtol=1e-4)
    result = updater.update(batch, 1)
    assert result.metrics["teacher/taught"] == pytest.approx(2 / 3) and result.advantages[1] == 0


def test_the_policy_as_its_own_teacher_stays_what_it_was_while_it_learns(harness, solutions):
    model, reference = (load_model(TINY, dtype=torch.float32, device=torch.device("cpu")) for _ in range(2))
    estimator, used = Distillation(demonstrations=solutions), [played(harness)]
    train = TrainSpec(algorithm=estimator, learning_rate=1e-3)
    updater = Updater(model, train, temperature=1.0, seed=0, reference=reference)
    batch = TeacherPrompts(estimator, harness, 999).add_rows(make_batch(used), used)

    def ask():
        asked = updater._asked(batch, updater._fixed(batch))
        return asked.teacher_logprobs_BT[batch.loss_mask_BT], asked.old_logprobs_BT[batch.loss_mask_BT]

    (theirs, own), metrics = ask(), updater.update(batch, 1).metrics
    assert "policy/kl_ref" not in metrics, "the reference is a teacher, and nothing is penalised"
    later, moved = ask()
    assert bool((later == theirs).all()) and not bool((moved == own).any())


def test_another_model_reads_the_rows_as_they_are(harness, tmp_path):
    model, other = (load_model(TINY, dtype=torch.float32, device=torch.device("cpu")) for _ in range(2))
    with torch.no_grad():
        for weight in other.full.parameters():
            weight.mul_(1.01)
    train = TrainSpec(algorithm=Distillation(teacher="m"), learning_rate=1e-9)
    updater = Updater(model, train, temperature=1.0, seed=0, teacher=other)
    item = played(harness)
    split = replace(item, trajectory=replace(item.trajectory, forks=(item.trajectory.turns[0].end,)))
    for used in ([item], [split, item]):
        batch = make_batch(used)
        asked = updater._asked(batch, updater._fixed(batch.by_stretch()).joined(batch))
        mask_BT = batch.loss_mask_BT
        gap_BT = (asked.teacher_logprobs_BT - asked.old_logprobs_BT)[mask_BT]
        assert bool(gap_BT.isfinite().all()) and bool((gap_BT != 0).any())
        same = Updater(model, train, temperature=1.0, seed=0, teacher=model)._asked(
            batch, updater._fixed(batch.by_stretch()).joined(batch)
        )
        assert bool((same.teacher_logprobs_BT == same.old_logprobs_BT)[mask_BT].all())


def test_a_teacher_with_other_tokens_is_refused(tmp_path):
    tokenizer = load_tokenizer(TINY)
    assert find_teacher("builtin:tiny", tokenizer) == TINY
    tokenizer.add_tokens(["<another>"])
    with pytest.raises(RlfError, match="builtin:tiny: has another vocabulary"):
        find_teacher("builtin:tiny", tokenizer)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["train.algorithm={kind: distillation, failures: false}"], "see nothing new"),
        (["train.algorithm={kind: distillation, demonstrations: nowhere.jsonl}"], "demonstrations: nowhere.jsonl"),
        (["train.algorithm={kind: distillation, teacher: ./missing}"], "missing: no such folder"),
        (["train.algorithm={kind: distillation, teacher: OTHER}"], "has another vocabulary"),
        (["train.algorithm=distillation", "+train.kl.sync_every=2", "+model.lora={rank: 4}"], "has no adapters"),
    ],
)
def test_a_teacher_that_cannot_teach_is_a_fault_of_the_spec(overrides, words, tmp_path):
    tokenizer = load_tokenizer(TINY)
    tokenizer.add_tokens(["<another>"])
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    overrides = [text.replace("OTHER", str(tmp_path)) for text in overrides]
    with pytest.raises(SpecError, match=words):
        check_spec([SPEC], overrides)


def test_a_teacher_of_its_own_may_follow_the_policy(tmp_path):
    spec = check_spec([SPEC], ["train.algorithm=distillation", "+train.kl.sync_every=2"]).plan.spec
    assert spec.train.has_reference and spec.train.kl.coef == 0
    other = check_spec([SPEC], ["train.algorithm={kind: distillation, teacher: builtin:tiny}"]).plan.spec
    assert not other.train.has_reference
