"""Every format through the real loop, the real executor and the training batch."""

import asyncio
import random
from contextlib import suppress
from pathlib import Path

import pytest

from rlf.chat import FORMATS
from rlf.core import RlfError
from rlf.rollout import Rollout, RolloutLimits, Setting, play
from rlf.rollout.scripted import ScriptedPolicy
from rlf.tools import Executor, ToolDeclaration
from rlf.training.batch import make_batch
from rlf.types import (
    Finish,
    Message,
    Outcome,
    Sampling,
    Scored,
    StopReason,
    Task,
    ToolCall,
    ToolDescription,
    Trajectory,
)
from rlf.types.policy import Sample as Sampled

from .conftest import build_format
from .mutants import OPERATORS, Sample

TURNS = 4
COMPLETIONS = 200
NAMES_NO_TOOL = {"code_fence", "search_r1"}
"""Formats with one tool and one text, whose calls can be wrong in no other way than unreadable."""
QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}


def over_search(name):
    """A format over its family's tokenizer, for one tool."""
    return FORMATS.get(name)(build_format(name).tokenizer, [ToolDescription("search", "Find a passage.", QUERY)])


def search():
    """A declared tool that says what it is asked."""
    toolbox = Path(__file__).parents[1] / "tools" / "toolbox.py"
    target = {"kind": "python", "callable": f"{toolbox}:echo"}
    return ToolDeclaration.model_validate(
        {"name": "search", "description": "Find a passage.", "inputSchema": QUERY, "target": target}
    )


def played(chat, policy, num_trajectories, **limits):
    """The trajectories of one collection, side by side."""
    limits = RolloutLimits(**{"max_turns": TURNS, "max_total_tokens": 99_999, "max_parse_failures": 9} | limits)

    async def main():
        async with Executor([search()]) as tools:
            sampling = Sampling(stop_token_ids=chat.stop_token_ids, stop_strings=chat.stop_strings)
            setting = Setting(policy, chat, tools, limits, sampling)
            task = Task("t", (Message("user", "Where?"),))
            names = [str(number) for number in range(num_trajectories)]
            policy.open(names)
            return await asyncio.gather(*(play(Rollout(name, task, 0, seed=0), setting) for name in names))

    return asyncio.run(main())


class AnyTokens:
    """Samples any ids of the vocabulary, as a model at high temperature does; some turns hold a good call."""

    def __init__(self, chat):
        self._chat = chat
        self._random = random.Random(0)
        call = chat.write_call(ToolCall("search", {"query": "a"}))
        self._call = chat.tokenizer.encode(call, add_special_tokens=False)
        self.sampled = {}

    def open(self, trajectory_ids):
        self.sampled = {name: [] for name in trajectory_ids}

    async def sample(self, request):
        draw = self._random
        stops = self._chat.stop_token_ids
        tokens = draw.choices(range(len(self._chat.tokenizer)), k=draw.randrange(30))
        tokens = [token for token in tokens if token not in stops] if draw.random() < 0.75 else []
        tokens += self._call if draw.random() < 0.5 else []
        tokens += [] if tokens and tokens[-1] in stops else stops[:1]
        logprobs = [-draw.random() for _ in tokens]
        self.sampled[request.trajectory_id].append(tokens)
        return Sampled(tokens, logprobs, Finish.STOP)

    def release(self, trajectory_id):
        """Holds what was sampled, for the comparison."""


@pytest.mark.parametrize("name", FORMATS.names())
def test_hundreds_of_completions_are_in_the_batch_bit_by_bit(name):
    chat = over_search(name)
    policy = AnyTokens(chat)
    trajectories = []
    while (num := sum(len(trajectory.turns) for trajectory in trajectories)) < COMPLETIONS:
        part = played(chat, policy, 50)
        batch = make_batch([Scored(trajectory, (), 0.0, None) for trajectory in part])
        for row, trajectory in enumerate(part):
            sampled = [token for tokens in policy.sampled[trajectory.id] for token in tokens]
            assert batch.tokens_BT[row][batch.loss_mask_BT[row]].tolist() == sampled
            assert batch.tokens_BT[row, : batch.lengths_B[row]].tolist() == list(trajectory.tokens)
        trajectories += part
    turns = [(t.tokens[turn.start : turn.end], turn.text) for t in trajectories for turn in t.turns]
    drifting = sum(chat.tokenizer.encode(text, add_special_tokens=False) != list(tokens) for tokens, text in turns)
    assert num >= COMPLETIONS and drifting > COMPLETIONS / 2, "text would not have brought these tokens back"
    assert any(t.calls for t in trajectories) and any(t.failures for t in trajectories)


@pytest.mark.parametrize("name", FORMATS.names())
def test_malformed_calls_are_answered_with_what_to_do_and_the_rollout_goes_on(name):
    chat = over_search(name)
    end = chat.decode(chat.stop_token_ids[:1])
    turns = [text + ("" if text.endswith(end) else end) for text in _malformed(chat)]
    answer = chat.write_answer("It is Vell.") + end
    script = {str(number): [turn, answer] for number, turn in enumerate(turns)}
    trajectories = played(chat, ScriptedPolicy(chat.tokenizer, script), len(turns), max_turns=2)
    assert len(trajectories) > 100
    assert not [trajectory.error for trajectory in trajectories if trajectory.error]
    outcomes = {record.result.outcome for trajectory in trajectories for record in trajectory.calls}
    answers = {Outcome.OK} if name in NAMES_NO_TOOL else {Outcome.OK, Outcome.UNKNOWN_TOOL, Outcome.INVALID_ARGUMENTS}
    assert outcomes == answers
    for trajectory in trajectories:
        _assert_answered(chat, trajectory)


def _malformed(chat):
    """Calls spoiled by every operator, and calls that are well written and wrong."""
    queries = ("Vell", 'a "quoted" { word', "two\nlines")
    wrong = [("searhc", {"query": "a"}), ("", {}), ("search", {}), ("search", {"query": 3}), ("search", {"q": "a"})]
    wrong += [("search", {"query": None}), ("search", {"query": ["a"]}), ("search", {"query": "a", "timeout": 1e9})]
    texts = []
    for name, arguments in wrong:
        with suppress(RlfError):  # what the format cannot write, nobody can sample well written
            texts.append(chat.write_call(ToolCall(name, arguments)))
    for query in queries:
        text = chat.write_call(ToolCall("search", {"query": query}))
        for operator in OPERATORS:
            sample = Sample(text, "search", (query,), chat.thinking_marks)
            texts += [operator.mutate(sample, random.Random(seed)) for seed in range(3)]
    return texts


def _assert_answered(chat, trajectory: Trajectory):
    """What went wrong in a turn is told to the model in the next observation, in words."""
    first = trajectory.turns[0]
    observed = " ".join(chat.decode(trajectory.tokens[first.end : first.observation_end]).split())
    if trajectory.stop is StopReason.ANSWERED and len(trajectory.turns) == 1:
        return  # read as an answer: nothing was asked for
    assert len(trajectory.turns) == 2, trajectory.stop
    failures = [failure.message for failure in first.failures]
    results = [record.result.text for record in first.calls]
    assert all(text.split()[0] in observed for text in results), observed
    assert results or any(" ".join(message.split()[:3]) in observed for message in failures), observed
