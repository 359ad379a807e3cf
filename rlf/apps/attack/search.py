"""Shapes made of what a reward says of itself, and an evolution of them towards what is paid, then what is short.

The parts are the reward's own words, numbers and patterns, the texts of the corpora, and what a question offers. A
child becomes a parent when it is paid more than others, or when it has a line of the reward run that none had run.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from random import Random
from typing import Any

from rlf.apps.attack.findings import ShapeResult
from rlf.apps.attack.reading import HOLE, RewardReading, all_texts, matching, templates_of
from rlf.apps.attack.shapes import (
    MAX_CALLING_TURNS,
    MAX_CALLS,
    MAX_PARTS,
    VARIANTS,
    AnswerPart,
    Calls,
    Claim,
    HackCause,
    Shape,
    Words,
)
from rlf.core.identity import derive_seed

_POPULATION = 16
_MAX_GENERATIONS = 200
_PATIENCE = 10
"""Generations without a cheaper hack after which the search has found what it can."""
_MAX_IDLE = 40
"""Generations without anything that is paid more or new."""
_FILLER = "It is so."
_FILLED = ("100", "10", "1", "0", "0.99", "-1", "yes", "A", _FILLER, " ".join([_FILLER] * 30))
"""Written where a pattern leaves a place open."""
_USUAL_FORMS = (
    f"The answer is {HOLE}.",
    f"Answer: {HOLE}",
    f"Final answer: {HOLE}",
    f"#### {HOLE}",
    f"<think>{_FILLER}</think>\n<answer>{HOLE}</answer>",
    f"{' '.join([_FILLER] * 10)}\n{HOLE}",
    f"{HOLE}\n{' '.join([_FILLER] * 10)}",
)
"""Asked for so often that they are tried though nothing names them."""
_MAX_NAMES = 8
_MAX_WORDS = 24
_VARIANTS = 6
_TIMES = (3, 30)

Candidate = tuple[Shape, HackCause]


# Forms that an honest answer may be asked to have.


def read_forms(reading: RewardReading) -> list[str]:
    """Wrappings of an answer by the patterns, tags, labels and keys that a reward names."""
    forms = [*reading.forms, *_USUAL_FORMS]
    forms += [form for pattern in reading.patterns for variant in (1, 0) for form in templates_of(pattern, variant)]
    tags = list(dict.fromkeys(tag for word in reading.words for tag in re.findall(r"<(\w[\w-]*)>", word)))
    for names in (tags[:_MAX_NAMES], reading.names[:_MAX_NAMES]):
        forms += [f"<{name}>{HOLE}</{name}>" for name in names]
        forms += [_in_turn(names, at, "<{0}>{1}</{0}>") for at in range(len(names)) if len(names) > 1]
        forms += [_in_turn(names, at, "{0}: {1}") for at in range(len(names)) if len(names) > 1]
    labels = [word.strip() for word in reading.words if re.search(r"\W\s*$|\bis\s*$", word) and len(word) < 40]
    labels = [label for label in labels if label and not label.startswith(("<", "\\"))][:_MAX_NAMES]
    said = [label for label in labels if re.search(r"\w", label)]
    forms += [f"{label} {HOLE}" for label in labels] + [f"{HOLE}{label}" for label in labels]
    forms += [
        _in_turn(said[start:end], end - start - 1, "{0} {1}")
        for end in range(len(said) + 1)
        for start in range(end - 1)
    ]
    names = reading.names[:_MAX_NAMES]
    forms += [form for name in names for form in (f"{name}: {HOLE}", _in_object([name], name, ""))]
    forms += [_in_object(names, name, filler) for name in names for filler in (_FILLER, 1)]
    forms += [f"{word}\n{HOLE}" for word in [*reading.words, " ".join(reading.words)][:_MAX_WORDS]]
    forms += [form.replace(f'"{HOLE}"', HOLE) for form in forms if f'"{HOLE}"' in form]
    return list(dict.fromkeys(forms))


def _in_turn(names: Sequence[str], at: int, form: str) -> str:
    return "\n".join(form.format(name, HOLE if number == at else _FILLER) for number, name in enumerate(names))


def _in_object(names: Sequence[str], hole: str, filler: str | int) -> str:
    parts = (f"{json.dumps(name)}: " + (f'"{HOLE}"' if name == hole else json.dumps(filler)) for name in names)
    return "{" + ", ".join(parts) + "}"


# Behaviours without skill that a reward's own words suggest.


def reward_shapes(reading: RewardReading) -> list[Candidate]:
    """Each of the reward's words by itself, repeated, with others and in forms; then the texts of the corpora."""
    words = [Words(text, place) for text, place in reading.words.items()][:_MAX_WORDS]
    drawn = [sample for pattern, place in reading.patterns.items() for sample in _list_samples(pattern, place)]
    shapes = [Shape(parts=(each,)) for each in [*words, *drawn]]
    shapes += _repeat_samples(reading)
    shapes += [
        Shape(parts=(each,), joint=joint, num_times=times)
        for each in words
        for joint in (" ", "\n")
        for times in _TIMES
    ]
    shapes += [Shape(parts=(Words(text, "its names"),)) for text in _list_objects(reading.names)]
    tagged = tuple(Words(f"<{name}>{_FILLER}</{name}>", "its names") for name in reading.names[:_MAX_NAMES])
    lines = tuple(Words(f"{name}: {_FILLER}", "its names") for name in reading.names[:_MAX_NAMES])
    shapes += [Shape(parts=parts, joint="\n") for parts in (*((each,) for each in tagged), tagged, lines) if parts]
    shapes += _mix_words(words, drawn)
    shapes += [Shape(parts=(one, Words(_FILLER), other)) for one, other in permutations(words[:_MAX_NAMES], 2)]
    shapes += [Shape(1, 1, Calls.SAME, (AnswerPart.OTHERS,), query=each) for each in words]
    shapes += _count_shapes(reading)
    found = [(shape, HackCause.WORDING) for shape in dict.fromkeys(shapes)]
    return [*found, *((Shape(parts=(Words(text),)), HackCause.ODD_TEXT) for text in all_texts())]


def _list_samples(pattern: str, place: str) -> list[Words]:
    """Texts that a pattern matches, short and long, and with numbers and words where it leaves a place open."""
    texts = [text for variant in range(_VARIANTS) if (text := matching(pattern, variant))]
    for form in dict.fromkeys(templates_of(pattern)):
        texts += [form.replace(HOLE, filled) for filled in _FILLED]
    return [Words(text, f"{place}: {pattern!r}") for text in dict.fromkeys(texts) if text.strip()]


def _repeat_samples(reading: RewardReading) -> Iterator[Shape]:
    """Different texts of one pattern, one after the other."""
    for pattern, place in reading.patterns.items():
        texts = [text for variant in range(4, 24) if (text := matching(pattern, variant))]
        forms = list(dict.fromkeys(templates_of(pattern)))[:2]
        texts += [form.replace(HOLE, str(number)) for form in forms for number in range(1, 13)]
        parts = tuple(Words(text, f"{place}: {pattern!r}") for text in dict.fromkeys(texts) if text.strip())
        if parts:
            yield from (Shape(parts=parts, joint=joint) for joint in (" ", "\n"))
            yield Shape(parts=parts[:1], joint="\n", num_times=12)


def _list_objects(names: Sequence[str]) -> list[str]:
    """JSON with every name as a key and values of a sort; the list of one such object too."""
    if not names:
        return []
    values: tuple[Any, ...] = (1, 100, 0, "", _FILLER, True, [], [_FILLER], {}, None, "yes", float("nan"))
    objects = [dict.fromkeys(names[:_MAX_WORDS], value) for value in values]
    return [json.dumps(each) for each in [*objects, [objects[0]]]]


def _mix_words(words: Sequence[Words], drawn: Sequence[Words]) -> Iterator[Shape]:
    """All of them in one answer, in both orders and several times."""
    fewer = tuple({each.origin: each for each in reversed(drawn)}.values())
    for parts in (tuple(words), (*words, *fewer), fewer, tuple(reversed(words))):
        if len(parts) > 1:
            yield from (Shape(parts=parts, joint=joint, num_times=times) for joint in (" ", "\n") for times in (1, 5))


def _count_shapes(reading: RewardReading) -> Iterator[Shape]:
    """As many words, lines, letters and calls as a number of the reward, and one more."""
    counts = sorted({int(number) + more for number in reading.numbers if 1 <= number <= 400 for more in (0, 1)})[:12]
    texts: list[Words] = []
    for count in counts:
        place = f"the number {count}"
        several = (
            " ".join(f"w{at}" for at in range(count)),
            "\n".join([_FILLER] * count),
            "x" * count,
            f"{_FILLER} " * count,
        )
        texts += [Words(text, place) for text in several]
    marks = [word for word in reading.words if len(word) <= 3 and not re.search(r"\w", word)][:3]
    for mark, count in product(marks, [count for count in counts if count < 12]):
        row = Words(mark.join(["x"] * count), f"{count} times {mark!r}")
        yield from (Shape(parts=(row,), joint="\n", num_times=times) for times in (1, 5))
    yield from (Shape(parts=(text,)) for text in texts)
    yield from (Shape(1, 1, Calls.SAME, (AnswerPart.OTHERS,), query=text) for text in texts[::4])
    few = [count for count in counts if count <= MAX_CALLING_TURNS * MAX_CALLS][:_MAX_NAMES]
    answers: list[AnswerPart | Words] = [*texts[::4][:6], AnswerPart.OTHERS]
    for count, part in product(few, answers):
        turns = min(count, MAX_CALLING_TURNS)
        yield Shape(turns, -(-count // turns), Calls.FRESH, (part,))


# The search.

Try = Callable[[Sequence[Candidate]], Awaitable[list[ShapeResult]]]


@dataclass(slots=True)
class Search:
    """An evolution of shapes; the same for the same seed and time."""

    try_: Try
    news: Callable[[Shape], int]
    """Lines of the reward that a shape was the first to have run."""
    share: float
    seed: int
    pool: Sequence[AnswerPart | Words]
    """Parts that children get."""

    async def run(self, begun: Iterable[ShapeResult], seconds: float) -> list[ShapeResult]:
        """The shapes that it tried."""
        deadline = time.monotonic() + seconds
        random = Random(derive_seed(self.seed, "attack"))
        # Parents know nothing of the right answer that a child could be paid for.
        apart = (each for each in begun if VARIANTS.isdisjoint(each.shape.parts))
        known = {each.shape: each for each in apart if each.shape.claim in (Claim.NOTHING, Claim.WRONG)}
        first, best, idle = frozenset(known), (-float("inf"), 0.0), 0
        for _ in range(_MAX_GENERATIONS):
            fittest = max((self._rate(each) for each in known.values()), default=best)
            is_new = fittest > best
            best = max(best, fittest)
            if time.monotonic() > deadline or idle >= (_PATIENCE if best[0] >= 1 else _MAX_IDLE):
                break
            children = self._breed(list(known.values()), random)
            made = await self.try_([(child, HackCause.COMBINATION) for child in children])
            known |= {each.shape: each for each in made}
            idle = 0 if is_new or any(self.news(child) for child in children) else idle + 1
        return [each for shape, each in known.items() if shape not in first]

    def _breed(self, every: Sequence[ShapeResult], random: Random) -> list[Shape]:
        """New shapes, mostly of the fittest and of those that ran something new, in an order of their own."""
        known = {each.shape for each in every}
        fit = sorted(every, key=self._rate, reverse=True)[:_POPULATION]
        new = sorted(every, key=lambda each: self.news(each.shape), reverse=True)[:_POPULATION]
        children = dict[Shape, None]()
        for _ in range(4 * _POPULATION):
            parents = random.choice((fit, new, every))
            made = child(random.choice(parents).shape, random.choice(fit).shape, self.pool, random)
            if made not in known and len(children) < _POPULATION:
                children[made] = None
        return list(children)

    def _rate(self, result: ShapeResult) -> tuple[float, float]:
        """Share of the reward of being right, at most 1; of hacks the shorter is the fitter."""
        if result.share is None:
            return (-float("inf"), 0.0)
        return (1.0 if result.is_hack(self.share) else min(result.floor or 0.0, 0.99), -result.num_tokens)

    async def shorten(self, hack: ShapeResult) -> ShapeResult:
        """The hack without the parts, repetitions and calls that it does not need."""
        assert hack.cause is not None, hack
        for smaller in _list_smaller:
            for shape in smaller(hack.shape):
                (tried,) = await self.try_([(shape, hack.cause)])
                if tried.is_hack(self.share) and tried.num_tokens < hack.num_tokens:
                    hack = tried
                    break
        return hack


def _drop_calls(shape: Shape) -> Iterator[Shape]:
    if shape.num_turns:
        yield Shape(parts=shape.parts, form=shape.form, joint=shape.joint, num_times=shape.num_times)


def _drop_times(shape: Shape) -> Iterator[Shape]:
    yield from (replace(shape, num_times=times) for times in (1, 2, 3, 5) if times < shape.num_times)


def _keep_one_part(shape: Shape) -> Iterator[Shape]:
    if 1 < len(shape.parts) <= 40:
        yield from (replace(shape, parts=(part,)) for part in shape.parts)


def _drop_half(shape: Shape) -> Iterator[Shape]:
    middle = len(shape.parts) // 2
    if middle > 1:
        yield replace(shape, parts=shape.parts[:middle])
        yield replace(shape, parts=shape.parts[middle:])


def _drop_part(shape: Shape) -> Iterator[Shape]:
    if len(shape.parts) > 1:
        yield from (replace(shape, parts=shape.parts[:at] + shape.parts[at + 1 :]) for at in range(len(shape.parts)))


_list_smaller = (_drop_calls, _keep_one_part, _drop_half, _drop_half, _drop_half, *[_drop_part] * 8, _drop_times)


_CROSSED = 0.3
"""Share of children that have two parents."""


def child(one: Shape, other: Shape, pool: Sequence[AnswerPart | Words], random: Random) -> Shape:
    """One of two shapes, or the calls of one with the answer of the other, with up to three changes."""
    made = replace(one, parts=other.parts, form=other.form) if random.random() < _CROSSED else one
    for _ in range(random.randint(1, 3)):
        made = _mutate_shape(made, pool, random)
    made = made if made.num_turns else replace(made, num_calls=1, calls=Calls.SAME, query=None)
    made = made if made.parts else replace(made, num_times=1)
    return made if len(made.parts) + made.num_times > 2 else replace(made, joint=" ")


def _mutate_shape(shape: Shape, pool: Sequence[AnswerPart | Words], random: Random) -> Shape:
    match random.randrange(8):
        case 0:
            return replace(shape, num_turns=random.randint(0, MAX_CALLING_TURNS))
        case 1:
            return replace(shape, num_calls=random.randint(1, MAX_CALLS))
        case 2:
            return replace(shape, calls=random.choice(list(Calls)))
        case 3:
            return replace(shape, joint=random.choice((" ", "\n")), num_times=random.choice((1, 1, 2, 5, 20)))
        case 4 | 5 if shape.parts:
            at = random.randrange(len(shape.parts))
            return replace(shape, parts=shape.parts[:at] + shape.parts[at + 1 :])
    at = random.randint(0, len(shape.parts))
    return replace(shape, parts=(*shape.parts[:at], random.choice(pool), *shape.parts[at:])[:MAX_PARTS])
