"""Why trajectories hold nothing to learn from: figures, likely causes by what was seen, and a trajectory that shows it.

A cause is named only where many of the trajectories show it. Pure: no model, no lineage, no engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rlf.rewards.normalization import normalize
from rlf.rollout.rollout import NOT_RUN
from rlf.rollout.signal import Cause, CauseKind, Diagnosis, DiagnosisSetting, Signal, conclusion, quote, show_example
from rlf.types.score import Scored
from rlf.types.task import Task
from rlf.types.tool import Outcome
from rlf.types.trajectory import FailureClass, StopReason, Trajectory

_MANY = 1 / 3
"""Share of the trajectories from which something seen in them is a likely cause."""
_MOST = 1 / 2
"""Share of the trajectories from which it explains what the others do, too."""
_FEW = 0.05
"""The same of attempts to call a tool, where not one was read."""
_SOME = 0.1
"""The same of calls that were run and gave nothing, and of trajectories that were cut where all answers are wrong."""


def diagnose(
    scored: Sequence[Scored],
    signal: Signal,
    setting: DiagnosisSetting,
    *,
    num_before: int = 0,
    had_signal: bool = False,
) -> Diagnosis:
    """The diagnosis of trajectories whose signal is not `some`.

    Args:
        num_before: trajectories of the steps before it that had no signal either.
        had_signal: whether the run held something to learn from before.
    """
    assert scored and signal is not Signal.SOME, f"nothing to diagnose: {len(scored)} trajectories, signal {signal}"
    causes = tuple(find_causes(scored, signal, setting, had_signal=had_signal))
    k = causes[0].shows if causes else 0
    concluded = conclusion(signal, num_before + len(scored), had_signal=had_signal)
    figures = f"{_count_words(scored, setting)}; {_signal_words(scored, signal, setting)}: {concluded}"
    return Diagnosis(signal, figures, causes, k, show_example(scored[k]))


def find_causes(
    scored: Sequence[Scored], signal: Signal, setting: DiagnosisSetting, *, had_signal: bool = False
) -> Iterator[Cause]:
    """The likely causes, the ones that explain others first.

    Trajectories without a reward have not failed: they are a cause, and show no other but by their calls, for which
    they may have none. Golds and rewards are no cause once a step had a signal by them.
    """
    places = [k for k, item in enumerate(scored) if item.reward is not None]
    counted = [scored[k] for k in places]
    unscored = [item for item in scored if item.reward is None]
    found = list(_why_not_scored(scored, setting))
    if (tools := _tools_fail(scored, setting)) is not None:
        said = {record.result.text for item in scored for record in item.trajectory.calls} - {""}
        by_tools = [each for each in unscored if each.trajectory.calls or any(text in _why(each) for text in said)]
        found.insert(0 if 2 * len(by_tools) > len(unscored) else len(found), tools)
    if signal is Signal.NO_GROUPS:
        found += [_filtered(counted, setting)]
    elif counted:
        called = any(each.trajectory.calls for each in unscored)
        checks = _CHECKS if called else (_never_called, _never_parsed, *_CHECKS)
        seen = [cause for check in checks if (cause := check(counted, setting)) is not None]
        kinds = {cause.kind for cause in (*found, *seen)}
        if not any(_successes(counted)) and not kinds & _EXPLAIN_FAILURE and not had_signal:
            cause = _gold_cause(counted, setting)
            seen += [cause] if cause is not None else [] if seen else _too_hard(counted)
        elif signal is Signal.NO_DIFFERENCE and not seen and not found and not had_signal:
            seen += [_constant(counted)]
        found += [replace(cause, shows=places[cause.shows]) for cause in seen]
    yield from found


def _count_words(scored: Sequence[Scored], setting: DiagnosisSetting) -> str:
    """`0 of 128 trajectories succeeded, no tool was called`, and what else stands out."""
    trajectories, successes = [item.trajectory for item in scored], _successes(scored)
    parts = list[str]()
    if successes and set(successes) <= {0.0, 1.0}:
        parts.append(f"{sum(successes):.0f} of {len(successes)} trajectories succeeded")
    elif successes:
        parts.append(f"mean success of {len(successes)} trajectories {100 * sum(successes) / len(successes):.1f} %")
    calls = [record for each in trajectories for record in each.calls]
    run = [record for record in calls if record.result != NOT_RUN]
    if setting.tools and not calls:
        parts.append("no tool was called")
    if run:
        num_ok = sum(record.result.outcome is Outcome.OK for record in run)
        parts.append(f"{num_ok:,} of {len(run):,} tool calls gave a result")
    if len(run) < len(calls):
        parts.append(f"{len(calls) - len(run):,} calls of last turns were not run")
    for words, number in (
        ("wrote something that could not be parsed", sum(bool(_unread(trajectory)) for trajectory in trajectories)),
        ("were cut by the token budget", sum(map(_is_cut, trajectories))),
        ("could not be scored", sum(item.reward is None for item in scored)),
    ):
        if number:
            parts.append(f"{number} {words}")
    return ", ".join(parts)


def _successes(scored: Sequence[Scored]) -> list[float]:
    """Of the trajectories that count: a first term may have a value where another one has none."""
    return [item.success for item in scored if item.reward is not None and item.success is not None]


def _signal_words(scored: Sequence[Scored], signal: Signal, setting: DiagnosisSetting) -> str:
    match signal:
        case Signal.NOT_SCORED:
            return "no trajectory has a reward"
        case Signal.NO_GROUPS:
            return "dynamic filtering keeps no group"
        case Signal.NO_DIFFERENCE if setting.by_group and len(_distinct_rewards(scored)) > 1:
            return "every group has equal rewards"
        case Signal.NO_DIFFERENCE:
            return f"every reward is {_distinct_rewards(scored).pop():g}"
    terms = ", ".join(repr(name) for name in _differing_terms(scored)) or "other terms"
    return f"rewards differ by {terms} only"


def _distinct_rewards(scored: Sequence[Scored]) -> set[float]:
    return {item.reward for item in scored if item.reward is not None}


def _differing_terms(scored: Sequence[Scored]) -> list[str]:
    values: dict[str, set[float]] = {}
    for item in scored:
        for score in item.scores if item.reward is not None else ():
            values.setdefault(score.term, set()).add(score.contribution)
    return [term for term, found in values.items() if len(found) > 1]


Check = Callable[[Sequence[Scored], DiagnosisSetting], Cause | None]


def _showing(scored: Sequence[Scored], shows: Callable[[Scored], bool], least: float = _MANY) -> list[int]:
    """Positions of the trajectories that show something; none where it is a smaller share."""
    found = [k for k, item in enumerate(scored) if shows(item)]
    return found if len(found) >= least * len(scored) else []


def _why_not_scored(scored: Sequence[Scored], setting: DiagnosisSetting) -> Iterator[Cause]:
    """That many have no reward, and first that the budget cut them where most of these are cut."""
    found = _showing(scored, lambda item: item.reward is None)
    if not found:
        return
    unscored = [scored[k] for k in found if scored[k].trajectory.stop is not StopReason.INFRA_FAILURE]
    if 2 * len(unscored) > len(found):
        for check in (_find_truncation, _out_of_turns):
            cause = check(unscored, setting)
            if cause is not None:
                yield replace(cause, shows=scored.index(unscored[cause.shows]))
    seen = f"{len(found)} of {len(scored)} could not be scored, e.g. {quote(_why(scored[found[0]]))}"
    yield Cause(CauseKind.NOT_SCORED, seen, "Fix what failed there, a service or a reward term.", found[0])


def _why(item: Scored) -> str:
    """Why a trajectory has no reward."""
    reasons = [f"{score.term}: {score.reason}" for score in item.scores if score.value is None and score.reason]
    return item.trajectory.error or "; ".join(reasons) or str(item.trajectory.stop)


def _filtered(counted: Sequence[Scored], setting: DiagnosisSetting) -> Cause:
    rewards: dict[str, list[float]] = {}
    for item in counted:
        rewards.setdefault(item.trajectory.task.id, []).append(item.reward or 0.0)
    means, bounds = [sum(group) / len(group) for group in rewards.values()], setting.bounds
    num_differ = sum(len(set(group)) > 1 for group in rewards.values())
    num_kept = num_differ if bounds is None else sum(bounds[0] < mean < bounds[1] for mean in means)
    seen = f"dynamic filtering keeps {num_kept or 'none'} of {len(means)} groups, of which {num_differ} differ"
    if bounds is None:
        return Cause(CauseKind.FILTERED, seen, "Write `train.dynamic_filtering: null`.", 0)
    seen += f": mean rewards are {min(means):g} to {max(means):g}; those between {bounds[0]:g} and {bounds[1]:g} stay"
    advice = "Write `dynamic_filtering: {}`, which keeps the groups whose rewards differ, or other bounds."
    return Cause(CauseKind.FILTERED, seen, advice, 0)


def _never_parsed(scored: Sequence[Scored], setting: DiagnosisSetting) -> Cause | None:
    found = [k for k, item in enumerate(scored) if _unread(item.trajectory)]
    if len(found) < max(2, _FEW * len(scored)) or any(item.trajectory.calls for item in scored):
        return None
    kinds = Counter(kind for item in scored for kind in _unread(item.trajectory))
    (kind, number), *_ = kinds.most_common(1)
    seen = f"{len(found)} of {len(scored)} wrote what the chat format does not read as a call ({kind} {number} times)"
    advice = "Compare what the policy writes with `rlf format show SPEC`, and set `chat.format` to the form it knows."
    return Cause(CauseKind.NEVER_PARSED, seen, advice, found[0])


def _unread(trajectory: Trajectory) -> list[FailureClass]:
    """Failures to parse; truncated turns do not parse either, and that is another cause."""
    return [failure.kind for failure in trajectory.failures if failure.kind is not FailureClass.TRUNCATED]


def _never_called(scored: Sequence[Scored], setting: DiagnosisSetting) -> Cause | None:
    if not setting.tools or any(item.trajectory.calls for item in scored):
        return None
    if _never_parsed(scored, setting) or _hides_calls(scored, setting):
        return None
    seen = f"no trajectory tried to call a tool ({', '.join(setting.tools)})"
    advice = "Check with `rlf format show SPEC` that the prompt has the tools; ask for them in the system prompt,"
    advice += " or start from a model that calls tools."
    return Cause(CauseKind.NEVER_CALLED, seen, advice, 0)


def _hides_calls(scored: Sequence[Scored], setting: DiagnosisSetting) -> bool:
    """Whether the token budget may be why no tool is called: most turns are cut, or many and some begin a call."""
    cut = [item.trajectory for item in scored if _is_cut(item.trajectory)]
    begun = any(name in turn.text for trajectory in cut for turn in trajectory.turns for name in setting.tools)
    return len(cut) >= len(scored) * (_MANY if begun else _MOST)


def _tools_fail(scored: Sequence[Scored], setting: DiagnosisSetting) -> Cause | None:
    records = [(k, r) for k, item in enumerate(scored) for r in item.trajectory.calls if r.result != NOT_RUN]
    if not records or any(record.result.outcome is Outcome.OK for _, record in records):
        return None
    if len({k for k, _ in records}) < max(2, _SOME * len(scored)):
        return None
    (name, outcome), _ = Counter((r.call.name, r.result.outcome) for _, r in records).most_common(1)[0]
    k, first = next((k, r) for k, r in records if (r.call.name, r.result.outcome) == (name, outcome))
    seen = f"none of {len(records)} tool calls gave a result, most of them {name!r}: {outcome}, "
    seen += quote(first.result.text)
    advice = "Write a test of the tool with such arguments and run `rlf tools test FILE`."
    if outcome in (Outcome.INVALID_ARGUMENTS, Outcome.UNKNOWN_TOOL):
        advice = "Look at what the policy writes: names and arguments differ from what the tools declare."
    elif outcome is Outcome.LIMIT_REACHED:
        advice = "Write more for `rollout.max_tool_calls`."
    elif outcome.is_infrastructure:
        advice = "Check with `rlf tools test FILE` that the service behind the tool runs."
    return Cause(CauseKind.TOOLS_FAIL, seen, advice, k)


def _is_cut(trajectory: Trajectory) -> bool:
    return trajectory.stop is StopReason.LENGTH or any(f.kind is FailureClass.TRUNCATED for f in trajectory.failures)


def _find_truncation(scored: Sequence[Scored], setting: DiagnosisSetting | None, least: float = _MANY) -> Cause | None:
    found = _showing(scored, lambda item: _is_cut(item.trajectory), least)
    if not found:
        return None
    longest = max(len(item.trajectory.tokens) for item in scored)
    seen = f"{len(found)} of {len(scored)} were cut by the token budget (the longest has {longest} tokens)"
    advice = "Write more for `rollout.max_new_tokens` and `rollout.max_total_tokens`."
    return Cause(CauseKind.TRUNCATED, seen, advice, found[0])


def _out_of_turns(scored: Sequence[Scored], setting: DiagnosisSetting | None, least: float = _MANY) -> Cause | None:
    found = _showing(scored, lambda item: item.trajectory.stop is StopReason.MAX_TURNS, least)
    if not found:
        return None
    seen = f"{len(found)} of {len(scored)} still called a tool in their last turn"
    return Cause(CauseKind.OUT_OF_TURNS, seen, "Write more for `rollout.max_turns`.", found[0])


def _same_rollouts(scored: Sequence[Scored], setting: DiagnosisSetting) -> Cause | None:
    groups: dict[str, list[tuple[str, ...]]] = {}
    for item in scored:
        groups.setdefault(item.trajectory.task.id, []).append(tuple(turn.text for turn in item.trajectory.turns))
    large = [texts for texts in groups.values() if len(texts) > 1]
    if not large or any(len(set(texts)) > 1 for texts in large):
        return None
    seen = "the rollouts of each task are copies of each other"
    return Cause(CauseKind.SAME_ROLLOUTS, seen, "Sample with `rollout.temperature: 1.0`.", 0)


def _gold_cause(scored: Sequence[Scored], setting: DiagnosisSetting) -> Cause | None:
    found = find_gold_cause([item.trajectory for item in scored], setting.gold_key, setting.gold_column)
    return None if found is None else Cause(CauseKind(found.kind), found.seen, found.advice, found.k)


def _same_prompts(scored: Sequence[Scored], setting: DiagnosisSetting) -> Cause | None:
    found = find_same_prompts([item.trajectory.task for item in scored], setting.gold_key)
    return None if found is None else Cause(CauseKind(found.kind), found.seen, found.advice, found.k)


def _constant(scored: Sequence[Scored]) -> Cause:
    terms = ", ".join(f"{score.term} {score.contribution:g}" for score in scored[0].scores)
    if len(_distinct_rewards(scored)) == 1:
        seen = f"the reward is the same whatever the policy does ({terms})"
        advice = "Try the terms with `rlf rewards attack SPEC`, and see that they separate good from bad trajectories."
    else:
        seen = f"rewards differ between tasks, never between the rollouts of one (those of the first: {terms})"
        advice = "Take tasks that the model sometimes solves, or more `rollout.num_generations`."
    return Cause(CauseKind.CONSTANT_REWARD, seen, advice, 0)


def _too_hard(scored: Sequence[Scored]) -> list[Cause]:
    """That all answers are wrong, behind a limit which cuts some: what was left to answer may be the easy way out."""
    cuts = [cause for check in (_find_truncation, _out_of_turns) if (cause := check(scored, None, _SOME)) is not None]
    found = _showing(scored, lambda item: item.trajectory.answer is not None)
    if not found:
        return cuts
    answered = [scored[k] for k in found]
    reasons = Counter(item.scores[0].reason for item in answered if item.scores and item.scores[0].reason)
    why = f", e.g. {quote(reasons.most_common(1)[0][0])}" if reasons else ""
    seen = f"{len(found)} of {len(scored)} gave an answer and none is right{why}"
    advice = "Start from a model that solves some of the questions, from easier questions, or from demonstrations."
    return [*cuts, Cause(CauseKind.TOO_HARD, seen, advice, found[0])]


_CHECKS: tuple[Check, ...] = (_same_prompts, _find_truncation, _out_of_turns, _same_rollouts)
_EXPLAIN_FAILURE = {CauseKind.NOT_SCORED, CauseKind.TRUNCATED, CauseKind.NEVER_PARSED, CauseKind.TOOLS_FAIL}
_EXPLAIN_FAILURE |= {CauseKind.OUT_OF_TURNS, CauseKind.SAME_PROMPTS}
"""Causes beside which wrong answers need no other."""


_FEW_FOUND = 0.05
"""Share of the trajectories in which a column beside the golds must be found."""
_SHORT = 3
"""Characters up to which a value is looked for as a whole answer only, since it stands in many texts by chance."""
_MAX_CHARS = 20_000
"""Of each text that is looked into."""


@dataclass(frozen=True, slots=True)
class GoldCause:
    """A fault of golds, of how they are compared, or of what answers them."""

    seen: str
    advice: str
    k: int
    """Position of a trajectory that shows it."""
    kind: Literal["answer_column", "comparison", "results_cut", "same_prompts"] = "answer_column"
    """The fault's name among causes; `comparison` where answers hold the golds."""


def find_gold_cause(trajectories: Sequence[Trajectory], key: str, column: str | None) -> GoldCause | None:
    """The fault of the golds of trajectories of which none succeeded; None where nothing can be seen.

    Args:
        key: The key that names the column of golds, for advice.
        column: That column.
    """
    texts = [_Texts.of(trajectory) for trajectory in trajectories]
    return (
        _missing(trajectories, key)
        or _held_by_answers(trajectories, texts)
        or _other_column(trajectories, texts, key, column)
        or _one_gold(trajectories, key)
        or _found_nowhere(trajectories, texts, key)
    )


def find_same_prompts(tasks: Sequence[Task], key: str) -> GoldCause | None:
    """Tasks whose golds differ and whose prompts do not, so that no prompt can hold the question."""
    prompts = ["\n".join(message.content for message in task.messages) for task in tasks]
    golds: dict[str, set[str]] = {}
    for task, prompt in zip(tasks, prompts, strict=True):
        golds.setdefault(prompt, set()).add(str(task.answer))
    found = {task.id: k for k, task in enumerate(tasks) if len(golds[prompts[k]]) > 1}
    num_tasks, data = len({task.id for task in tasks}), key.rpartition(".")[0]
    if not found or 2 * len(found) < num_tasks:
        return None
    seen = f"{len(found)} of {num_tasks} tasks have a prompt that another one with a different gold has too"
    advice = f"See that `{data}.prompt` names the column of questions, or that `{data}.template` holds it."
    return GoldCause(seen, advice, next(iter(found.values())), "same_prompts")


@dataclass(frozen=True, slots=True)
class _Texts:
    """A trajectory's texts as they are compared."""

    question: str
    answer: str
    results: tuple[str, ...]

    @staticmethod
    def of(trajectory: Trajectory) -> _Texts:
        results = [r.result.text for r in trajectory.calls if r.result.outcome is Outcome.OK]
        question, answer, *read = map(
            _normal, (trajectory.task.messages[-1].content, trajectory.answer or "", *results)
        )
        return _Texts(question, answer, tuple(read))

    def is_answered(self, value: str) -> bool:
        return value == self.answer or _stands_in(value, self.answer)

    def is_found(self, value: str) -> bool:
        return self.is_answered(value) or any(_stands_in(value, result) for result in self.results)


def _normal(text: str) -> str:
    return normalize(text[:_MAX_CHARS])


def _stands_in(value: str, text: str) -> bool:
    return len(value) > _SHORT and f" {value} " in f" {text} "


def _column_values(gold: Any) -> list[str]:
    """The texts of a gold or a column, which may be a list of right answers."""
    items = gold if isinstance(gold, list | tuple) else [gold]
    texts = [_normal(str(item)) for item in items if isinstance(item, str | int | float)]
    return [text for text in texts if text]


def _missing(trajectories: Sequence[Trajectory], key: str) -> GoldCause | None:
    """Golds that are there and empty; a set without golds is for terms that need none."""
    empty = [k for k, t in enumerate(trajectories) if t.task.answer is not None and not str(t.task.answer).strip()]
    if 2 * len(empty) <= len(trajectories):
        return None
    seen = f"{len(empty)} of {len(trajectories)} questions have an empty gold"
    return GoldCause(seen, f"Name the column of answers in `{key}`.", empty[0])


def _held_by_answers(trajectories: Sequence[Trajectory], texts: Sequence[_Texts]) -> GoldCause | None:
    found = [
        k for k, t in enumerate(trajectories) if any(texts[k].is_answered(v) for v in _column_values(t.task.answer))
    ]
    if len(found) < _least(trajectories):
        return None
    seen = f"{len(found)} answers hold the gold and none counts as right"
    advice = "Look at how the first reward term compares: its extraction, its normalization, or its gate."
    return GoldCause(seen, advice, found[0], "comparison")


def _least(trajectories: Sequence[Trajectory]) -> float:
    return max(2, _FEW_FOUND * len(trajectories))


def _other_column(
    trajectories: Sequence[Trajectory], texts: Sequence[_Texts], key: str, column: str | None
) -> GoldCause | None:
    found: dict[str, list[int]] = {}
    for k, trajectory in enumerate(trajectories):
        for name, value in trajectory.task.columns.items():
            if name != column and any(
                v not in texts[k].question and texts[k].is_found(v) for v in _column_values(value)
            ):
                found.setdefault(name, []).append(k)
    if not found:
        return None
    name, places = max(found.items(), key=lambda item: len(item[1]))
    if len(places) < _least(trajectories):
        return None
    golds = sum(any(texts[k].is_found(v) for v in _column_values(t.task.answer)) for k, t in enumerate(trajectories))
    if golds >= len(places):
        return None
    seen = f"column {name!r} is found in answers or tool results of {len(places)} of {len(trajectories)} trajectories, "
    seen += f"the gold in those of {golds}"
    return GoldCause(seen, f"Probably meant: `{key}: {name}`{f', not {column}' if column else ''}.", places[0])


def _one_gold(trajectories: Sequence[Trajectory], key: str) -> GoldCause | None:
    golds = {t.task.id: str(t.task.answer) for t in trajectories if t.task.answer is not None}
    if len(golds) < 8 or len(set(golds.values())) > 1:
        return None
    seen = f"all {len(golds)} questions have the gold {next(iter(golds.values()))!r}"
    return GoldCause(seen, f"See that `{key}` names the column of answers.", 0)


def _found_nowhere(trajectories: Sequence[Trajectory], texts: Sequence[_Texts], key: str) -> GoldCause | None:
    """Tools gave results in many trajectories and these were cut, or in most, and no gold stands in any of them."""
    looked = [k for k, t in enumerate(trajectories) if texts[k].results and _column_values(t.task.answer)]
    num_found = sum(any(texts[k].is_found(v) for v in _column_values(trajectories[k].task.answer)) for k in looked)
    results = [(k, record.result) for k in looked for record in trajectories[k].calls]
    cut = [k for k, result in results if result.truncated]
    if 5 * len(looked) >= len(trajectories) and 2 * len(cut) > len(results) and num_found <= _FEW_FOUND * len(looked):
        seen = f"{len(cut)} of {len(results)} tool results were cut to the tool's budget, and hardly a gold is left"
        advice = "Write more for `limits.max_output_chars` or `limits.max_output_tokens` of the tool."
        return GoldCause(seen, advice, cut[0], "results_cut")
    if 2 * len(looked) < len(trajectories) or num_found:
        return None
    example = trajectories[looked[0]]
    seen = f"no gold stands in any answer or tool result, e.g. {str(example.task.answer)[:80]!r}"
    return GoldCause(seen, f"See that `{key}` names the column of answers.", looked[0])
