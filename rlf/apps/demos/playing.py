"""Demonstrations as the trajectories that a policy would have sampled, token for token, by the loop of rollouts."""

from __future__ import annotations

from dataclasses import replace

from rlf.apps.demos.rows import DemonstratedTurn, Demonstration
from rlf.chat.encoding import markup_ids
from rlf.chat.format import ChatFormat
from rlf.chat.policy import WhenFull
from rlf.core import RlfError
from rlf.rollout.recorded import WrittenTurn, play_written
from rlf.rollout.rollout import ChatPolicy
from rlf.types import ToolDescription, Trajectory
from rlf.types.trajectory import StopReason


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
    if turns[-1].calls:  # it ends with calls, after which nothing is sampled
        script.append(WrittenTurn(chat.write_answer("-"), answer="-"))
    results = [text for turn in turns for text in (turn.results or [""] * len(turn.calls))]
    full = handling.context if handling.context and handling.context.when_full is WhenFull.SUMMARIZE else None
    handling = handling if full is None else replace(handling, context=None)
    trajectory, _ = await play_written(
        chat, tools, task, script, results, max_total_tokens=max_total_tokens, handling=handling
    )
    if full is not None and any(turn.start > full.limit for turn in trajectory.turns):
        raise RlfError(
            f"demonstration {task.id}: it is longer than `rollout.context.limit`, {full.limit}, and no summary "
            "of it is written. Leave it out, or raise that."
        )
    if trajectory.stop is StopReason.LENGTH:
        raise RlfError(
            f"demonstration {task.id}: it has more tokens than `rollout.max_total_tokens`, {max_total_tokens}. Raise "
            "that, or leave it out."
        )
    read = [(tuple(record.call for record in turn.calls), bool(turn.failures)) for turn in trajectory.turns]
    wanted = [(turn.calls, False) for turn in script]
    if read != wanted or trajectory.answer != (script[-1].answer or "").strip():
        at = next((k for k, (one, other) in enumerate(zip(read, wanted, strict=False)) if one != other), len(turns) - 1)
        shown = trajectory.turns[min(at, len(trajectory.turns) - 1)].text
        raise RlfError(
            f"demonstration {task.id}: turn {at + 1} is written {shown!r:.200}, and chat format {chat.name} reads "
            "something else in it. Leave it out, or change its text."
        )
    return _without_turn(trajectory) if turns[-1].calls else trajectory


def _without_turn(trajectory: Trajectory) -> Trajectory:
    """Without the last turn, and without what the one before it was answered."""
    kept = trajectory.turns[:-1]
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
