"""Steps that imitate demonstrations: which step takes which, as what trajectories, and how their update is set.

A demonstration becomes the trajectory that a policy would have sampled, by the loop that plays rollouts. So batches,
updates, checkpoints, lineage and resumes know nothing of them: what differs is where a step's trajectories come from,
which follows from the run's seed and the step's number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from rlf.apps.demos.rows import DemonstratedTurn, Demonstration, load_demonstrations
from rlf.chat.encoding import markup_ids
from rlf.chat.format import ChatFormat
from rlf.chat.on_disk import read_tokenizer
from rlf.chat.settings import WhenFull
from rlf.core import Fault, RlfError, SpecError
from rlf.core.identity import derive_seed
from rlf.rollout.rollout import ChatPolicy
from rlf.rollout.scripted import WrittenTurn, play_written
from rlf.spec import LoadedSpec, RunSpec
from rlf.spec.model_files import folder_on_disk
from rlf.training.counting import draw_tasks
from rlf.training.harness import Harness, build_chat, chat_policy
from rlf.types import ToolDescription, Trajectory
from rlf.types.score import Scored
from rlf.types.trajectory import StopReason
from rlf.types.world import shown_tools


async def play_demonstration(
    chat: ChatFormat,
    tools: tuple[ToolDescription, ...],
    demonstration: Demonstration,
    *,
    max_total_tokens: int,
    handling: ChatPolicy,
) -> Trajectory:
    """A demonstration as the trajectory that a policy would have sampled, token for token.

    Raises:
        RlfError: the chat format does not write it, or reads something else; or it is longer than a rollout may be.
    """
    task, turns = demonstration.task, demonstration.turns
    _check_text(chat, demonstration)
    script = [_written(chat, turn) for turn in turns]
    # Beyond its end: a summary, where one is asked for that it does not have, and an answer.
    script += [WrittenTurn(chat.write_answer("-"), answer="-")] * 2
    results = [text for turn in turns for text in (turn.results or [""] * len(turn.calls))]
    trajectory, _ = await play_written(
        chat, tools, task, script, results, max_total_tokens=max_total_tokens, handling=handling
    )
    if trajectory.stop is StopReason.LENGTH:
        raise RlfError(
            f"demonstration {task.id}: it has more tokens than `rollout.max_total_tokens`, {max_total_tokens}. Raise "
            "that, or leave it out."
        )
    ends_with_calls = bool(turns[-1].calls)
    played = trajectory.turns[: len(turns)] if ends_with_calls else trajectory.turns
    read = [(tuple(record.call for record in turn.calls), bool(turn.failures)) for turn in played]
    wanted = [(turn.calls, False) for turn in turns]
    if read != wanted or not (ends_with_calls or trajectory.answer == turns[-1].content.strip()):
        last = min(len(read), len(wanted)) - 1
        at = next((k for k, (one, other) in enumerate(zip(read, wanted, strict=False)) if one != other), last)
        why = f"chat format {chat.name} reads something else in it"
        if handling.context is not None and handling.context.when_full is WhenFull.SUMMARIZE:
            why = "a summary stands where the context is full, and nowhere else"
        raise RlfError(
            f"demonstration {task.id}: turn {at + 1} is written {played[at].text!r:.200}, and {why}. Leave it out, or "
            "change its text."
        )
    return _cut(trajectory, len(turns)) if ends_with_calls else trajectory


def _cut(trajectory: Trajectory, num_turns: int) -> Trajectory:
    """Its first turns, without what the last of them was answered."""
    kept = trajectory.turns[:num_turns]
    end = kept[-1].end
    return replace(
        trajectory,
        tokens=trajectory.tokens[:end],
        action_mask=trajectory.action_mask[:end],
        rollout_logprobs=trajectory.rollout_logprobs[:end],
        turns=(*kept[:-1], replace(kept[-1], observation_end=end)),
        stop=StopReason.MAX_TURNS,
        answer=None,
        forks=tuple(offset for offset in trajectory.forks if offset < end),
    )


def _written(chat: ChatFormat, turn: DemonstratedTurn) -> WrittenTurn:
    if not turn.calls:
        return WrittenTurn(chat.write_answer(turn.content), turn.thinking, answer=turn.content, reply=turn.reply)
    calls = chat.write_calls(turn.calls)
    return WrittenTurn(f"{turn.content}\n{calls}" if turn.content else calls, turn.thinking, turn.calls)


def _check_text(chat: ChatFormat, demonstration: Demonstration) -> None:
    """Refuses texts that would become special tokens: they could end a turn, or open another role."""
    marks = [str(chat.tokenizer.convert_ids_to_tokens(token)) for token in markup_ids(chat.tokenizer)]
    for number, turn in enumerate(demonstration.turns, start=1):
        texts = f"{turn.content}\n{turn.thinking}\n{[dict(call.arguments) for call in turn.calls]}"
        if (mark := next((mark for mark in marks if len(mark) > 1 and mark in texts), None)) is not None:
            raise RlfError(
                f"demonstration {demonstration.task.id}: the text of turn {number} holds {mark!r}, a special token of "
                "the model. Leave it out, or change its text."
            )


_MAX_SHOWN = 5
"""Demonstrations whose faults are named."""


class StepDemonstrations:
    """The demonstrations of a run."""

    def __init__(self, spec: RunSpec, harness: Harness) -> None:
        """Reads them. Raises SpecError where a row is none."""
        settings = spec.data.demonstrations
        assert settings is not None, "a spec without demonstrations"
        shown = load_demonstrations(settings.path, settings.limit)
        cut = len(shown) - settings.heldout
        self._rows, self._heldout = shown[:cut], shown[cut:]
        self._by_task = {one.task.id: one for one in self._rows}
        self._harness, self._seed, self._per_step = harness, derive_seed(spec.seed, "demonstrations"), settings.per_step
        self.num_steps = min(settings.steps or spec.train.steps, spec.train.steps)
        """Steps, the first of the run, that imitate them."""
        self._played: dict[str, Scored] = {}

    async def of_step(self, step: int) -> list[Scored]:
        """The trajectories of a step, from 1. Raises RlfError for one that cannot be written."""
        drawn = draw_tasks([one.task for one in self._rows], self._seed, (step - 1) * self._per_step, self._per_step)
        found = []
        for position, task in drawn:  # of a later pass, the task's id ends with the pass
            number = position // len(self._rows)
            scored = await self._play(self._by_task[task.id.removesuffix(f"#{number}") if number else task.id])
            found.append(replace(scored, trajectory=replace(scored.trajectory, id=f"demonstration/{position}")))
        return found

    async def heldout(self) -> list[Scored]:
        """Those that no step imitates."""
        return [await self._play(one) for one in self._heldout]

    async def _play(self, one: Demonstration) -> Scored:
        if one.task.id not in self._played:
            harness, most = self._harness, self._harness.limits.max_total_tokens
            trajectory = await _play(harness.chat, harness.tools.descriptions, one, most, harness.handling)
            self._played[one.task.id] = Scored(trajectory, scores=(), reward=1.0, success=None)
        return self._played[one.task.id]


def find_demonstration_faults(loaded: LoadedSpec) -> list[Fault]:
    """The faults of the demonstrations of a checked spec, where they are; of their texts those of the first few."""
    spec, shown, here = loaded.spec, loaded.spec.data.demonstrations, ("data", "demonstrations")
    assert shown is not None, "a spec without demonstrations"
    try:
        rows = load_demonstrations(
            shown.path, shown.limit, declared=spec.tool_names, describes_tools=spec.env is not None
        )
    except SpecError as error:
        return [loaded.fault((*here, "path"), f"{fault.place}: {fault.message}") for fault in error.faults]
    if len(rows) <= shown.heldout:
        message = f"got {shown.heldout} of {len(rows)} demonstrations, so that none is left to imitate. Write less."
        return [loaded.fault((*here, "heldout"), message)]
    unwritable = [found for found in play_each(spec, rows) or () if isinstance(found, str)]
    return [loaded.fault((*here, "path"), words) for words in unwritable[:_MAX_SHOWN]]


def play_each(spec: RunSpec, rows: Sequence[Demonstration]) -> list[Trajectory | str] | None:
    """Each row as a trajectory, or why it is none; None where the tokenizer is not on this machine."""
    folder = folder_on_disk(spec.model.path)
    tokenizer = None if folder is None else read_tokenizer(folder)
    if tokenizer is None:
        return None
    chat = build_chat(spec, tokenizer)
    handling, most = chat_policy(spec, chat), spec.rollout.max_total_tokens

    async def play(one: Demonstration) -> Trajectory | str:
        try:
            return await _play(chat, spec.shown_tools, one, most, handling)
        except RlfError as error:
            return str(error)

    async def play_all() -> list[Trajectory | str]:
        return [await play(one) for one in rows]

    return asyncio.run(play_all())


async def _play(
    chat: ChatFormat, declared: Sequence[ToolDescription], one: Demonstration, max_tokens: int, handling: ChatPolicy
) -> Trajectory:
    return await play_demonstration(chat, _tools_of(one, declared), one, max_total_tokens=max_tokens, handling=handling)


def _tools_of(one: Demonstration, declared: Sequence[ToolDescription]) -> tuple[ToolDescription, ...]:
    """What the model is shown: the declared tools, as in rollouts, or those of a row that describes others."""
    known = {tool.name for tool in declared}
    if one.tools is not None and any(tool.name not in known for tool in one.tools):
        return one.tools
    return shown_tools(None, declared, one.task)
