"""Terms tried on trajectories with known values: their `tests:`, and what must hold of every term."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from rlf.core import RlfError
from rlf.core.plain_json import Jsonable
from rlf.rewards.facts import Example, TrajectoryFacts
from rlf.rewards.function import RewardFunction
from rlf.rewards.kinds.rule import Rule
from rlf.rewards.term import KnownSample, RewardContext, Term
from rlf.types import FailureClass, Score, Scored, ScoreState

_TOLERANCE = 1e-6
_ANY = (-math.inf, math.inf)
_LONG_ANSWER = "and so it continues without an end " * 500
_LONG_TURNS = [
    *[{"text": "next " * 100, "calls": [{"name": "tool", "arguments": {"input": "x" * 1000}, "result": "y " * 1000}]}]
    * 30,
    {"text": _LONG_ANSWER},
]
"""More turns, calls and words than a term usually meets: it must come to a value in time and stay within its range."""
_UNASKED = ("empty", "malformed")
"""What has no answer, so that no judge and no tool may be asked of it."""
_UNREADABLE = {"text": "<tool_call>{", "failures": [FailureClass.UNTERMINATED]}


@dataclass(frozen=True, slots=True)
class Trial(Jsonable):
    """One trajectory that a term was tried on."""

    term: str
    what: str
    """`tests[0]` ..., `gold`, `empty`, `malformed`, `short` or `long`."""
    expected: str
    """In words."""
    value: float | None
    """The term's own, before scale and weight."""
    reason: str
    shortfalls: tuple[str, ...]
    """What does not hold, in words; empty where all does."""
    is_missing: bool = field(default=False, metadata={"json": None})
    """Whether there was nothing to try: `reason` says what to add."""
    file: Path = Path()
    """What declares the term."""
    JSON_PROPERTIES: ClassVar = ("ok",)

    @property
    def ok(self) -> bool | None:
        """Whether all holds; None where there was nothing to try."""
        return None if self.is_missing else not self.shortfalls


async def try_terms(terms: Sequence[Term], context: RewardContext, row: TrajectoryFacts | None = None) -> list[Trial]:
    """Tries each term by itself on its trajectories, twice, whatever its gate says.

    A term that cannot be opened is untested. Raises RlfError for one that is declared wrongly.

    Args:
        row: the task of a term that has no test: a spec's own question, gold and columns.
    """
    return [trial for term in terms for trial in await _try_term(term, terms, context, row)]


async def _try_term(
    term: Term, terms: Sequence[Term], context: RewardContext, row: TrajectoryFacts | None
) -> list[Trial]:
    known = {column for each in (*term.tests, *filter(None, [row])) for column in each.columns}
    if missing := [column for column in term.columns if column not in known]:
        why = f"it reads {', '.join(map(repr, missing))} of the task's row. Name the spec, whose rows have it,"
        return [_untested(term, f"{why} or add a test with `columns`.")]
    alone = {"when": None, "scale": 1.0, "clip": None, "weight": 1.0, "required": False, "hidden": False, "every": 1}
    tried = term.model_copy(update=alone)
    wanted = list(_list_wanted(term, row))
    trajectories = [each.facts.trajectory() for each in wanted]
    reward = RewardFunction([tried, *_read_by(tried, terms)], context)
    try:
        async with reward as function:
            once = await function.score_all(trajectories, step=1)
            asked = [one.scores[0] for each, one in zip(wanted, once, strict=True) if each.what not in _UNASKED]
            if all(score.state is ScoreState.UNANSWERED for score in asked):  # who waited a minute does not wait again
                return [_untested(term, f"of {len(asked)} trajectories none had an answer: {asked[0].reason}")]
            again = await function.score_all(trajectories, step=1)
    except RlfError as error:  # a judge or a service that is not there leaves the other terms to be tried
        return [_untested(term, str(error))]
    tried_on = zip(wanted, once, again, strict=True)
    trials = [(each, _make_trial(tried, each, one, other)) for each, one, other in tried_on]
    kept = [trial for each, trial in trials if not (each.is_guess and trial.shortfalls)]
    shows_best = not term.best_is_known or any(_is_gold(term, trial) for trial in kept)
    return kept if shows_best else [*kept, _no_gold(term)]


def _is_gold(term: Term, trial: Trial) -> bool:
    """Whether a trial shows the best that the term can say."""
    if trial.what == "gold":
        return True
    full, value = _full_value(term), trial.value
    if value is None or not trial.what.startswith("tests"):
        return False
    return value <= full + _TOLERANCE if _is_penalty(term) else value >= full - _TOLERANCE


def _no_gold(term: Term) -> Trial:
    full = _full_value(term)
    known = f"no test reaches {full:g}, the best value. Add one under `tests:`."
    open_ = "the term has no best value, since its range is open. Declare e.g. `range: [0, 1]` and add a test."
    return _untested(term, known if math.isfinite(full) else open_)


def _untested(term: Term, why: str) -> Trial:
    return Trial(term.name, "gold", "", None, f"untested: {why}", (), is_missing=True)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A trajectory and what its value must be."""

    what: str
    facts: TrajectoryFacts
    least: float = -math.inf
    most: float = math.inf
    unscorable: bool | None = False
    """Whether there must be no value; None: there may be none."""
    is_guess: bool = False
    """Whether it need not hold: with other options what a rule shows of itself may be gold, or not."""

    @property
    def words(self) -> str:
        if self.unscorable:
            return "unscorable"
        if math.isfinite(self.least) and math.isfinite(self.most):
            return f"{(self.least + self.most) / 2:g}"
        if self.what == "long" and math.isfinite(self.most):
            return f"less than {self.most + 2 * _TOLERANCE:g}"
        if math.isfinite(self.least):
            return f"at least {self.least + _TOLERANCE:g}"
        return f"at most {self.most - _TOLERANCE:g}" if math.isfinite(self.most) else "no fault"


def _list_wanted(term: Term, row: TrajectoryFacts | None) -> Iterator[_Wanted]:
    """The declared examples; a rule's gold, or that of a row where it may be one; and what must not gain."""
    for number, example in enumerate(term.tests):
        yield _want_declared(f"tests[{number}]", example)
    full = _full_value(term)
    best = term.best_facts(full) if math.isfinite(full) else None
    if best is not None:
        yield _Wanted("gold", TrajectoryFacts.model_validate(best), full - _TOLERANCE, full + _TOLERANCE)
    sample = term.sample if isinstance(term, Rule) else None
    if sample is not None:
        facts, as_shown = TrajectoryFacts.model_validate(sample.gold), _has_options_of(term, sample)
        most = sample.best + _TOLERANCE if as_shown else math.inf
        if as_shown or not _is_penalty(term):
            yield _Wanted("gold", facts, _full_value(term) - _TOLERANCE, most, is_guess=not as_shown)
    if best is None and sample is None and row is not None and row.gold is not None and math.isfinite(full):
        answer = row.gold[0] if isinstance(row.gold, list | tuple) and row.gold else row.gold
        facts = TrajectoryFacts.model_validate({**_task_of(row), "answer": str(answer)})
        yield _Wanted("gold", facts, full - _TOLERANCE, full + _TOLERANCE, is_guess=True)
    base: TrajectoryFacts | None = next(iter(term.tests), None)
    if sample is not None and (base is None or _has_options_of(term, sample)):
        base = TrajectoryFacts.model_validate(sample.gold)
    task = _task_of(base or row or TrajectoryFacts())
    for what, turns in zip(_UNASKED, ([], [_UNREADABLE]), strict=True):
        facts = TrajectoryFacts.model_validate({**task, "turns": turns})
        yield _Wanted(what, facts, *_gains_nothing(term), unscorable=None)
    if not term.best_is_known:  # of a judge: what it is asked must not be the long one alone, which may be too much
        yield _Wanted("short", TrajectoryFacts.model_validate({**task, "answer": "A short answer."}), unscorable=None)
    facts = TrajectoryFacts.model_validate({**task, "answer": _LONG_ANSWER, "turns": _LONG_TURNS})
    yield _Wanted("long", facts, *_short_of_gold(term), unscorable=None)


def _task_of(facts: TrajectoryFacts) -> dict[str, Any]:
    return {"question": facts.question, "gold": facts.gold, "columns": facts.columns}


def _gains_nothing(term: Term) -> tuple[float, float]:
    """Bounds of values that add nothing to the reward; none where the term adds nothing anyway, or a gate decides."""
    if term.when is not None or term.peak_weight == 0:
        return _ANY
    return (-_TOLERANCE, math.inf) if _is_penalty(term) else (-math.inf, _TOLERANCE)


def _short_of_gold(term: Term) -> tuple[float, float]:
    """Bounds of values that a wrong answer may have: of a term that compares with a gold less than the best."""
    if not term.needs_answer or _is_penalty(term):
        return _ANY
    return (-math.inf, _full_value(term) - 2 * _TOLERANCE)


def _want_declared(what: str, example: Example) -> _Wanted:
    if example.expect is None:
        return _Wanted(what, example, unscorable=True)
    return _Wanted(what, example, example.expect - _TOLERANCE, example.expect + _TOLERANCE)


def _full_value(term: Term) -> float:
    """The value that none is better than: what a rule shows of itself, or the end of the range that gains most."""
    low, high = term.bounds
    sample = term.sample if isinstance(term, Rule) else None
    if sample is not None and (_has_options_of(term, sample) or not _is_penalty(term)):
        return sample.best if _has_options_of(term, sample) else min(high, sample.best)
    return low if _is_penalty(term) else high


def _is_penalty(term: Term) -> bool:
    return term.weight_at(1) * term.scale < 0


def _has_options_of(term: Term, sample: KnownSample) -> bool:
    """Whether a rule has the options that its sample is for."""
    meant = type(term).model_validate({"name": term.name, **sample.options})
    options = type(term).model_fields.keys() - Rule.model_fields.keys()
    return all(getattr(term, option) == getattr(meant, option) for option in options)


def _read_by(term: Term, terms: Sequence[Term]) -> list[Term]:
    """The terms that a term reads, and those that these read."""
    by_name: Mapping[str, Term] = {each.name: each for each in terms}
    found: dict[str, Term] = {}
    waiting = list(term.reads)
    while waiting:
        name = waiting.pop()
        if name not in found and name in by_name:
            found[name] = by_name[name]
            waiting += by_name[name].reads
    return list(found.values())


def _make_trial(term: Term, wanted: _Wanted, once: Scored, again: Scored) -> Trial:
    score = once.scores[0]
    shortfalls = list(_list_shortfalls(wanted, score))
    if _compare_key(score) != _compare_key(again.scores[0]):
        other = again.scores[0]
        shown = f"no value: {other.reason}" if other.value is None else f"{other.value:g}"
        shortfalls.append(f"a second time it was {shown}")
    return Trial(term.name, wanted.what, wanted.words, score.value, score.reason, tuple(shortfalls))


def _list_shortfalls(wanted: _Wanted, score: Score) -> Iterator[str]:
    if score.state is ScoreState.FAULT:
        yield f"the term failed: {score.reason}"
    elif wanted.unscorable and score.value is not None:
        yield f"got {score.value:g}, expected none"
    elif wanted.unscorable is False and score.value is None:
        yield f"got no value: {score.reason}"
    elif not wanted.unscorable and score.value is not None and not wanted.least <= score.value <= wanted.most:
        yield f"got {score.value:g}, expected {wanted.words}"


def _compare_key(score: Score) -> tuple[Any, ...]:
    return score.value, score.state, score.turn_values
