"""Points about tools: whether they do what their schemas say, grade the policy, give the answer away, or flood it."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlf.apps.worlds.trial import NEAR, Sign, TrialWorld, name_action, tool_calls
from rlf.core.leaks import SearchedText
from rlf.environments.instances import GRADER
from rlf.environments.playing import Action, Happened, follow
from rlf.tools.validate import ArgumentCheck
from rlf.types import Outcome, ToolCall, ToolDescription

_OK, _FAILED, _UNKNOWN = Sign.OK, Sign.FAILED, Sign.UNKNOWN
_MAX_TRIES = 24
_MAX_TASKS = 3
_MAX_RETARGETS = 6
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_GRADER_WORD = re.compile(r"\b(?:scores?|rewards?|grades?)\b", re.IGNORECASE)
_ERROR_NAME = re.compile(r"\Aerror: (?:\w+: )?")
_ERROR_WORDS = re.compile(r"\W*(?:error|exception|traceback|failed|failure)\b", re.IGNORECASE)
# The exceptions that code raises by accident: a refusal is a ValueError, or a KeyError that names the argument.
_ACCIDENT = re.compile(r"error: (?:TypeError|AttributeError|NameError|UnboundLocalError|IndexError|ZeroDivisionError)")
# A part of a name, between underscores: `set_score` and `get_reward_now`, and not `scoreboard`.
_GRADER_PART = re.compile(
    r"(?:^|_)(?:scores?|rewards?|grades?|graders?|verify|verifier|evaluate|judge|correct|solved|solution|check)(?:_|$)"
)
_BEFORE = re.compile(r"\b(?:0(?:\.0+)?|false|no|not|fail\w*|wrong|incorrect|unsolved)\b", re.IGNORECASE)
_AFTER = re.compile(r"\b(?:1(?:\.0+)?|100|true|yes|pass\w*|correct|right|solved|done)\b", re.IGNORECASE)


def _has_failed(step: Happened) -> bool:
    return step.outcome not in (None, Outcome.OK) or bool(_ERROR_WORDS.match(step.said or ""))


def _steps_of(subject: TrialWorld) -> dict[str, list[Happened]]:
    """The calls so far by tool."""
    found = defaultdict[str, list[Happened]](list)
    for played in subject.bench.played:
        for step in played.steps:
            if isinstance(step.action, ToolCall) and step.said is not None:
                found[step.action.name].append(step)
    return found


async def check_tools(subject: TrialWorld) -> tuple[Sign, str]:
    """Each tool succeeds at least once, and its code takes what its schema allows."""
    if "reset" in subject.failed:
        return _UNKNOWN, "worlds do not begin, or keep state of an earlier episode; see reset"
    doubtful = []
    for tool in subject.bench.executor.descriptions:
        if all(_has_failed(step) for step in _steps_of(subject)[tool.name]):
            await _explore(subject, tool)
        steps = _steps_of(subject)[tool.name]
        if fault := _find_accident(tool, steps):
            return _FAILED, fault
        if steps and all(map(_has_failed, steps)):
            words = f"{tool.name}: none of {len(steps)} calls succeeded, e.g. {steps[0].said}"
            if 1 in (len({step.said for step in steps}), len(set(map(_without_arguments, steps)))):
                return _FAILED, words
            doubtful.append(words)
    if doubtful:
        return _UNKNOWN, "; ".join(doubtful)
    return _OK, f"each of {len(subject.bench.executor.descriptions)} tools succeeds"


def _find_accident(tool: ToolDescription, steps: Sequence[Happened]) -> str | None:
    properties: Mapping[str, Any] = tool.input_schema.get("properties") or {}
    admits = ArgumentCheck(tool.input_schema)
    for step in steps:
        assert isinstance(step.action, ToolCall), "a step of a tool that is no call"
        result, arguments = step.said or "", step.action.arguments
        if step.outcome in (None, Outcome.OK) or admits.complaint(dict(arguments)) is not None:
            continue
        is_listed = any(
            result == f"error: KeyError: {value!r}" and value in (properties.get(name, {}).get("enum") or ())
            for name, value in arguments.items()
        )
        if _ACCIDENT.match(result) or is_listed:
            return (
                f"{tool.name} does not take what its schema allows: {json.dumps(dict(arguments))[:120]} gave {result}"
            )
    return None


def _without_arguments(step: Happened) -> str:
    """The result of a call, without the arguments that it may quote."""
    assert isinstance(step.action, ToolCall), "a step of a tool that is no call"
    text = _ERROR_NAME.sub("", step.said or "")
    for value in sorted(map(str, step.action.arguments.values()), key=len, reverse=True):
        text = text.replace(repr(value), "''")  # as a KeyError quotes it
        text = text.replace(value, "") if len(value) > 1 else text
    return text


async def _explore(subject: TrialWorld, tool: ToolDescription) -> None:
    """Calls a tool with what is known: values of solutions and rows, and words of the world."""
    for at in range(min(len(subject.tasks), _MAX_TASKS)):
        if not subject.tasks[at].may_use(tool.name):
            continue
        gold = list(subject.golds[at] or ())
        calls = _guess_calls(subject, at, tool)
        for before in {0, max(0, len(gold) - 1)}:
            for first in range(0, len(calls), _MAX_TRIES // 2):
                part: list[Action] = [*gold[:before], *calls[first : first + _MAX_TRIES // 2]]
                await subject.play(subject.tasks[at], follow(part))


def _guess_calls(subject: TrialWorld, at: int, tool: ToolDescription) -> list[ToolCall]:
    calls = tool_calls(tool, subject.known_calls)
    properties: Mapping[str, Any] = tool.input_schema.get("properties") or {}
    free = [name for name, one in properties.items() if one.get("type") == "string" and "enum" not in one]
    same = {name: call.arguments[name] for call in subject.known_calls for name in free if name in call.arguments}
    base = {**calls[-1].arguments, **same} if calls else {}
    if calls and same:
        calls.insert(0, ToolCall(tool.name, base))
    for word in _known_words(subject, at):
        for name in free:
            calls.append(ToolCall(tool.name, {**base, name: word}))
    return calls[:_MAX_TRIES]


def _known_words(subject: TrialWorld, at: int) -> list[str]:
    task = subject.tasks[at]
    words = [str(value) for call in subject.known_calls for value in call.arguments.values() if value]
    words += [value for value in task.columns.values() if isinstance(value, str) and len(value) < 80]
    said = [step.said or "" for played in subject.bench.played[:8] for step in played.steps]
    # What looks like an identifier: capitals, figures, or both with dashes.
    words += re.findall(r"\b(?=\w*\d)[\w-]{2,24}\b|\b[A-Z][A-Za-z]+\b", " ".join(said)[:4000])
    return list(dict.fromkeys(words))


async def check_grader(subject: TrialWorld) -> tuple[Sign, str]:
    """No tool shows the policy its reward, or sets it."""
    for tool in subject.bench.executor.descriptions:
        if GRADER.fullmatch(tool.name):
            return _FAILED, f"the policy can call {tool.name}, which is a grader by its name. Hide it from the policy"
        is_doubtful = _GRADER_PART.search(tool.name.lower()) is not None
        calls = tool_calls(tool, subject.known_calls)
        for at, gold in enumerate(subject.golds[:1]):
            for call in calls[:2]:
                if is_doubtful and subject.value(await subject.play(subject.tasks[at], follow([call]))) > (
                    subject.value(await subject.reference(at, "no-op")) + NEAR
                ):
                    return _FAILED, f"a call of {tool.name} alone raises the reward. Hide it from the policy"
                if gold and await _grades(subject, at, call, is_doubtful=is_doubtful):
                    return _FAILED, f"{tool.name} shows the policy its reward. Hide it from the policy"
        if (retarget := await _find_retarget(subject, tool)) is not None:
            words = "another task's solution earns the maximum. Hide it from the policy"
            return _FAILED, f"{tool.name} sets what is rewarded: after {name_action(retarget)} {words}"
    return _OK, "no tool shows or sets the reward"


async def _find_retarget(subject: TrialWorld, tool: ToolDescription) -> ToolCall | None:
    """A call of a tool that no solution needs, after which another task's solution is rewarded."""
    golds = [list(gold or ()) for gold in subject.golds[:_MAX_TASKS]]
    other = next((gold for gold in golds[1:] if gold and gold != golds[0]), None)
    if other is None or not golds[0] or tool.name in {call.name for call in subject.known_calls}:
        return None
    values = [value for one in other if isinstance(one, ToolCall) for value in one.arguments.values()]
    properties: Mapping[str, Any] = tool.input_schema.get("properties") or {}
    admits = ArgumentCheck(tool.input_schema)
    for base in tool_calls(tool)[:1]:
        tried = [{**base.arguments, name: value} for name in properties for value in values]
        for arguments in [one for one in tried if admits.complaint(one) is None][:_MAX_RETARGETS]:
            call = ToolCall(tool.name, arguments)
            if subject.value(await subject.play(subject.tasks[0], follow([call, *other]))) >= 1 - NEAR:
                alone = subject.value(await subject.play(subject.tasks[0], follow(other)))
                return call if alone < 1 - NEAR else None
    return None


async def _grades(subject: TrialWorld, at: int, call: ToolCall, *, is_doubtful: bool) -> bool:
    """Whether a call's result is the reward, before a solution and after it."""
    task, gold = subject.tasks[at], list(subject.golds[at] or ())
    before, after = [await subject.play(task, follow(each)) for each in ([call], [*gold, call])]
    if not before.steps or len(after.steps) <= len(gold) or before.failure or after.failure:
        return False
    said, later = before.steps[0].said or "", after.steps[-1].said or ""
    if call in gold or said == later:
        return False
    if is_doubtful and _BEFORE.search(said) and _AFTER.search(later) and not _AFTER.search(said):
        return True
    if _NUMBER.sub("#", said) != _NUMBER.sub("#", later) or not (
        _NUMBER.fullmatch(said.strip()) or _GRADER_WORD.search(said)
    ):
        return False
    shown = zip(map(float, _NUMBER.findall(said)), map(float, _NUMBER.findall(later)), strict=True)
    values = subject.value(before), subject.value(after)
    return any(abs(one - values[0]) < NEAR and abs(two - values[1]) < NEAR for one, two in shown)


async def check_hidden(subject: TrialWorld) -> tuple[Sign, str]:
    """The answer stands neither in the prompt nor in the tools' documents, nor in what a refused call says."""
    tools = [tool.as_openai() for tool in subject.bench.executor.descriptions]
    docs = SearchedText(json.dumps(tools, ensure_ascii=False))
    found, num = {"the prompt": 0, "the tools' documents": 0, "the errors of tools": 0}, 0
    for at, (task, gold) in enumerate(zip(subject.tasks, subject.golds, strict=True)):
        secrets = {action.strip() for action in gold or () if isinstance(action, str)}
        secrets |= {task.answer.strip()} if isinstance(task.answer, str) and not secrets else set()
        secrets = {secret for secret in secrets if secret}
        if not secrets:
            continue
        num += 1
        first = await subject.reference(at, "no-op")
        texts = "\n".join([message.content for message in task.messages] + [first.observation or ""])
        errors = "\n".join(_errors_of(subject, at, secrets))
        for place, read in zip(found, (SearchedText(texts), docs, SearchedText(errors)), strict=True):
            found[place] += any(read.find(secret) is not None for secret in secrets)
    if not num:
        return _UNKNOWN, "no answer is known as text"
    for place, times in found.items():
        if times * 2 >= num + (num > 1):
            return _FAILED, f"the answer stands in {place} of {times} of {num} tasks"
    return _OK, f"the answers of {num} tasks stand neither in prompts nor in the tools' documents and errors"


def _errors_of(subject: TrialWorld, at: int, secrets: set[str]) -> Iterator[str]:
    """The texts of a task's failed calls that did not hold the answer themselves."""
    for (task, _), played in subject.references.items():
        for step in played.steps if task == at else ():
            if isinstance(step.action, ToolCall) and _has_failed(step):
                given = str(step.action.arguments)
                if not any(secret in given for secret in secrets):
                    yield step.said or ""


async def check_outputs(subject: TrialWorld) -> tuple[Sign, str]:
    """What a world says first, and on the way to a solution, is not longer than a result may be."""
    most = subject.bench.spec.limits.max_output_chars
    for at in range(len(subject.tasks)):
        for name in ("no-op", "gold") if subject.golds[at] else ("no-op",):
            played = await subject.reference(at, name)
            if len(played.observation or "") > most:
                said = f"the first words have {len(played.observation or '')} characters"
                return _FAILED, f"{said}; limits.max_output_chars is {most}"
            for step in played.steps:
                if len(step.said or "") >= most * 0.9 and isinstance(step.action, ToolCall):
                    return (_FAILED, f"a solution's result of {name_action(step.action)} is cut to {most} characters")
    return _OK, f"first words and results of solutions have at most {most} characters"
