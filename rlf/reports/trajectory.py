"""A trajectory for people: what the policy saw and what it sampled, turn by turn, then the scores.

Sampled text has a solid margin mark and its own colour, everything else a dotted one, so the two are told apart
on any terminal. Observations are shown as the texts that were fed back, not decoded from tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from rlf.reports.sheets import Margin, counted, decimal, dollars, label_grid, latency, visible
from rlf.types.score import Score, Scored, ScoreState, ScoreUsage
from rlf.types.task import Message
from rlf.types.tool import Outcome, ToolResult
from rlf.types.trajectory import CallRecord, Trajectory, Turn

SAMPLED_MARK = "▌ "
FED_MARK = "┊ "
INNER_MARK = "│ "

_SAMPLED_STYLE = "green"
_FED_STYLE = "cyan"
_PROMPT_STYLE = "dim"
_SPECIAL = re.compile(r"<\|[^|<>\n]{1,64}\|>|</?(?:tool_call|tool_response|think|s)>")
_LABEL_WIDTH = 11


def trajectory_view(
    scored: Scored, max_lines: int | None = None, sampled: Sequence[Text] | None = None, opening: str = ""
) -> RenderableType:
    """Renders one trajectory with its scores.

    Args:
        opening: What the policy saw before the question: system text and declarations of tools.
        max_lines: Lines shown of each text; None shows all.
        sampled: What is shown of each turn's sampled text, in place of its ordinary look.
    """
    texts = [_style_sampled(turn.text) for turn in scored.trajectory.turns] if sampled is None else sampled
    rows = list(_list_rows(scored, max_lines, texts, with_system=not opening))
    if opening:
        shown = Margin(_style_sampled(opening, _PROMPT_STYLE), FED_MARK, _PROMPT_STYLE, max_lines)
        rows.insert(0, ("system", shown))
    heading = Text(visible(scored.trajectory.id), style="bold", overflow="fold")
    if (kind := scored.trajectory.task.kind) is not None:
        heading.append(f" · {visible(kind)}", "not bold dim")
    return Group(heading, label_grid(rows, _LABEL_WIDTH))


def legend() -> Text:
    """One line that explains the margin marks."""
    text = Text(" " * (_LABEL_WIDTH + 1))
    text.append(SAMPLED_MARK, _SAMPLED_STYLE).append("sampled by the policy   ", "dim")
    return text.append(FED_MARK, _FED_STYLE).append("observation, never in the policy loss", "dim")


def _show_end(scored: Scored) -> Text:
    """How the trajectory ended, its size, its reward."""
    trajectory = scored.trajectory
    text = Text(f"{trajectory.stop} after {counted(len(trajectory.turns), 'turn')}")
    text.append(f" · {counted(len(trajectory.tokens), 'token')}, {trajectory.num_sampled:,} sampled", "dim")
    reward = "unscorable" if scored.reward is None else f"reward {decimal(scored.reward)}"
    return text.append(" · ", "dim").append(reward, "yellow" if scored.reward is None else "none")


def _list_rows(
    scored: Scored, max_lines: int | None, sampled: Sequence[Text], *, with_system: bool
) -> Iterator[tuple[str, RenderableType]]:
    """Every row after the opening, which holds the system message where there is one."""
    trajectory = scored.trajectory
    begins = trajectory.messages
    yield from _show_asked((one for one in begins if with_system or one.role != "system"), max_lines)
    world = trajectory.world
    if world is not None and world.observation is not None and begins is trajectory.task.messages:
        yield from _show_asked([Message("world", world.observation)], max_lines)
    links = show_links(trajectory)
    for number, turn in enumerate(trajectory.turns, start=1):
        if links[number - 1]:
            yield "", Text(links[number - 1], style="dim")
        yield from _show_asked(turn.asked if number > 1 else (), max_lines)
        yield f"turn {number}", Margin(sampled[number - 1], SAMPLED_MARK, _SAMPLED_STYLE, max_lines)
        yield from _rows_after(turn, max_lines)
        yield from _of_world(turn, max_lines)
    yield "end", _show_end(scored)
    if world is not None and world.final_state is not None:
        yield "final state", Text(visible(_to_text(world.final_state)), style="dim", overflow="fold")
    if trajectory.error:
        yield "broken", Text(visible(trajectory.error), style="red", overflow="fold")
    if trajectory.task.answer is not None:
        yield "gold", Text(visible(_to_text(trajectory.task.answer)), overflow="fold")
    for place, score in enumerate(scored.scores):
        yield "" if place else "scores", _show_score(score)


def _show_asked(messages: Iterable[Message], max_lines: int | None) -> Iterator[tuple[str, RenderableType]]:
    for message in messages:
        text = Text(visible(message.content), style=_PROMPT_STYLE, overflow="fold")
        yield message.role[:_LABEL_WIDTH], Margin(text, FED_MARK, _PROMPT_STYLE, max_lines)


def show_links(trajectory: Trajectory) -> list[str]:
    """What each turn continues, in words; empty where that is the turn before it."""
    starts = [max(start for start, _ in trajectory.stretches if start <= turn.start) for turn in trajectory.turns]
    links = list(zip(starts, trajectory.turns, strict=True))
    if not any(turn.link for turn in trajectory.turns):
        begun = [last < start for last, start in zip([0, *starts], starts, strict=False)]
        texts = [f"new context: {turn.start - at:,} tokens" * new for (at, turn), new in zip(links, begun, strict=True)]
        kept = trajectory.num_prefix_turns
        if 0 < kept < len(texts):
            branch = f"branches from {trajectory.prefix_of} after turn {kept}, all before is of that trajectory"
            texts[kept] = "; ".join(filter(None, (branch, texts[kept])))
        return texts
    wholes = [trajectory.tokens[start : turn.end] for start, turn in links]
    words = []
    for at, (start, turn) in enumerate(links):
        prompt = trajectory.tokens[start : turn.start]
        # The call that it continues is the longest that its prompt begins with; of equal ones the turn before.
        sizes = [len(whole) if prompt[: len(whole)] == whole else 0 for whole in wholes]
        parent = max(range(len(sizes)), key=lambda other: (sizes[other], other == at - 1))
        before = f"continues turn {parent + 1}" if sizes[parent] else f"new context: {turn.link}"
        is_plain = parent == at - 1 and sizes[parent] and not turn.link
        words.append("" if is_plain else "the first call" * (at > 0) if turn.link == "first" else before)
    return words


def _style_sampled(text: str, style: str = _SAMPLED_STYLE) -> Text:
    """Text of a model's tokens with the special ones muted."""
    shown = Text(visible(text.removesuffix("\n")) or "(no token)", style=style, overflow="fold")
    for match in _SPECIAL.finditer(shown.plain):
        shown.stylize("dim", match.start(), match.end())
    return shown


def _rows_after(turn: Turn, max_lines: int | None) -> Iterator[tuple[str, RenderableType]]:
    """Consequences of a turn: results and corrections, or calls and failures that ended the trajectory."""
    fed = turn.observation_end > turn.end
    label = "observation" if fed else "not seen"
    contents = [
        *(_render_call(record, fed, max_lines) for record in turn.calls),
        *(
            Group(Text(f"parse failure: {one.kind}", "red"), Text(visible(one.message), _FED_STYLE, overflow="fold"))
            for one in turn.failures
        ),
    ]
    for content in contents:
        yield label, Margin(content, FED_MARK, _FED_STYLE if fed else _PROMPT_STYLE, max_lines)
        label = ""


def _of_world(turn: Turn, max_lines: int | None) -> Iterator[tuple[str, RenderableType]]:
    """Changes of the world by a turn, and its reply."""
    if turn.world is None:
        return
    style = _FED_STYLE if turn.observation_end > turn.end else _PROMPT_STYLE
    if turn.world.reply is not None:
        yield "world", Margin(Text(visible(turn.world.reply), style=style, overflow="fold"), FED_MARK, style, max_lines)
    for change in turn.world.changes:
        text = Text(visible(change.difference or "(changed)"), style="dim", overflow="fold")
        yield "state", text.append(f"  {change.sha256[:12]}", "dim italic")
    if turn.world.reward is not None:
        yield "step", Text(f"reward {decimal(turn.world.reward)}", style="dim")


def _render_call(record: CallRecord, fed: bool, max_lines: int | None) -> RenderableType:
    result = record.result
    arguments = json.dumps(dict(record.call.arguments), ensure_ascii=False, default=str)
    head = Text(visible(f"{record.call.name}({arguments}) → "), style="dim", overflow="fold")
    head.append(str(result.outcome), "dim" if result.outcome is Outcome.OK else "not dim red")
    head.append("".join(f", {fact}" for fact in _list_circumstances(record)))
    style = _FED_STYLE if fed else _PROMPT_STYLE
    inner = [] if max_lines is not None else [Margin(part, INNER_MARK, "dim", None) for part in _show_inner(result)]
    return Group(head, *inner, Text(visible(result.text), style=style, overflow="fold"))


def _show_inner(result: ToolResult) -> Iterator[RenderableType]:
    """The turns of an agent, each with its calls, which may be agents' again."""
    for number, turn in enumerate(result.inner, start=1):
        head = Text(f"inner turn {number}", "dim").append(f" ({turn.finish_reason})" if turn.finish_reason else "")
        head.append("".join(f", {fact}" for fact in _show_spent(turn.usage)))
        yield head
        if turn.reasoning:
            yield Text(visible(f"(thinks) {turn.reasoning}"), "dim italic", overflow="fold")
        if turn.text:
            yield Text(visible(turn.text), overflow="fold")
        for kind in turn.failures:
            yield Text(f"parse failure: {kind}", "red")
        for made in turn.calls:
            yield _render_call(CallRecord(made.call, made.result), True, None)


def _show_spent(usage: Mapping[str, float]) -> Iterator[str]:
    num_tokens = usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0)
    if num_tokens:
        yield counted(int(num_tokens), "token")
    if usage.get("cost_usd"):
        yield dollars(usage["cost_usd"])


def _list_circumstances(record: CallRecord) -> Iterator[str]:
    result = record.result
    if result.attempts:
        yield latency(result.queue_s + result.run_s)
    if len(result.attempts) > 1:
        yield f"{len(result.attempts)} attempts"
    if result.cached:
        yield "cached"
    yield from _show_spent(result.usage)
    if result.truncated:
        yield f"cut from {counted(result.size_bytes, 'byte')}"


def _show_score(score: Score) -> Text:
    style = "yellow" if score.value is None else "bold"
    text = Text(visible(score.term), overflow="fold").append("  ")
    missing = "unscorable" if score.state is ScoreState.SCORED else str(score.state)
    text.append(missing if score.value is None else decimal(score.value), style)
    text.append(f" × {score.weight:g}", "dim")
    text.append(f"  {visible(score.reason)}" if score.reason else "", "dim")
    return text.append(f"  ({', '.join(_show_taken(score.usage))})" if score.usage else "", "dim")


def _show_taken(usage: ScoreUsage) -> Iterator[str]:
    """The usage of a judge in words."""
    yield counted(usage.num_tokens, "token")
    if usage.cost_usd:
        yield dollars(usage.cost_usd)
    if usage.num_cached:
        yield f"{usage.num_cached} of {usage.num_replies} replies cached"


def _to_text(answer: object) -> str:
    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, default=str)


# The opening of a prompt, before the question: system text and tool declarations as the chat template renders them.

ReadOpening = Callable[[Trajectory], str]
"""The opening of a trajectory's prompt as text; empty where there is none."""


def no_opening(_: Trajectory) -> str:
    """For views of trajectories without a named tokenizer."""
    return ""


def opening(trajectory: Trajectory, decode: Callable[[Sequence[int]], str]) -> str:
    """The prompt's tokens decoded, up to the first message that is shown by itself.

    That is the system message with what the template adds to it and, in formats that declare tools in the user's
    message, these declarations. Where the template changed the message so that it is not found, the whole prompt.
    """
    end = trajectory.turns[0].start if trajectory.turns else len(trajectory.tokens)
    text = decode(trajectory.tokens[:end])
    question = next((m.content.strip() for m in trajectory.messages if m.role != "system"), "")
    found = text.rfind(question) if question else -1
    return (text if found < 0 else text[:found]).strip()
