"""Whether golds look like what the questions ask for: compared with answers, tools' results and the other columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rlf.rewards.normalization import normalize
from rlf.types.task import Task
from rlf.types.tool import Outcome
from rlf.types.trajectory import Trajectory

_FEW = 0.05
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
    return max(2, _FEW * len(trajectories))


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
    if 5 * len(looked) >= len(trajectories) and 2 * len(cut) > len(results) and num_found <= _FEW * len(looked):
        seen = f"{len(cut)} of {len(results)} tool results were cut to the tool's budget, and hardly a gold is left"
        advice = "Write more for `limits.max_output_chars` or `limits.max_output_tokens` of the tool."
        return GoldCause(seen, advice, cut[0], "results_cut")
    if 2 * len(looked) < len(trajectories) or num_found:
        return None
    example = trajectories[looked[0]]
    seen = f"no gold stands in any answer or tool result, e.g. {str(example.task.answer)[:80]!r}"
    return GoldCause(seen, f"See that `{key}` names the column of answers.", looked[0])
