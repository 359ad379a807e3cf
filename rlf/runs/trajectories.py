"""Trajectories as a page shows them: a list by cursor, one in full, its tokens, the answers to one question."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlf.chat.encoding import load_tokenizer
from rlf.core.errors import RlfError
from rlf.core.redact import Redactor
from rlf.core.registry import nearest
from rlf.lineage.reader import Reader
from rlf.lineage.records import (
    TRAIN,
    FoundCall,
    Run,
    RunLine,
    StoredTrajectory,
    TrajectoryFilter,
    TrajectoryLine,
    TrajectoryOrder,
    TrajectorySummary,
)
from rlf.reports.pages.render import Side, side
from rlf.reports.trace import find, find_flipped
from rlf.reports.trajectory import opening
from rlf.spec.model_files import model_location
from rlf.spec.reader import mentioned, read_env_files
from rlf.types import FailureClass, Outcome, RunStatus
from rlf.types.trajectory import Trajectory

if TYPE_CHECKING:
    from rlf.reports.comparison import Comparison

# The openings of a run's prompts, before each question, by the tokenizer of the run's model.


class Openings:
    """Reads the openings of one run's trajectories; the tokenizer is loaded for the first."""

    def __init__(self, run: Run) -> None:
        self._spec = run.record.plan.get("spec", {})
        filled_in = run.record.plan.get("interpolated", ())
        folders = {(Path(run.record.cwd or "") / file.path).parent for file in run.record.files if file.role == "spec"}
        environment = os.environ | read_env_files(folders)
        self.redactor = Redactor(environment, mentioned(item["text"] for item in filled_in))

    def __call__(self, trajectory: Trajectory) -> str:
        """The opening, or what the plan says of it where the tokenizer is not on this machine."""
        if not trajectory.tokens:
            return self._planned_text("its tokens are not kept")
        decode = self.decoder
        if decode is None:
            return self._planned_text("the model's tokenizer is not on this machine")
        return opening(trajectory, decode)

    @cached_property
    def decoder(self) -> Callable[[Sequence[int]], str] | None:
        """Tokens as text without secrets, which ids hold and texts do not; None without a tokenizer."""
        decode = self.plain_decoder
        return None if decode is None else lambda tokens: self.redactor.text(decode(tokens))

    @cached_property
    def plain_decoder(self) -> Callable[[Sequence[int]], str] | None:
        """Tokens as text with the secrets that are in it."""
        from rlf.spec.model_files import folder_on_disk

        path = self._spec.get("model", {}).get("path")
        folder = None if path is None else folder_on_disk(path)
        if folder is None:
            return None
        if (folder / "tokenizer.json").is_file():
            from tokenizers import Tokenizer  # type: ignore[import-untyped]  # ships no stubs

            fast = Tokenizer.from_file(str(folder / "tokenizer.json"))
            return lambda tokens: str(fast.decode(list(tokens), skip_special_tokens=False))
        return _slow_decoder(str(folder))

    def _planned_text(self, why: str) -> str:
        """The system texts and tools that the plan names."""
        data = self._spec.get("data", {})
        texts = {part["system"] for part in data.values() if isinstance(part, dict) and part.get("system")}
        tools = [tool["name"] for tool in self._spec.get("tools", ()) if not tool.get("hidden")]
        lines = [*sorted(texts), *([f"tools: {', '.join(tools)}"] if tools else [])]
        return "\n".join([*lines, f"(as the plan says: {why})"]) if lines else ""


def openings_of(found: Comparison) -> dict[str, Openings]:
    """The openings of each arm's first run, by the arm's letter."""
    return {arm.letter: Openings(arm.members[0].run) for arm in found.arms}


def _slow_decoder(folder: str) -> Callable[[Sequence[int]], str] | None:
    """The decoder of a tokenizer without a fast form; None where there is none either."""
    from rlf.chat.encoding import load_tokenizer

    try:
        tokenizer = load_tokenizer(folder)
    except RlfError:
        return None
    return lambda tokens: str(tokenizer.decode(list(tokens)))


# The tokens of a trajectory as pieces of its text: joined, they are what the tokenizer makes of all of them.

_WINDOW = 16
"""Tokens before a piece that are decoded with it: more than one character ever takes."""
_BROKEN = "\ufffd"


def token_texts(openings: Openings, trajectory: Trajectory) -> list[str]:
    """One text per token; empty for all of them where the tokenizer is not on this machine.

    A character that several tokens make stands with the last of them.
    """
    decode = openings.plain_decoder
    if decode is None:
        return [""] * len(trajectory.tokens)
    return openings.redactor.pieces(list(_split_pieces(trajectory.tokens, decode)))


def _split_pieces(tokens: Sequence[int], decode: Callable[[Sequence[int]], str]) -> Iterator[str]:
    start, given = 0, ""
    for end in range(1, len(tokens) + 1):
        text = decode(tokens[start:end])
        if text.endswith(_BROKEN) and end < len(tokens) and end - start < _WINDOW:
            yield ""
            continue
        yield text[len(given) :]
        start, given = _next_window(tokens, start, end, text, decode)


def _next_window(
    tokens: Sequence[int], start: int, end: int, text: str, decode: Callable[[Sequence[int]], str]
) -> tuple[int, str]:
    """Where decoding continues, and what was returned already: windows keep a decode short."""
    if end - start < _WINDOW:
        return start, text
    return end - 1, decode(tokens[end - 1 : end])


_MAX_SIDES = 64
"""Answers to one question that are read whole."""
_MAX_WALKED = 500
"""Trajectories with a text that are looked through for the neighbours of one."""


@dataclass(frozen=True, slots=True)
class TrajectoryList:
    """Which trajectories a list has."""

    wanted: TrajectoryFilter
    order: TrajectoryOrder = TrajectoryOrder.PLACE
    """Of a list without a text."""
    text: str = ""
    """In prompt, turns or results."""
    flipped: bool = False
    """Only held-out questions whose outcome changed from the first evaluation to the last, as they were tried last."""


@dataclass(frozen=True, slots=True)
class TrajectoryPage:
    """Some of a run's trajectories."""

    run: RunLine
    rows: tuple[TrajectoryLine, ...]
    next: str | None
    """Place of the one behind which the next page begins; None on the last one."""


@dataclass(frozen=True, slots=True)
class TrajectoryView:
    """One trajectory with its neighbours and its group."""

    run: RunLine
    stored: StoredTrajectory
    side: Side
    """It as texts, turn by turn, with the system prompt and the declarations of tools."""
    group: tuple[TrajectorySummary, ...]
    """All answers to its question in the same step or evaluation, by sample."""
    previous: str | None
    """Place of the one before it in the list that it was opened from."""
    next: str | None


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a trajectory."""

    position: int
    id: int
    text: str
    """What it adds to the text; empty for a part of a character that a later one completes."""
    sampled: bool
    """Whether the policy sampled it, so that it is in the loss."""
    logprob: float | None
    """Of the sampler, natural; None where none was recorded."""
    turn: int | None
    """From 1: the turn that it was sampled in, or that it answers; None before the first."""


@dataclass(frozen=True, slots=True)
class TokenPage:
    """Some tokens of a trajectory."""

    num_tokens: int
    num_sampled: int
    tokens: tuple[Token, ...]
    is_decoded: bool
    """Whether the tokenizer is on this machine; texts are empty without it."""


@dataclass(frozen=True, slots=True)
class QuestionAnswers:
    """Answers to one question, whole and side by side."""

    run: RunLine
    task_id: str
    question: str
    gold: str
    sides: tuple[Side, ...]
    summaries: tuple[TrajectorySummary, ...]
    """Aligned with `sides`."""


def place_of(summary: TrajectorySummary) -> str:
    """`train/5/3`: phase, step and position."""
    return f"{summary.phase}/{summary.step}/{summary.k}"


def parse_place(text: str) -> tuple[str, int, int]:
    """Phase, step and position. Raises RlfError where it is no place."""
    phase, *numbers = text.split("/")
    if len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
        raise RlfError(f"after: got {text[:80]!r}; expected PHASE/STEP/K. Send what `next` was.")
    return phase, int(numbers[0]), int(numbers[1])


def page_trajectories(
    reader: Reader, name: str, listed: TrajectoryList, after: str | None, limit: int
) -> TrajectoryPage:
    """The trajectories of a list, a page at a time."""
    run = _read_run_line(reader, name)
    rows = _read_page(reader, run.id, listed, None if after is None else parse_place(after), limit + 1)
    following = place_of(rows[limit - 1].summary) if len(rows) > limit else None
    return TrajectoryPage(run, tuple(rows[:limit]), following)


def _read_page(
    reader: Reader, run_id: str, listed: TrajectoryList, after: tuple[str, int, int] | None, limit: int
) -> Sequence[TrajectoryLine]:
    if not listed.text and not listed.flipped:
        return reader.page(run_id, listed.wanted, listed.order, after, limit)
    if listed.text:
        found = find(reader, run_id, listed.wanted, listed.text, limit, after)
    else:
        found = find_flipped(reader, run_id, limit) if after is None else []
    return [TrajectoryLine(match.summary, match.question) for match in found]


def read_trajectory(
    reader: Reader,
    name: str,
    place: tuple[str, int, int],
    openings: Callable[[str], Openings],
    listed: TrajectoryList | None = None,
) -> TrajectoryView:
    """One trajectory.

    Args:
        openings: of a run, which reads what its policy saw before a question.
        listed: the list in which it has neighbours; None: its step or evaluation.
    """
    run = _read_run_line(reader, name)
    phase, step, k = place
    stored = reader.trajectory(run.id, k=k, step=step, phase=phase)
    found = stored.summary
    group = reader.trajectories(run.id, TrajectoryFilter(phase=phase, step=step, task_id=found.task_id))
    before, behind = _find_neighbours(
        reader, run.id, listed or TrajectoryList(TrajectoryFilter(phase=phase, step=step)), place
    )
    return TrajectoryView(
        run=run,
        stored=stored,
        side=side(found.trajectory_id, stored, openings(run.id)(stored.scored.trajectory)),
        group=tuple(sorted(group, key=lambda one: one.sample_index)),
        previous=None if before is None else place_of(before),
        next=None if behind is None else place_of(behind),
    )


def _find_neighbours(
    reader: Reader, run_id: str, listed: TrajectoryList, place: tuple[str, int, int]
) -> tuple[TrajectorySummary | None, TrajectorySummary | None]:
    """Those before and behind a trajectory in a list; None where it is the first, the last or not in it."""
    if not listed.text and not listed.flipped:
        return reader.neighbours(run_id, listed.wanted, place)
    heads = [row.summary for row in _read_page(reader, run_id, listed, None, _MAX_WALKED)]
    at = next((number for number, head in enumerate(heads) if (head.phase, head.step, head.k) == place), None)
    if at is None:
        return None, None
    return heads[at - 1] if at else None, heads[at + 1] if at + 1 < len(heads) else None


def read_tokens(
    reader: Reader,
    name: str,
    place: tuple[str, int, int],
    openings: Callable[[str], Openings],
    begin: int,
    end: int,
) -> TokenPage:
    """The tokens of a trajectory from one position to another, with what is known of each."""
    run_id = reader.get_run(name).record.id
    phase, step, k = place
    trajectory = reader.trajectory(run_id, k=k, step=step, phase=phase).scored.trajectory
    opened = openings(run_id)
    texts = token_texts(opened, trajectory)
    tokens = [
        Token(
            position=at,
            id=trajectory.tokens[at],
            text=texts[at],
            sampled=trajectory.action_mask[at],
            logprob=trajectory.rollout_logprobs[at] if trajectory.action_mask[at] else None,
            turn=next(
                (number for number, turn in enumerate(trajectory.turns, 1) if turn.start <= at < turn.observation_end),
                None,
            ),
        )
        for at in range(begin, min(end, len(trajectory.tokens)))
    ]
    return TokenPage(len(trajectory.tokens), trajectory.num_sampled, tuple(tokens), opened.decoder is not None)


def read_answers(
    reader: Reader, name: str, task_id: str, openings: Callable[[str], Openings], step: int | None, phase: str | None
) -> QuestionAnswers:
    """The answers to a question: those of one step or evaluation, or the first of each evaluation of the run."""
    run = _read_run_line(reader, name)
    found = reader.trajectories(run.id, TrajectoryFilter(task_id=task_id, step=step, phase=phase, limit=1000))
    if not found:
        raise RlfError(f"run {run.id}: no answer to {task_id!r} there. The list of its trajectories names the tasks.")
    chosen = [one for one in found if step is not None or one.sample_index == 0][:_MAX_SIDES]
    whole = zip(chosen, reader.wholes(run.id, chosen), strict=True)
    read = [(one, stored) for one, stored in whole if stored is not None]
    opened = openings(run.id)
    sides = [side(place_of(one), stored, opened(stored.scored.trajectory)) for one, stored in read]
    messages = read[0][1].scored.trajectory.task.messages if read else ()
    question = messages[-1].content if messages else ""
    gold = found[0].gold if isinstance(found[0].gold, str) else json.dumps(found[0].gold, ensure_ascii=False)
    return QuestionAnswers(run, task_id, question, gold, tuple(sides), tuple(one for one, _ in read))


def _read_run_line(reader: Reader, name: str) -> RunLine:
    return reader.run_lines(run_id=reader.get_run(name).record.id)[0]


# Trajectories and calls of a run that match.

_POLL_S = 0.5


def wanted_trajectories(failure: str | None = None, **facts: Any) -> TrajectoryFilter:
    """Makes the lineage's filter. Raises RlfError for an unknown class of parse failure."""
    known = [str(kind) for kind in FailureClass]
    if failure is not None and failure not in known:
        raise RlfError(f"--failure: unknown class {failure!r}{nearest(failure, known)} (known: {', '.join(known)}).")
    return TrajectoryFilter(failure=None if failure is None else FailureClass(failure), **facts)


def find_calls(
    reader: Reader, run_id: str, wanted: TrajectoryFilter, tool: str | None, outcome: str | None, limit: int
) -> list[FoundCall]:
    """Calls of a tool, or with an outcome. Raises RlfError for a tool that was never called, or an unknown outcome."""
    outcomes = _parse_outcomes(outcome)
    called = [summary.name for summary in reader.tool_call_summary(run_id)]
    called += sorted(reader.names_inside(run_id) - set(called)) if tool is not None and tool not in called else []
    if tool is not None and tool not in called:
        raise RlfError(
            f"--tool: {run_id} has no call of {tool!r}{nearest(tool, called)} (called: {', '.join(called) or 'none'})."
        )
    return reader.calls(run_id, wanted, tool=tool, outcomes=outcomes, limit=limit)


def _parse_outcomes(name: str | None) -> list[Outcome]:
    if name is None:
        return list(Outcome)
    known = ["failed", *map(str, Outcome)]
    if name not in known:
        raise RlfError(f"--outcome: unknown outcome {name!r}{nearest(name, known)} (known: {', '.join(known)}).")
    return [found for found in Outcome if found is not Outcome.OK] if name == "failed" else [Outcome(name)]


def follow_trajectories(
    reader: Reader, run_id: str, wanted: TrajectoryFilter, text: str | None
) -> Iterator[StoredTrajectory]:
    """One trajectory that matches of each step that finishes from now on, until the run ends."""
    for step in _follow_steps(reader, run_id):
        here = replace(wanted, phase=TRAIN, step=step, limit=None)
        for match in find(reader, run_id, here, text, 1):
            stored = reader.whole(run_id, match.summary)
            if stored is not None:
                yield stored


def _follow_steps(reader: Reader, run_id: str) -> Iterator[int]:
    """The steps that finish from now on, until the run ends."""
    last_step = reader.get_run(run_id).last_step
    while True:
        run = reader.get_run(run_id)
        yield from range(last_step + 1, run.last_step + 1)
        last_step = run.last_step
        if run.status is not RunStatus.RUNNING:
            return
        time.sleep(_POLL_S)


def token_decoder(run: Run) -> Callable[[int], str]:
    """One token as text, by the tokenizer of the run's model."""
    tokenizer = load_tokenizer(model_location(run.record.plan["spec"]["model"]["path"]))
    return lambda token: str(tokenizer.decode([token]))
