"""Likely causes why a run got worse or did not learn, each by what only it would leave behind.

Tools and rewards are judged by what they said of the same thing before and after, so that a policy that changes does
not look like a tool that does; the policy is suspected last, of a fall that nothing else explains. Pure.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

from rlf.apps.evaluate.breaks import Break, Figure, find_breaks, latency_points, points_of, ran
from rlf.lineage.records import StoredTrajectory, TrainingStep
from rlf.reports.sheets import counted, decimal, duration, percent
from rlf.reports.statistics import wilson_interval
from rlf.rewards.normalization import golds, holds, normalize, same_text
from rlf.rollout.diagnosis import find_causes
from rlf.rollout.signal import CauseKind, DiagnosisSetting, Signal, quote
from rlf.types.tool import Outcome

_SHOWN = 3
"""Trajectories that show a cause."""
_SLOWER, _SLOWER_S = 4.0, 0.1
"""How many times as long, and how much longer, a call takes that has become slow, than in any step before."""
_FEW_CALLS = 4
"""Calls, or answers, made on both sides of a step that say whether what they got has changed."""
_STEADY = 0.05
"""Share of results that may change by themselves in a tool or a term of which a change says something."""
_WRONG_GROUPS, _WRONG_SHARE = 4, 0.04
"""Groups that agree on another answer than the gold, and their share, from which golds are suspected."""
_SUPPORTED = 0.8
"""Share of the groups that are right in which a result holds the gold, for its absence to say something."""
_LEAKED, _LEAKED_SHARE = 2, 0.02
_PAYS = 0.5
"""Share of the order within groups that another term decides from which it is what is learned."""
_CUT_TO = 0.6
"""Length of cut results as a share of what they were."""


class BreakKind(StrEnum):
    """A reason why a run gets worse, or seems better than it is, beside those why nothing can be learned."""

    LEAK = "leak"
    """Held-out questions are trained on."""
    REWARD_CHANGED = "reward_changed"
    """A reward term gives the same answer to the same question another value than before."""
    TOOL_LIES = "tool_lies"
    """A tool returns other results to the same calls than before."""
    TOOL_SLOW = "tool_slow"
    """A tool's calls take many times as long as before."""
    OTHER_TERM_PAYS = "other_term_pays"
    """The reward rises by another term than the one that is success."""
    WRONG_GOLDS = "wrong_golds"
    """Some golds are not what tools and policy say, in a run that is right elsewhere."""
    POLICY_BROKE = "policy_broke"
    """The policy itself changed for the worse, as by a learning rate that is too high."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A likely cause."""

    kind: CauseKind | BreakKind
    step: int
    """The first at which it is seen; 1 from the start."""
    seen: str
    """The evidence, with figures."""
    refuted_by: str
    """What would show that it is another cause."""
    advice: str
    shows: tuple[tuple[str, int, int], ...]
    """Trajectories that show it: phase, step and position."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What is read of a run."""

    trained: Sequence[StoredTrajectory]
    """In the order of their steps."""
    evaluated: Sequence[StoredTrajectory]
    steps: Sequence[TrainingStep]
    breaks: Mapping[str, Sequence[Break]]
    fall: Break | None
    """Of success."""
    setting: DiagnosisSetting
    settings: str
    """Keys whose values bear on the policy, for people."""


def place(item: StoredTrajectory) -> tuple[str, int, int]:
    """Where a trajectory is found."""
    return item.summary.phase, item.summary.step, item.summary.k


def find_suspects(run: Recorded) -> list[Suspect]:
    """The likely causes: those that begin with the fall of success first, then in the order of the checks."""
    found = [suspect for check in _CHECKS for suspect in check(run)]
    if run.fall is None:
        return found
    step = run.fall.step
    near = [one for one in found if abs(one.step - step) <= 1 or one.kind is BreakKind.OTHER_TERM_PAYS]
    if not near:
        near = list(_broken_policy(run, run.fall))
    return [*near, *(one for one in found if one not in near)]


# What the data gives away.


def _leaks(run: Recorded) -> Iterator[Suspect]:
    trained: dict[tuple[str, str], StoredTrajectory] = {}
    for item in run.trained:
        trained.setdefault(_question(item), item)
    by_task = {item.summary.task_id: item for item in run.evaluated if item.summary.gold is not None}
    leaked = [item for item in by_task.values() if _question(item) in trained]
    if len(leaked) < _LEAKED or len(leaked) < _LEAKED_SHARE * len(by_task):
        return
    ids = {item.summary.task_id for item in leaked}
    seen = f"{len(leaked)} of {len(by_task)} held-out questions were trained on, word for word and with the same gold"
    rest = [item.summary.success for item in run.evaluated if item.summary.task_id not in ids]
    known = [value for value in rest if value is not None]
    refuted = "the same rise on held-out questions that are not among them"
    if known:
        refuted += f" (success on those: {percent(fmean(known))} over all evaluations)"
    shows = tuple(place(one) for item in leaked[:1] for one in (item, trained[_question(item)]))
    yield Suspect(BreakKind.LEAK, 1, seen, refuted, "Take these rows out of `data.train`.", shows)


def _question(item: StoredTrajectory) -> tuple[str, str]:
    task = item.scored.trajectory.task
    return "\n".join(message.content for message in task.messages), str(task.answer)


def _wrong_golds(run: Recorded) -> Iterator[Suspect]:
    """Groups of the last half that agree on an answer which a tool gave them, while no tool knows the gold."""
    groups = [each for each in _groups(_late(run)) if len(each) > 2 and each[0].summary.gold is not None]
    right = [each for each in groups if all(item.summary.success == 1.0 for item in each)]
    if len(right) < len(groups) / 2 or not right:
        return
    if fmean(_holds_gold(each) for each in right) < _SUPPORTED:
        return
    wrong = [each for each in groups if _agreed(each) and not _holds_gold(each)]
    share, low = len(wrong) / len(groups), wilson_interval(len(wrong), len(groups)).low
    if len(wrong) < _WRONG_GROUPS or low < _WRONG_SHARE / 2 or share < _WRONG_SHARE:
        return
    first = wrong[0][0].summary
    seen = (
        f"in {len(wrong)} of the last {len(groups)} groups all rollouts give one answer, which a tool's result holds, "
        f"and the gold is in no result; where they are right, it is in {percent(_SUPPORTED)} of the groups or more. "
        f"E.g. {first.task_id}: answered {quote(str(first.answer))}, gold {quote(str(first.gold))}"
    )
    refuted = "the golds of these tasks, looked up by hand, are right; or they are all of one kind that is too hard"
    shows = tuple(place(each[0]) for each in wrong[:_SHOWN])
    yield Suspect(BreakKind.WRONG_GOLDS, 1, seen, refuted, "Look these rows up in `data.train`.", shows)


def _groups(items: Sequence[StoredTrajectory]) -> list[list[StoredTrajectory]]:
    found: dict[tuple[int, str], list[StoredTrajectory]] = defaultdict(list)
    for item in items:
        if item.summary.reward is not None:
            found[item.summary.step, item.summary.task_id].append(item)
    return list(found.values())


def _holds(group: Sequence[StoredTrajectory], words: str) -> bool:
    return any(holds(one.result.text, words) for item in group for one in ran(item))


def _holds_gold(group: Sequence[StoredTrajectory]) -> bool:
    return any(_holds(group, gold) for gold in golds(group[0].summary.gold))


def _agreed(group: Sequence[StoredTrajectory]) -> bool:
    answers = {normalize(item.summary.answer or "") for item in group}
    is_one = len(answers) == 1 and "" not in answers and not any(item.summary.success for item in group)
    return is_one and _holds(group, next(iter(answers)))


def _late(run: Recorded) -> list[StoredTrajectory]:
    """The trajectories of the last half of the steps."""
    half = run.steps[len(run.steps) // 2].step if run.steps else 0
    return [item for item in run.trained if item.summary.step >= half]


# What rewards and tools say of the same thing, before and after.


def _changed_rewards(run: Recorded) -> Iterator[Suspect]:
    for term in dict.fromkeys(score.term for item in run.trained for score in item.scored.scores):
        for is_right in (True, False):
            figure = Figure(
                f"{term} of answers that {'are' if is_right else 'are not'} the gold", _paid(term, is_right), 0.3
            )
            breaks = find_breaks(figure.name, points_of(run.trained, figure), figure.least)
            if breaks and _goes_by_answer(run.trained, figure, breaks[0].step):
                yield _changed_reward(run, term, breaks[0], figure)
                break


def _paid(term: str, is_right: bool) -> Callable[[StoredTrajectory], float | None]:
    def value(item: StoredTrajectory) -> float | None:
        gold, answer = item.summary.gold, item.summary.answer
        if gold is None or answer is None or any(same_text(answer, one) for one in golds(gold)) is not is_right:
            return None
        return next((score.value for score in item.scored.scores if score.term == term), None)

    return value


def _goes_by_answer(items: Sequence[StoredTrajectory], figure: Figure, step: int) -> bool:
    """Whether a term gave all such answers one value, on either side of a step: one that reads calls may not."""
    sides: tuple[Counter[float], Counter[float]] = Counter(), Counter()
    for item in items:
        if (value := figure.value(item)) is not None:
            sides[item.summary.step >= step][value] += 1
    return all(side and max(side.values()) >= (1 - _STEADY) * side.total() for side in sides)


def _changed_reward(run: Recorded, term: str, one: Break, figure: Figure) -> Suspect:
    seen = (
        f"from step {one.step} on {term!r} gives {one.figure.removeprefix(f'{term} of ')} {decimal(one.after)}, "
        f"before {decimal(one.before)} in the mean"
    )
    refuted = "`rlf rewards score SPEC --run RUN` gives answers of both sides the values that they had"
    shows = [item for item in run.trained if item.summary.step >= one.step and figure.value(item) is not None]
    advice = f"Look at what {term!r} reads: its file, its service, what it keeps."
    return Suspect(BreakKind.REWARD_CHANGED, one.step, seen, refuted, advice, tuple(map(place, shows[:_SHOWN])))


def _missing_rewards(run: Recorded) -> Iterator[Suspect]:
    for one in run.breaks.get("without a reward", ())[:1]:
        if one.after > one.before:
            lost = [item for item in run.trained if item.summary.step >= one.step and item.summary.reward is None]
            terms = Counter(
                score.term for item in lost for score in item.scored.scores if score.value is None and score.weight
            )
            errors = Counter(item.summary.error for item in lost if item.summary.error)
            (why, _), *_ = (terms or errors or Counter({"no reason is recorded": 1})).most_common(1)
            seen = (
                f"from step {one.step} on {percent(one.after)} of the trajectories have no reward, before "
                f"{percent(one.before)}: {why}"
            )
            refuted = "they have values when they are scored again (`rlf rewards score SPEC --run RUN`)"
            shows = tuple(place(item) for item in lost[:_SHOWN])
            yield Suspect(CauseKind.NOT_SCORED, one.step, seen, refuted, "Fix what failed there.", shows)


def _failing_tools(run: Recorded) -> Iterator[Suspect]:
    for tool in _tools(run):
        for one in run.breaks.get(f"failed calls of {tool}", ()):
            if one.after < one.before + 0.2:
                continue
            new = [
                (item, call)
                for item in run.trained
                if item.summary.step >= one.step
                for call in ran(item, tool)
                if call.result.outcome is not Outcome.OK
            ]
            known = {
                json.dumps(dict(call.call.arguments), sort_keys=True)
                for item in run.trained
                if item.summary.step < one.step
                for call in ran(item, tool)
                if call.result.outcome is Outcome.OK
            }
            again = sum(json.dumps(dict(call.call.arguments), sort_keys=True) in known for _, call in new)
            texts = Counter(call.result.text for _, call in new)
            seen = (
                f"from step {one.step} on {percent(one.after)} of the calls of {tool!r} fail, before "
                f"{percent(one.before)}; most often {quote(texts.most_common(1)[0][0])}; {counted(again, 'call')} "
                "of them had given a result before"
            )
            refuted = f"the same arguments, called by hand (`rlf tools test`), failed before step {one.step} too"
            shows = tuple(dict.fromkeys(place(item) for item, _ in new))[:_SHOWN]
            advice = f"Check what is behind {tool!r} since step {one.step}."
            yield Suspect(CauseKind.TOOLS_FAIL, one.step, seen, refuted, advice, shows)
            break


def _slow_tools(run: Recorded) -> Iterator[Suspect]:
    for tool in _tools(run):
        points = latency_points(run.trained, tool)
        for one in run.breaks.get(f"seconds a call of {tool}", ()):
            # A machine that is busy is slow in some steps before it, too.
            slowest = max(point.value for point in points if point.step < one.step)
            if one.after < max(_SLOWER * slowest, slowest + _SLOWER_S):
                continue
            took = {each.step: each.metrics.get("time/step_s", 0.0) for each in run.steps}
            before, after = (
                fmean([s for step, s in took.items() if (step >= one.step) is side] or [0.0]) for side in (False, True)
            )
            seen = (
                f"from step {one.step} on a call of {tool!r} takes {decimal(one.after)} s in the median, before "
                f"{decimal(one.before)} s; a step {duration(after)}, before {duration(before)}"
            )
            refuted = f"other tools have become slow at step {one.step} too: then it is the machine"
            slow = [item for item in run.trained if item.summary.step >= one.step and ran(item, tool)]
            shows = tuple(place(item) for item in slow[:_SHOWN])
            advice = f"Look at what {tool!r} waits for, and at its limits.max_concurrency."
            yield Suspect(BreakKind.TOOL_SLOW, one.step, seen, refuted, advice, shows)
            break


def _tools(run: Recorded) -> list[str]:
    return sorted({one.call.name for item in run.trained for one in ran(item)})


def _changed_tools(run: Recorded) -> Iterator[Suspect]:
    """Tools that answer the same call otherwise than before, and always did answer it alike until then."""
    for tool in _tools(run):
        results = _results(run, tool)
        steps = sorted({step for found in results.values() for step, _, _ in found})
        changes = [(step, *_compare(results, step)) for step in steps[1:]]
        likely = [(step, before, after) for step, before, after in changes if _has_changed(before, after)]
        if not likely:
            continue
        step, _, after = max(likely, key=lambda one: sum(one[2]) / len(one[2]) - fmean(one[1]))
        yield _changed_tool(run, tool, step, after, results)


_Result = tuple[int, str, StoredTrajectory]


def _results(run: Recorded, tool: str) -> dict[str, list[_Result]]:
    """Results by arguments, of calls that were made at several steps; none from a cache, which would hide a change."""
    found: dict[str, list[_Result]] = defaultdict(list)
    for item in (*run.trained, *run.evaluated):
        for one in ran(item, tool):
            if one.result.outcome is Outcome.OK and not one.result.cached:
                # An evaluation comes after the step that it is counted with.
                step = item.summary.step + (item.summary.phase != "train")
                found[json.dumps(dict(one.call.arguments), sort_keys=True)].append((step, one.result.text, item))
    return {
        key: sorted(each, key=lambda one: one[0]) for key, each in found.items() if len({one[0] for one in each}) > 1
    }


def _compare(results: Mapping[str, Sequence[_Result]], step: int) -> tuple[list[bool], list[bool]]:
    """Whether results differ among calls of before a step, and between either side of it; one value for each call."""
    before, after = list[bool](), list[bool]()
    for found in results.values():
        early = {text for at, text, _ in found if at < step}
        late = {text for at, text, _ in found if at >= step}
        if sum(at < step for at, _, _ in found) > 1:
            before.append(len(early) > 1)
        if early and late:
            after.append(not early & late)
    return before, after


def _has_changed(before: Sequence[bool], after: Sequence[bool]) -> bool:
    if min(len(after), len(before)) < _FEW_CALLS or fmean(before) > _STEADY:
        return False
    return wilson_interval(sum(after), len(after)).low > 0.25


def _changed_tool(
    run: Recorded, tool: str, step: int, after: Sequence[bool], results: Mapping[str, Sequence[_Result]]
) -> Suspect:
    pairs = [
        (early[-1], late[0])
        for found in results.values()
        if (early := [one for one in found if one[0] < step]) and (late := [one for one in found if one[0] >= step])
        and early[-1][1] != late[0][1]
    ]  # fmt: skip
    is_cut = fmean(len(late[1]) <= _CUT_TO * len(early[1]) for early, late in pairs) > 0.5
    first, then = pairs[0]
    seen = (
        f"from step {step} on {sum(after)} of {len(after)} calls of {tool!r} that had been made before get "
        f"{'a much shorter' if is_cut else 'another'} result; e.g. {quote(first[1])} became {quote(then[1])}"
    )
    refuted = "what the tool reads was meant to change then; or it answers by chance, or by the state of a world"
    advice = f"Run `rlf tools test` on {tool!r}, and look at what it reads since step {step}."
    kind = CauseKind.RESULTS_CUT if is_cut else BreakKind.TOOL_LIES
    return Suspect(kind, step, seen, refuted, advice, (place(first[2]), place(then[2])))


# What the policy shows.


def _other_terms(run: Recorded) -> Iterator[Suspect]:
    terms = list(dict.fromkeys(score.term for item in run.trained for score in item.scored.scores))
    success = [each.metrics["success"] for each in run.steps if "success" in each.metrics]
    reward = [each.metrics["reward/mean"] for each in run.steps if "reward/mean" in each.metrics]
    spread = [each.metrics["reward/std"] for each in run.steps if "reward/std" in each.metrics]
    if len(terms) < 2 or len(success) < 6:
        return
    third = len(success) // 3
    rise = fmean(reward[-third:]) - fmean(reward[: max(1, third // 3)])
    gain = fmean(success[-third:]) - fmean(success[: max(1, third // 3)])
    if rise < 0.5 * fmean(spread[: max(1, third)]) or gain > 0.05 or fmean(success[-third:]) >= 0.9:
        return
    shares = {
        term: fmean(
            [each.metrics[name] for each in run.steps if (name := f"rewards/{term}/share") in each.metrics] or [0]
        )
        for term in terms[1:]
    }
    term, share = max(shares.items(), key=lambda one: one[1])
    if share < _PAYS:
        return
    order = f"{percent(min(share, 1.0))} of the order within groups is by {term!r}"
    seen = f"the reward rose by {decimal(rise)} and success by {100 * gain:+.0f} points; {order}"
    late = [item for item in _late(run) if item.summary.success == 0.0 and item.summary.reward is not None]
    best = sorted(late, key=lambda item: -(item.summary.reward or 0.0))[:_SHOWN]
    refuted = f"a run with a smaller weight of {term!r} learns no better"
    yield Suspect(
        BreakKind.OTHER_TERM_PAYS, 1, seen, refuted, f"Lower the weight of {term!r}.", tuple(map(place, best))
    )


def _nothing_to_learn(run: Recorded) -> Iterator[Suspect]:
    """What the diagnosis of steps without a signal names, of the first steps of a run that did not learn."""
    values = [each.metrics["success"] for each in run.steps if "success" in each.metrics]
    third = max(1, len(values) // 3)
    learned = bool(values) and (fmean(values[-third:]) >= 0.5 or fmean(values[-third:]) > values[0] + 0.2)
    if run.fall is not None or learned:
        return
    first = run.steps[min(2, len(run.steps) - 1)].step if run.steps else 0
    items = [item for item in run.trained if item.summary.step <= first]
    scored = [item.scored for item in items]
    if not scored:
        return
    successes = [item.success for item in scored if item.success is not None]
    signal = Signal.SOME if any(successes) else Signal.NO_SUCCESS
    if all(item.reward is None for item in scored):
        signal = Signal.NOT_SCORED
    for cause in find_causes(scored, signal, run.setting):
        refuted = "success stays as it is when this alone is changed"
        yield Suspect(cause.kind, 1, cause.seen, refuted, cause.advice, (place(items[cause.shows]),))


def _broken_policy(run: Recorded, fall: Break) -> Iterator[Suspect]:
    """A fall of success with a change of what the policy does, where tools and rewards are as they were."""
    own = ("calls a trajectory", "tokens sampled", "turns that could not be read", "answered", "cut by a token budget")
    changed = [
        one
        for name in (*own, "policy/entropy", "policy/kl_old", "policy/clip_fraction", "policy/grad_norm")
        for one in run.breaks.get(name, ())
        if abs(one.step - fall.step) <= 2
    ]
    if not changed:
        return
    words = ", ".join(f"{one.figure} {decimal(one.before)} to {decimal(one.after)}" for one in changed)
    seen = (
        f"success fell at step {fall.step} from {percent(fall.before)} to {percent(fall.after)}, and with it the "
        f"policy changed: {words}; tools and rewards answer as before ({run.settings})"
    )
    refuted = "the same spec with a tenth of train.learning_rate falls at the same step"
    shows = [item for item in run.trained if item.summary.step >= fall.step and item.summary.success == 0.0]
    yield Suspect(
        BreakKind.POLICY_BROKE,
        fall.step,
        seen,
        refuted,
        f"Fork the run before step {fall.step} with a lower train.learning_rate.",
        tuple(place(item) for item in shows[:_SHOWN]),
    )


_CHECKS: tuple[Callable[[Recorded], Iterator[Suspect]], ...] = (
    _leaks,
    _missing_rewards,
    _changed_tools,
    _failing_tools,
    _changed_rewards,
    _slow_tools,
    _other_terms,
    _nothing_to_learn,
    _wrong_golds,
)
