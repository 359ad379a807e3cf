"""Warnings about datasets as a whole: questions that are not apart, and golds that are easy or cannot be read.

Two questions are near duplicates where what is rare in them is the same: words and pairs of neighbours weigh by how few
training questions have them, so that a template that many share makes no two of its questions alike. Numbers and names
must be the same.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlf.builtin.names import BUILTIN
from rlf.core import Fault
from rlf.core.files import MIXTURE_SUFFIX, shown_path
from rlf.core.text import show_value
from rlf.data import recall
from rlf.rewards.kinds.rule import Rule
from rlf.rewards.normalization import Normalization, golds, has_words, holds, normalize
from rlf.rewards.term import Term
from rlf.spec import LoadedSpec
from rlf.spec.load import reads
from rlf.spec.models import DataSource
from rlf.spec.paths import is_local
from rlf.types import Task

if TYPE_CHECKING:
    from rlf.data.mixture import MixedDataset

_TEST = re.compile(r"(.*[_.-])?(test|held[_-]?out)(\[.*\]|-\d+-of-\d+)?", re.IGNORECASE)
"""Names of splits that nothing is to be trained on: `test`, `test[:500]`, `gsm8k_test`, `test-00000-of-00002`."""
_WORDS = re.compile(r"[-+]?\d[\d.,]*|\w+|[-+*/%^=<>]")
"""Numbers with their signs, words, and operators."""
_ALIKE = 0.8
"""Share of the weight of two questions' words that both have, from which they are near duplicates."""
_NUM_RAREST, _NUM_HOLDING, _NUM_COMPARED = 12, 50, 5
"""A question's words by which others are looked up, how many of each word's, and how many of these are compared."""


@reads("data")
def find_test_rows(loaded: LoadedSpec, train: Sequence[Task]) -> Iterator[Fault]:
    """A fault of training on a test split, known by the rows' own word, by the dataset's split, or by its name."""
    data = loaded.spec.data
    if not train or data.allow_test_data:
        return
    marked = recall(_find_marked, train)
    message = f"{len(marked)} of {len(train)} rows are of a test split (e.g. row {marked[0]!r})" if marked else ""
    if not marked and (name := _find_split(data.train)) is not None:
        message = f"got {name!r}, a test split"
    if message:
        fix = "Name another set or split, or write `data.allow_test_data: true`."
        why = "what is trained on can test nothing any more"
        yield loaded.fault(("data", "train", "path"), f"{message}; {why}. {fix}")


def _find_marked(train: Sequence[Task]) -> list[str]:
    """Ids of the rows that say themselves, or in verl's column, that they are of a test split."""
    extras = [(task, task.columns.get("extra_info")) for task in train]
    said = [(task, (task.columns, extra if isinstance(extra, dict) else {})) for task, extra in extras]
    return [task.id for task, parts in said if any(_TEST.fullmatch(str(part.get("split"))) for part in parts)]


def _find_split(source: DataSource) -> str | None:
    """The split, or the name, by which a dataset is a test split; of a mixture, of any in it."""
    parts: Sequence[DataSource | MixedDataset] = (source,)
    if source.path.endswith(MIXTURE_SUFFIX):
        from rlf.data.mixture import read_mixture

        parts = read_mixture(Path(source.path), source.path)
    for one in parts:
        path = Path(one.path)
        if not is_local(one.path) and not one.path.startswith(BUILTIN):
            if any(map(_TEST.fullmatch, one.split.split("+"))):
                return f"{one.path} {one.split}"
        # Of a folder the whole name: `test_2` is anything.
        elif _TEST.fullmatch(path.name.partition(".")[0]) or path.parent.name in ("test", "heldout"):
            return shown_path(path) if is_local(one.path) else one.path
    return None


def find_overlaps(loaded: LoadedSpec, train: Sequence[Task], asked: Sequence[Task]) -> Iterator[Fault]:
    """Warnings of questions that are asked and trained on, word by word and nearly so."""
    same, near = recall(_find_both, train, asked)
    how = "are in data.train too, case, spaces and punctuation aside", "stand in data.train in almost the same words"
    for both, where, much in zip((same, near), how, ("nothing", "little"), strict=True):
        if both:
            message = f"{len(both)} of {len(asked)} questions {where} (row {both[0][0]!r} as {both[0][1]!r} there)"
            fix = f"success on them says {much} about other questions. Name another set or split."
            yield loaded.fault(("data", "eval", "path"), f"{message}; {fix}")


def _find_both(train: Sequence[Task], asked: Sequence[Task]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The ids of tasks that are asked, and trained on: word by word, and nearly so."""
    trained = {_question_words(task): task for task in reversed(train)}
    found = [(task, _question_words(task)) for task in asked]
    same = [(task.id, trained[words].id) for task, words in found if words in trained]
    return same, list(_find_near(trained, [(task, words) for task, words in found if words not in trained]))


def _find_near(trained: Mapping[str, Task], asked: Sequence[tuple[Task, str]]) -> Iterator[tuple[str, str]]:
    """The ids of each task that is asked in nearly the words of one that is trained on."""
    looked_up = set[Any]().union(*(_features(words) for _, words in asked))
    counts, holding = Counter[Any](), defaultdict[Any, list[str]](list)
    for question in trained if asked else ():
        for feature in _features(question):
            counts[feature] += 1
            if feature in looked_up and len(holding[feature]) < _NUM_HOLDING:
                holding[feature].append(question)

    def weigh(features: Iterable[Any]) -> float:
        return sum(math.log((1 + len(trained)) / max(1, counts[feature])) for feature in features)

    for task, words in asked:
        own = _features(words)
        rarest = sorted((one for one in own if counts[one]), key=lambda one: (counts[one], str(one)))[:_NUM_RAREST]
        shared = Counter(question for feature in rarest for question in holding[feature])
        for question, _ in shared.most_common(_NUM_COMPARED):
            theirs, other = _features(question), trained[question]
            # What a number or a name is about is compared with each: of a template, they are all that differs.
            same_keys = _keys(other) <= set(words.split()) and _keys(task) <= set(question.split())
            if same_keys and weigh(own & theirs) >= _ALIKE * weigh(own | theirs):
                yield task.id, other.id
                break


def _features(words: str) -> set[Any]:
    """Words and pairs of neighbours."""
    parts = words.split()
    return {*parts, *pairwise(parts)}


def _keys(task: Task) -> set[str]:
    """The numbers of a question, and its names: words with a capital that begin no sentence."""
    text = task.messages[-1].content
    names = re.findall(r"(?<![.!?:])(?<!^)\s[\"'(]?([A-Z]\w+)", text)
    words = _normalize_text(text).split()
    return {word for word in words if any(map(str.isdigit, word))} | {name.casefold() for name in names}


def find_two_golds(loaded: LoadedSpec, name: str, tasks: Sequence[Task]) -> Iterator[Fault]:
    """A question with two golds rewards in one row what it punishes in the other."""
    differing = recall(_find_differing, tasks)
    if differing:
        one, other = differing[0]
        message = f"{len(differing)} questions appear twice with different answers (e.g. rows {one!r} "
        fix = f"and {other!r}); the right answer to one is wrong for the other. Keep one of each."
        yield loaded.fault(("data", name, "path"), f"{message}{fix}")


def _find_differing(tasks: Sequence[Task]) -> list[tuple[str, str]]:
    """The ids of tasks that ask the same with different answers."""
    first: dict[str, Task] = {}
    return [
        (first[key].id, task.id)
        for task in tasks
        if _normalize_text(first.setdefault(key := f"{_question_words(task)} {task.images}", task).answer)
        != _normalize_text(task.answer)
    ]


def _question_words(task: Task) -> str:
    """The question of a task without its beginning that all share, and without case, spaces and punctuation."""
    return _normalize_text(task.messages[-1].content)


def _normalize_text(value: object) -> str:
    """A value's words; signs and points between digits count, as do texts without any word."""
    text = unicodedata.normalize("NFKC", str(value)).casefold()
    return " ".join(_WORDS.findall(text)) or text.strip()


# Gold answers that make a reward easy or that a rule cannot read: warnings about datasets as a whole.

_MIN_TASKS = 8
"""Of fewer questions nothing is stated."""
_MOST_SHOWN = 3
_NUM_SEARCHED = 200
_NUM_OTHERS = 20
"""Golds of other questions that a question is searched for: choices stand in every question with the right one."""


def find_gold_warnings(loaded: LoadedSpec, name: str, tasks: Sequence[Task]) -> Iterator[Fault]:
    """Golds that are all equal, and golds that stand in every question."""
    only, held = recall(_find_patterns, tasks) if len(tasks) >= _MIN_TASKS else (None, False)
    if only is not None:
        message = f"all {len(tasks)} rows have the gold answer {show_value(only)}; a policy that always writes it"
        yield loaded.fault(("data", name, "path"), f"{message} is always right. Name the right column, or other rows.")
    elif held:
        example = f"{show_value(_first(tasks[0]))} in row {tasks[0].id!r}"
        message = f"the gold answer stands in each of the {len(tasks)} questions (e.g. {example}"
        fix = "); copying from the question may earn the reward. Leave it out of the prompt."
        yield loaded.fault(("data", name, "path"), f"{message}{fix}")


def find_misread_golds(loaded: LoadedSpec, datasets: Sequence[Sequence[Task]]) -> Iterator[Fault]:
    """A warning at each rule that cannot read some of the golds as what it compares, with their rows."""
    num_tasks = sum(map(len, datasets))
    for index, term in enumerate(loaded.spec.rewards):
        if not isinstance(term, Rule) or not term.needs_answer:
            continue
        own = type(term).model_fields.keys() - Term.model_fields.keys()
        options = term.model_dump(mode="json", include={"kind", "name", *own})
        found = [row for tasks in datasets for row in recall(read_faults, tasks, options)]
        if found:
            first, number = found[:_MOST_SHOWN], f"{len(found)} gold answer{'s' * (len(found) > 1)}"
            shown = "; ".join(f"{show_value(gold)} (row {row!r}) {fault}" for row, gold, fault in first)
            squad = options.get("normalize") == Normalization.SQUAD
            advice = "Write `normalize: text`." if squad else term.gold_advice
            message = f"got {options['rule']}, which misreads {number} of {num_tasks} tasks: {shown}."
            yield loaded.fault(("rewards", index, "normalize" if squad else "rule"), f"{message} {advice}")


def read_faults(tasks: Sequence[Task], options: Mapping[str, Any]) -> list[list[str]]:
    """Row, gold and fault of each gold that a rule cannot read as what it compares."""
    term = Term.model_validate(options)
    assert isinstance(term, Rule), f"no rule: {options}"
    read = ((task.id, gold, answer) for task in tasks for gold, answer in term.read_golds(task.answer))
    return [[row, gold, answer.fault] for row, gold, answer in read if answer.fault]


def _find_patterns(tasks: Sequence[Task]) -> tuple[str | None, bool]:
    """The one gold of all rows, and whether each question holds its own; nothing where a row has no gold."""
    if not all(golds(task.answer) for task in tasks):
        return None, False
    from rlf.rewards.answers import gold_key

    keys = (sorted(map(gold_key, golds(task.answer))) for task in tasks)
    first = next(keys)
    only = _first(tasks[0]) if all(key == first for key in keys) else None
    return only, only is None and _hold_their_golds(tasks)


def _hold_their_golds(tasks: Sequence[Task]) -> bool:
    """Whether every question holds its gold, and most hold no gold of others, as those with choices do."""
    if not all(_is_in_question(_first(task), task) for task in tasks):
        return False
    from rlf.rewards.answers import gold_key

    others = list(dict.fromkeys(_first(task) for task in tasks))[:_NUM_OTHERS]
    offering = sum(
        any(gold_key(other) != gold_key(_first(task)) and _is_in_question(other, task) for other in others)
        for task in tasks[:_NUM_SEARCHED]
    )
    return 2 * offering < len(tasks[:_NUM_SEARCHED])


def _is_in_question(gold: str, task: Task) -> bool:
    normal = normalize(gold)
    return has_words(normal) and len(normal) > 1 and holds(task.question, gold)


def _first(task: Task) -> str:
    return golds(task.answer)[0]
