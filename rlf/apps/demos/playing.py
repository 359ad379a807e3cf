"""Demonstrations as the trajectories that a policy would have sampled, token for token, by the loop of rollouts."""

from __future__ import annotations

from dataclasses import replace

from rlf.apps.demos.rows import DemonstratedTurn, Demonstration
from rlf.chat.encoding import markup_ids
from rlf.chat.format import ChatFormat
from rlf.chat.settings import WhenFull
from rlf.core import RlfError
from rlf.rollout.rollout import ChatPolicy
from rlf.rollout.scripted import WrittenTurn, play_written
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
