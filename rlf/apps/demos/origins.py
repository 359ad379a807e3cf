"""Where demonstrations come from: solutions of tasks, trajectories of runs, files of conversations in four forms."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rlf.apps.demos.rows import DemonstratedTurn, Demonstration, decode_field, read_demonstration
from rlf.chat.format import ChatFormat, open_format
from rlf.chat.on_disk import read_tokenizer
from rlf.core import RlfError
from rlf.core.identity import derive_seed
from rlf.data.source import read_rows
from rlf.environments.instances import to_actions
from rlf.environments.playing import Action, GoldFault, open_bench
from rlf.lineage.reader import Reader
from rlf.lineage.records import INTERRUPTED, Run
from rlf.rewards.labels import label_id
from rlf.rollout.collect import collect
from rlf.rollout.rollout import Rollout, with_observation
from rlf.rollout.scripted import Line, ScriptedPolicy, WrittenTurn, write_turn
from rlf.spec import RunSpec
from rlf.spec.model_files import folder_on_disk
from rlf.training.harness import Harness, build_harness
from rlf.types import Scored, StopReason, Task, ToolCall
from rlf.types.policy import SampleRequest

# What a form says beside text is kept: calls in tags or in `tool_calls`, thinking in tags, tools in a system message.

_ROLES = {
    **{"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "model": "assistant"},
    **{"system": "system", "function_call": "calls", "tool_call": "calls"},
    **{"tool": "tool", "observation": "tool", "function": "tool", "tool_response": "tool", "function_response": "tool"},
}
"""Words of other forms for roles; `calls` is an assistant's message that holds nothing but calls."""
_CALL = re.compile(r"\s*<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
_RESULT = re.compile(r"<tool_response>\s*(.*?)\s*</tool_response>", re.DOTALL)
_THINK_FORM = re.compile(r"\A\s*<think>(.*?)</think>\s*", re.DOTALL)
_TOOLS = re.compile(r"<tools>\s*(.*?)\s*</tools>", re.DOTALL)


def convert_row(values: Mapping[str, Any]) -> dict[str, Any]:
    """A row of any of these forms in this app's own. Raises ValueError, in words, for one that is of none."""
    row = {key: values[key] for key in ("id", "kind") if values.get(key) is not None}
    before, after = _list(values.get("prompt")), values.get("completion", values.get("response"))
    messages = _list(values.get("messages")) or _list(values.get("conversations")) or _list(values.get("conversation"))
    if messages is None and before is not None and after is not None:
        messages = [*before, *(_list(after) or [{"role": "assistant", "content": after}])]
    if messages is None and isinstance(values.get("prompt"), str) and isinstance(after, str):
        messages = [{"role": "user", "content": values["prompt"]}, {"role": "assistant", "content": after}]
    if messages is None:
        raise ValueError(f"it has none of messages, conversations, prompt with completion (keys: {', '.join(values)})")
    found = list(_merge_results(_convert(message) for message in messages))
    if isinstance(values.get("system"), str) and values["system"].strip() and found[0]["role"] != "system":
        found.insert(0, {"role": "system", "content": values["system"]})
    tools = decode_field(values.get("tools")) or _tools_of_system(found)
    return row | {"messages": found} | ({"tools": tools} if tools else {})


def _list(value: Any) -> list[Mapping[str, Any]] | None:
    value = decode_field(value)
    is_list = isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value)
    return value if is_list else None


def _convert(message: Mapping[str, Any]) -> dict[str, Any]:
    """One message in OpenAI's form; calls and thinking in tags are taken out of its text."""
    word = message.get("role", message.get("from"))
    role = "system" if word == "developer" else _ROLES.get(str(word))
    if role is None:
        raise ValueError(f"a message has the role {word!r}")
    content = message.get("content", message.get("value"))
    if role == "calls":
        calls = decode_field(content)
        return {"role": "assistant", "content": "", "tool_calls": calls if isinstance(calls, list) else [calls]}
    if role == "tool":
        text = content if isinstance(content, str | list) else json.dumps(content, ensure_ascii=False)
        results = _RESULT.findall(text) if isinstance(text, str) else []
        return {**_keep(message, "tool_call_id"), "role": "tool", "content": results or text}
    if role == "user" and isinstance(content, str) and _RESULT.search(content) and not _RESULT.sub("", content).strip():
        return {"role": "tool", "content": _RESULT.findall(content)}
    if role != "assistant":
        return (
            {**message, "role": role, "content": content} if "role" in message else {"role": role, "content": content}
        )
    return _convert_assistant(message, content)


def _convert_assistant(message: Mapping[str, Any], content: Any) -> dict[str, Any]:
    kept = _keep(message, "tool_calls", "reasoning_content", "reasoning", "thinking")
    calls = [*(decode_field(kept.pop("tool_calls", None)) or ())]
    if isinstance(message.get("function_call"), Mapping):
        calls.append(message["function_call"])
    if isinstance(content, str):
        if (thought := _THINK_FORM.match(content)) is not None:
            kept.setdefault("reasoning_content", thought[1].strip())
            content = content[thought.end() :]
        calls += [_read_call(text) for text in _CALL.findall(content)]
        content = _CALL.sub("", content).strip() if _CALL.search(content) else content
    return {**kept, "role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}


def _keep(message: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: message[key] for key in keys if message.get(key)}


def _read_call(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"a call in tags is not JSON: {text[:60]!r}") from error


def _merge_results(messages: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Each result as a message of its own, where several stood in one."""
    for message in messages:
        texts = message["content"]
        if message["role"] == "tool" and isinstance(texts, list) and all(isinstance(text, str) for text in texts):
            yield from ({**message, "content": text} for text in texts)
        else:
            yield message


def _tools_of_system(messages: Sequence[dict[str, Any]]) -> list[Any]:
    """Tools that a system message lists in tags, which the chat format writes itself: the message is taken out."""
    if not messages or messages[0]["role"] != "system" or not isinstance(messages[0]["content"], str):
        return []
    listed = _TOOLS.search(messages[0]["content"])
    if listed is None:
        return []
    text = listed[1]
    found = decode_field(text)
    if isinstance(found, str):
        found = [decode_field(line) for line in text.splitlines() if line.strip()]
    if isinstance(found, Mapping):
        found = [found]
    if not all(isinstance(tool, Mapping) for tool in found):
        raise ValueError("the tools in its system message are not JSON")
    if isinstance(messages, list):
        del messages[0]
    return list(found)


_THINK = re.compile(r"\A\s*<think>\s*(.*?)\s*</think>\s*", re.DOTALL)
_AT_ONCE = 64
"""Solutions that are played at once."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A conversation that may become a demonstration."""

    origin: Mapping[str, Any]
    """Where it is from: `kind`, and the run, file or task."""
    demonstration: Demonstration | None
    fault: str = ""
    """Why there is none."""
    facts: Mapping[str, float] = field(default_factory=dict)
    """What conditions may ask for: success, reward, turns, calls, tokens, step, each reward term, a person's label."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Of its task."""


async def from_gold(spec: RunSpec, tasks: Sequence[Task], closing: str) -> list[Candidate]:
    """The solutions that tasks' rows or worlds know, played with the spec's tools and scored by its rewards.

    Args:
        closing: the answer after a solution that ends with a call.
    """
    folder = folder_on_disk(spec.model.path)
    tokenizer = None if folder is None else read_tokenizer(folder)
    if tokenizer is None:
        raise RlfError(f"--gold: the tokenizer of {spec.model.path} is not on this machine. Fetch the model first.")
    harness, found = build_harness(spec, tokenizer, lambda level, text: None), list[Candidate]()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(harness.opened())
        solved = list[tuple[Task, tuple[Action, ...]]]()
        for task in tasks:
            try:
                actions, why = await _solution(spec, task), "neither its row nor its world has a solution"
            except (GoldFault, TypeError) as fault:
                actions, why = None, f"its solution cannot be played: {fault}"
            if actions is None:
                found.append(Candidate({"kind": "gold", "task": task.id}, None, why))
            else:
                solved.append((task, actions))
        for first in range(0, len(solved), _AT_ONCE):
            for scored in await _play(harness, solved[first : first + _AT_ONCE], spec.seed, closing):
                origin = {"kind": "gold", "task": scored.trajectory.task.id}
                found.append(candidate_of(scored, origin, harness.chat, 0))
    return found


async def _solution(spec: RunSpec, task: Task) -> tuple[Action, ...] | None:
    if task.columns.get("gold") is not None or spec.env is None:
        return to_actions(task.columns.get("gold"))
    async with open_bench(spec.env, [task], seed=spec.seed, tools=spec.tools) as bench:
        return await bench.gold(task)


async def _play(
    harness: Harness, solved: Sequence[tuple[Task, tuple[Action, ...]]], seed: int, closing: str
) -> list[Scored]:
    chat = harness.chat
    script = {f"gold/{task.id}": _lines(chat, actions, task, closing) for task, actions in solved}
    policy = ScriptedPolicy(chat.tokenizer, script, logprob=0.0)
    rollouts = [Rollout(f"gold/{task.id}", task, 0, derive_seed(seed, task.id)) for task, _ in solved]
    return await collect(rollouts, harness.setting(policy, harness.training), harness.reward, step=1)


def _lines(chat: ChatFormat, actions: Sequence[Action], task: Task, closing: str) -> list[Line]:
    actions_made = list[Action](actions)
    if not actions_made or isinstance(actions_made[-1], ToolCall):
        actions_made.append(str(task.answer) if isinstance(task.answer, str | int | float) else closing)
    end = chat.decode(chat.stop_token_ids[:1])

    def line(action: Action) -> Line:
        text = chat.write_answer(action) if isinstance(action, str) else chat.write_calls([action])

        def speak(request: SampleRequest) -> str:
            return write_turn(chat.after(request.tokens), WrittenTurn(text)) + end

        return speak

    return [line(action) for action in actions_made]


def from_run(reader: Reader, name: str, labels: Mapping[str, float]) -> Iterator[Candidate]:
    """The trajectories of a run, of its training and its evaluations.

    Args:
        labels: what people say of trajectories, which conditions may ask for.
    """
    run = reader.get_run(name)
    chat, summaries = _chat_of(run), reader.trajectories(run.record.id)
    whole = {summary.trajectory_id for summary in summaries if summary.phase != INTERRUPTED}
    for summary in summaries:
        if summary.phase == INTERRUPTED and summary.trajectory_id in whole:
            continue  # a resume has played it again
        label = labels.get(label_id(run.record.id, summary.phase, summary.step, summary.k))
        origin = {"kind": "run", "run": run.record.id, "phase": summary.phase, "step": summary.step, "k": summary.k}
        if summary.error is not None or summary.reward is None:
            yield Candidate(origin, None, "it broke, or has no reward")
            continue
        stored = reader.whole(run.record.id, summary)
        if stored is None:
            yield Candidate(origin, None, "its turns are not kept any more")
        else:
            found = candidate_of(stored.scored, origin, chat, summary.step)
            yield found if label is None else replace(found, facts={**found.facts, "label": label})


def _chat_of(run: Run) -> ChatFormat | None:
    """The format that a run's turns are written in; None where its tokenizer is not on this machine."""
    spec = run.record.plan.get("spec", {})
    folder = folder_on_disk(str(spec.get("model", {}).get("path", "")))
    tokenizer = None if folder is None else read_tokenizer(folder)
    chat = spec.get("chat", {})
    return (
        None if tokenizer is None else open_format(chat.get("format", "auto"), tokenizer, (), chat.get("thinking_tag"))
    )


def candidate_of(scored: Scored, origin: Mapping[str, Any], chat: ChatFormat | None, step: int) -> Candidate:
    """A scored trajectory as a conversation."""
    trajectory = scored.trajectory
    facts = {score.term: score.value for score in scored.scores if score.value is not None} | {
        "success": 0.0 if scored.success is None else scored.success,
        "reward": 0.0 if scored.reward is None else scored.reward,
        "turns": float(len(trajectory.turns)),
        "calls": float(len(trajectory.calls)),
        "tokens": float(len(trajectory.tokens)),
        "step": float(step),
    }
    fault = _find_fault(scored, chat)
    columns = trajectory.task.columns
    if fault:
        return Candidate(origin, None, fault, facts, columns)
    world = trajectory.world
    given = with_observation(trajectory.task.messages, None if world is None else world.observation)
    messages = trajectory.turns[0].asked or given
    turns = []
    for turn in trajectory.turns:
        content, thinking = _read_turn(turn.text, chat if trajectory.tokens else None)
        calls = tuple(record.call for record in turn.calls)
        results = tuple(record.result.text for record in turn.calls)
        is_last = turn is trajectory.turns[-1]
        reply = None if turn.world is None or calls or is_last else turn.world.reply
        # Text beside calls is a server's own field; of a sampled turn it is no part of what the calls mean.
        content = "" if calls and trajectory.tokens else content
        turns.append(DemonstratedTurn(content, thinking, calls, () if is_last else results, reply))
    task = Task(trajectory.task.id, messages, kind=trajectory.task.kind)
    return Candidate(origin, Demonstration(task, tuple(turns)), "", facts, columns)


def _find_fault(scored: Scored, chat: ChatFormat | None) -> str:
    trajectory = scored.trajectory
    if not trajectory.scorable or scored.reward is None or not trajectory.turns:
        return "it broke, or has no reward"
    if trajectory.failures:
        return "a turn of it could not be read"
    if trajectory.stop is StopReason.LENGTH:
        return "its last turn was cut"
    said = [message.role for message in trajectory.turns[0].asked if message.role not in ("system", "user")]
    if said or any(turn.asked or turn.link not in ("", "first") for turn in trajectory.turns[1:]):
        return "its agent sent more than a question and the results of calls"
    if trajectory.images:
        return "it has images, which no demonstration holds"
    if trajectory.tokens and chat is None:
        return "the tokenizer of its model is not on this machine"
    return ""


def _read_turn(text: str, chat: ChatFormat | None) -> tuple[str, str]:
    """What a turn says and thought; a turn that calls says nothing."""
    if chat is None:
        thought = _THINK.match(text)
        return (text, "") if thought is None else (text[thought.end() :], thought[1])
    parsed = chat.parse(text, truncated=False)
    return (text if parsed.answer is None else parsed.answer), parsed.thinking


def from_file(path: Path) -> Iterator[Candidate]:
    """The conversations of a file, in whatever form. Raises SpecError where the file cannot be read."""
    for row in read_rows(str(path), None, "train", None):
        origin = {"kind": "file", "file": path.name, "line": row.place.line}
        try:
            one = read_demonstration(convert_row(row.values))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            yield Candidate(origin, None, f"it cannot be read: {error}")
            continue
        task = replace(one.task, id=str(row.values.get("id") or f"{path.stem}-{one.task.id}"))
        yield Candidate(origin, replace(one, task=task), facts={"turns": float(len(one.turns))})
