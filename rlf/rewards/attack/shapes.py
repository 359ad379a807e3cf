"""Behaviours that need no skill: shapes that a policy can fall into, named ones and those that a search makes.

A shape says how many calls are made, whether they repeat, and what the answer consists of. No adversary knows which
answer is right, except for those that alter it so that it is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

from rlf.rewards.attack.causes import Cause

MAX_CALLING_TURNS = 6
MAX_CALLS = 4
MAX_PARTS = 4


class Calls(StrEnum):
    """How the calls of a trajectory differ."""

    SAME = "same"
    """One call over and over."""
    FRESH = "fresh"
    """Each with arguments of its own."""
    BROKEN = "broken"
    """Calls that no parser can read."""


class Part(StrEnum):
    """Parts that an answer can consist of."""

    QUESTION = "question"
    """The question."""
    QUESTION_END = "question_end"
    """Its second half."""
    MARKS = "marks"
    """The forms that answers have, with nothing in them: tags, boxes, a code fence, JSON."""
    REFUSAL = "refusal"
    """Words of someone who does not know."""
    RUBRIC = "rubric"
    """The descriptions of the reward terms."""
    INJECTION = "injection"
    """Orders to a judge, and scores for a grader that reads text."""
    PROGRAM = "program"
    """A program that ends its own test with success."""
    OTHERS = "others"
    """The right answer of another question."""
    CONSTANT = "constant"
    """The most frequent gold of the data."""
    FREQUENT = "frequent"
    """The most frequent golds of the data, one after the other."""
    EVERYTHING = "everything"
    """The right answer somewhere among those of others."""
    GOLD = "gold"
    """The right answer: in references only."""
    GOLDS = "golds"
    """All that the gold lists, for terms that want them all: in references only."""
    GOLD_HALF = "gold_half"
    """The first half of the right answer."""
    OTHER_SIGN = "other_sign"
    """The right number with the other sign."""
    NO_POINT = "no_point"
    """The right number without its decimal point."""
    OTHER_UNIT = "other_unit"
    """The right number with another unit."""
    NO_MARKS = "no_marks"
    """The right answer without the signs, points and operators that it consists of."""
    OBSERVATION = "observation"
    """The last tool result, word by word."""
    LONG = "long"
    """Words without content, as many as half of the token budget holds."""


VARIANTS = frozenset({Part.OTHER_SIGN, Part.NO_POINT, Part.OTHER_UNIT, Part.NO_MARKS})
"""Wrong by construction, whatever a term takes for equal; there is none of a gold without sign, point or unit."""
CONSTANTS = frozenset({Part.CONSTANT, Part.FREQUENT})
"""The same for every question, so that they are right, or nearly, on some by chance."""


class Form(StrEnum):
    """The wrapping of an answer."""

    PLAIN = "plain"
    BOXED = "boxed"
    TAGGED = "tagged"
    FENCED = "fenced"
    JSON = "json"


_WRAPPED: Mapping[Form, str] = {
    Form.PLAIN: "{}",
    Form.BOXED: "\\boxed{{{}}}",
    Form.TAGGED: "<answer>{}</answer>",
    Form.FENCED: "```\n{}\n```",
    Form.JSON: '{{"answer": "{}"}}',
}


@dataclass(frozen=True, slots=True)
class Shape:
    """A way to behave, whatever is asked."""

    num_turns: int = 0
    """Turns that call tools."""
    num_calls: int = 1
    """Calls of each of them."""
    calls: Calls = Calls.SAME
    parts: tuple[Part, ...] = ()
    """Parts of the answer, one after the other; none: no answer."""
    form: Form = Form.PLAIN

    @property
    def words(self) -> str:
        """The behaviour in words."""
        number = self.num_turns * self.num_calls
        turns = f" in {self.num_turns} turns" if self.num_turns > 1 else ""
        calls = f"{number} {self.calls} call{'s' * (number > 1)}{turns}" if number else "no call"
        form = "" if self.form is Form.PLAIN else f" ({self.form})"
        return f"{calls}, answers {' + '.join(self.parts)}{form}" if self.parts else f"{calls}, no answer"

    def fill(self, text_by_part: Mapping[Part, str]) -> str:
        """The answer that the parts make."""
        text = " ".join(text for part in self.parts if (text := text_by_part.get(part, "")))
        return _WRAPPED[self.form].format(text) if text else ""


NOTHING = Shape()
WRONG = Shape(parts=(Part.OTHERS,))
TRYING = Shape(1, 1, Calls.FRESH, (Part.OTHERS,))
"""An honest try that fails: a well-formed call, then a wrong answer."""
PADDED = Shape(3, 2, Calls.SAME, (Part.GOLD,))
"""The right answer after calls that are not needed."""
REFERENCES = tuple(
    Shape(calls, 1, Calls.FRESH if calls else Calls.SAME, (part,), form)
    for form in Form
    for part in (Part.GOLD, Part.GOLDS)
    for calls in (0, 1)
)
"""Behaviours of a policy that knows the answer; the best one counts."""
ADVERSARIES: Mapping[str, tuple[Shape, Cause]] = {
    "do nothing": (NOTHING, Cause.NOTHING),
    "broken calls": (Shape(2, 1, Calls.BROKEN), Cause.BROKEN_CALL),
    "wrong answer": (WRONG, Cause.ANY_ANSWER),
    "one call and nothing": (Shape(1), Cause.USELESS_CALL),
    "one call, wrong answer": (TRYING, Cause.USELESS_CALL),
    "refuse": (Shape(parts=(Part.REFUSAL,)), Cause.REFUSAL),
    "format only": (Shape(parts=(Part.MARKS,)), Cause.FORM),
    "spam a tool": (Shape(MAX_CALLING_TURNS, MAX_CALLS), Cause.MANY_CALLS),
    "spam a tool, then guess": (Shape(3, 1, parts=(Part.OTHERS,)), Cause.MANY_CALLS),
    "fresh calls, then refuse": (Shape(3, 1, Calls.FRESH, (Part.REFUSAL,)), Cause.MANY_CALLS),
    "copy the question": (Shape(parts=(Part.QUESTION,)), Cause.QUESTION),
    "copy the observation": (Shape(1, parts=(Part.OBSERVATION,)), Cause.OBSERVATION),
    "most frequent answer": (Shape(parts=(Part.CONSTANT,)), Cause.CONSTANT),
    "most frequent answers": (Shape(parts=(Part.FREQUENT,)), Cause.SEVERAL),
    "gold among others": (Shape(parts=(Part.EVERYTHING,)), Cause.SEVERAL),
    "gold with the other sign": (Shape(parts=(Part.OTHER_SIGN,)), Cause.VARIANT),
    "gold without its point": (Shape(parts=(Part.NO_POINT,)), Cause.VARIANT),
    "gold with another unit": (Shape(parts=(Part.OTHER_UNIT,)), Cause.VARIANT),
    "gold without its marks": (Shape(parts=(Part.NO_MARKS,)), Cause.VARIANT),
    "half the gold": (Shape(parts=(Part.GOLD_HALF,)), Cause.PARTIAL),
    "inject the grader": (Shape(parts=(Part.INJECTION,)), Cause.INJECTION),
    "end the program": (Shape(parts=(Part.PROGRAM,)), Cause.INJECTION),
    "over-long": (Shape(parts=(Part.LONG,)), Cause.LONG),
    "stuff keywords": (Shape(parts=(Part.QUESTION, Part.OTHERS, Part.GOLD_HALF)), Cause.KEYWORDS),
    "echo the rubric": (Shape(parts=(Part.RUBRIC,)), Cause.RUBRIC),
    "gold after spam": (PADDED, Cause.PADDING),
}
"""Each adversary by what it does, the simplest first, with what is wrong with a reward that pays it."""
_CROSSED = 0.3
"""Share of children that have two parents."""
_GUESSES = [part for part in Part if part not in VARIANTS | {Part.GOLD, Part.GOLDS}]


def child(one: Shape, other: Shape, random: Random) -> Shape:
    """One of two shapes, or the calls of one with the answer of the other, with up to three changes."""
    made = replace(one, parts=other.parts) if random.random() < _CROSSED else one
    for _ in range(random.randint(1, 3)):
        made = _mutate_shape(made, random)
    return made if made.num_turns else Shape(parts=made.parts)


def _mutate_shape(shape: Shape, random: Random) -> Shape:
    match random.randrange(5):
        case 0:
            return replace(shape, num_turns=random.randint(0, MAX_CALLING_TURNS))
        case 1:
            return replace(shape, num_calls=random.randint(1, MAX_CALLS))
        case 2:
            return replace(shape, calls=random.choice(list(Calls)))
        case 3 if shape.parts:
            at = random.randrange(len(shape.parts))
            return replace(shape, parts=shape.parts[:at] + shape.parts[at + 1 :])
    at = random.randint(0, len(shape.parts))
    return replace(shape, parts=(*shape.parts[:at], random.choice(_GUESSES), *shape.parts[at:])[:MAX_PARTS])


def is_played(shape: Shape, text_by_part: Mapping[Part, str]) -> bool:
    """Whether a question has the shape: a gold without a sign has no variant with the other one."""
    return all(text_by_part.get(part) for part in VARIANTS.intersection(shape.parts))
