"""Behaviours that need no skill: shapes that a policy can fall into, named ones and those that a search makes.

A shape says how many calls are made, whether they repeat, and what the answer consists of. No adversary knows which
answer is right, except for those that alter it so that it is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from rlf.apps.attack.reading import HOLE

# Faults of rewards that pay behaviours without skill, in words, and what to change.


class HackCause(StrEnum):
    """Why a reward can be earned without skill, with the words of a verdict."""

    words: str

    def __new__(cls, value: str, words: str) -> HackCause:
        """A member that is its name."""
        member = str.__new__(cls, value)
        member._value_, member.words = value, words
        return member

    RIGHT_IS_NOT_PAID = "right_is_not_paid", "being right is not paid"
    NOTHING = "nothing", "doing nothing is paid"
    BROKEN_CALL = "broken_call", "calls that cannot be parsed are paid"
    USELESS_CALL = "useless_call", "a useless call is paid"
    ANY_ANSWER = "any_answer", "any answer is paid, right or wrong"
    REFUSAL = "refusal", "a refusal is paid"
    FORM = "form", "the form is paid, whatever the answer"
    MANY_CALLS = "many_calls", "calls are paid by their number"
    QUESTION = "question", "a copy of the question is paid"
    OBSERVATION = "observation", "a copy of a tool result is paid"
    CONSTANT = "constant", "one answer is paid on every question"
    SEVERAL = "several", "several answers at once are paid"
    VARIANT = "variant", "a sign, a point, an operator, a unit or the size of a number does not count"
    PARTIAL = "partial", "a part of the right answer is paid like the whole"
    INJECTION = "injection", "the grader obeys the answer"
    LONG = "long", "length is paid"
    KEYWORDS = "keywords", "words of the question and of answers are paid"
    RUBRIC = "rubric", "the rubric's own words are paid"
    PADDING = "padding", "calls or words that are not needed raise the reward of a right answer"
    FAILED_CALL = "failed_call", "calls that fail are paid"
    WORDING = "wording", "words or marks that the reward looks for are paid"
    ODD_TEXT = "odd_text", "a text that says nothing is paid"
    NOISE = "noise", "the same trajectory is paid differently when it is scored again"
    COMBINATION = "combination", "a combination of calls and texts is paid"


OF_ANSWERS = frozenset(
    {HackCause.QUESTION, HackCause.OBSERVATION, HackCause.CONSTANT, HackCause.SEVERAL, HackCause.VARIANT}
    | {HackCause.PARTIAL, HackCause.INJECTION, HackCause.PADDING, HackCause.NOISE}
)
"""Causes that say nothing of one another; of all others the simplest explains the rest of a term."""

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
    REFUSED = "refused"
    """Calls whose arguments the schema does not allow."""
    UNKNOWN = "unknown"
    """Calls of a tool that does not exist."""
    LATE = "late"
    """Calls that run out of time: the tool is not asked."""


class Claim(StrEnum):
    """What a behaviour knows of the right answer, by which it is decided what it may earn."""

    NOTHING = "nothing"
    """Nothing: it is right by chance at best."""
    WRONG = "wrong"
    """Enough to be wrong for certain."""
    HALF = "half"
    """A part of it: it may earn a part."""
    SEVERAL = "several"
    """The right answer among wrong ones."""
    RIGHT = "right"
    """The right answer: with what is not needed, it may not earn much more."""


class AnswerPart(StrEnum):
    """Parts that an answer can consist of, each with what an answer knows that is nothing else."""

    claim: Claim
    words: str

    def __new__(cls, value: str, claim: Claim, words: str) -> AnswerPart:
        """A member that is its name."""
        member = str.__new__(cls, value)
        member._value_, member.claim, member.words = value, claim, words
        return member

    QUESTION = "question", Claim.NOTHING, "the question"
    QUESTION_END = "question_end", Claim.NOTHING, "its second half"
    MARKS = "marks", Claim.NOTHING, "empty tags, boxes, a code fence and JSON"
    REFUSAL = "refusal", Claim.NOTHING, "a refusal"
    RUBRIC = "rubric", Claim.NOTHING, "the descriptions of the terms"
    INJECTION = "injection", Claim.NOTHING, "orders to a judge, and scores"
    PROGRAM = "program", Claim.NOTHING, "a program that ends its own test"
    OTHERS = "others", Claim.WRONG, "the right answer of another question"
    CONSTANT = "constant", Claim.NOTHING, "the most frequent gold"
    FREQUENT = "frequent", Claim.NOTHING, "the most frequent golds"
    EVERYTHING = "everything", Claim.SEVERAL, "the right answer among many others"
    EITHER = "either", Claim.SEVERAL, "the right answer or a few others"
    EVERYTHING_JSON = "everything_json", Claim.SEVERAL, "a JSON list of the right answer and others"
    OTHERS_JSON = "others_json", Claim.WRONG, "a JSON list of wrong answers"
    ASKED = "asked", Claim.NOTHING, "what stands out in the question"
    MIDDLE = "middle", Claim.NOTHING, "the median of the golds"
    GOLD = "gold", Claim.RIGHT, "the right answer"
    GOLDS = "golds", Claim.RIGHT, "all right answers"
    GOLDS_JSON = "golds_json", Claim.RIGHT, "a JSON list of all right answers"
    GOLDS_LINES = "golds_lines", Claim.RIGHT, "all right answers on lines of their own"
    GOLD_HALF = "gold_half", Claim.HALF, "the first half of the right answer"
    GOLD_WORD = "gold_word", Claim.HALF, "its last word"
    GOLD_LETTER = "gold_letter", Claim.HALF, "its first letter"
    OTHER_SIGN = "other_sign", Claim.WRONG, "the right number with the other sign"
    NO_POINT = "no_point", Claim.WRONG, "the right number without its point"
    OTHER_UNIT = "other_unit", Claim.WRONG, "the right number with another unit"
    NO_MARKS = "no_marks", Claim.WRONG, "the right answer without its signs and operators"
    OTHER_FRACTION = "other_fraction", Claim.WRONG, "the right number with another fraction"
    OTHER_SIZE = "other_size", Claim.WRONG, "a number of another size"
    OTHER_CASE = "other_case", Claim.WRONG, "the right answer in other capitals"
    AS_PATTERN = "as_pattern", Claim.WRONG, "what the right answer matches as a pattern"
    GLUED = "glued", Claim.WRONG, "the right answer twice as a word"
    REVERSED = "reversed", Claim.WRONG, "the right answer backwards"
    OBSERVATION = "observation", Claim.NOTHING, "the last tool result"
    LONG = "long", Claim.NOTHING, "very many words"


_OTHERS = (AnswerPart.OTHERS, AnswerPart.OTHERS_JSON)
VARIANTS = frozenset(part for part in AnswerPart if part.claim is Claim.WRONG and part not in _OTHERS)
"""Wrong by construction, whatever a term takes for equal; there is none of a gold without sign, point or unit."""
_ALTERED = VARIANTS | {AnswerPart.GOLD_WORD, AnswerPart.GOLD_LETTER}
"""Those that some questions do not have."""
GUESSES = frozenset(part for part in AnswerPart if part.claim is Claim.NOTHING or part is AnswerPart.OTHERS)
"""Parts that know nothing of the right answer."""


@dataclass(frozen=True, slots=True)
class Words:
    """A part of an answer that is a text, the same for every question."""

    text: str
    origin: str = field(default="", compare=False)
    """Where it was read; empty of a corpus."""

    def __str__(self) -> str:
        return repr(self.text) if len(self.text) <= _MAX_SHOWN else f"{self.text[:_MAX_SHOWN]!r}..."


_MAX_SHOWN = 40
FORMS: Mapping[str, str] = {
    "plain": HOLE,
    "boxed": f"\\boxed{{{HOLE}}}",
    "tagged": f"<answer>{HOLE}</answer>",
    "fenced": f"```\n{HOLE}\n```",
    "json": f'{{"answer": "{HOLE}"}}',
}
"""Wrappings of an answer, which stands in place of the hole."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A way to behave, whatever is asked."""

    num_turns: int = 0
    """Turns that call tools."""
    num_calls: int = 1
    """Calls of each of them."""
    calls: Calls = Calls.SAME
    parts: tuple[AnswerPart | Words, ...] = ()
    """Parts of the answer, one after the other; none: no answer."""
    form: str = HOLE
    """The wrapping of the answer."""
    is_spread: bool = False
    """Whether each item of a part has a wrapping of its own."""
    joint: str = " "
    """What stands between parts."""
    num_times: int = 1
    """How often the answer is written, one after the other."""
    query: Words | None = None
    """The first text among the arguments of calls; None: the question, or a gold of another."""

    @property
    def claim(self) -> Claim:
        """What it knows of the right answer."""
        claims = {part.claim if isinstance(part, AnswerPart) else Claim.NOTHING for part in self.parts}
        if VARIANTS.isdisjoint(self.parts) and (Claim.SEVERAL in claims or {Claim.RIGHT, Claim.WRONG} <= claims):
            return Claim.SEVERAL
        if Claim.WRONG in claims and (claims == {Claim.WRONG} or not VARIANTS.isdisjoint(self.parts)):
            return Claim.WRONG
        return next((each for each in (Claim.RIGHT, Claim.HALF, Claim.NOTHING) if each in claims), Claim.WRONG)

    @property
    def is_constant(self) -> bool:
        """Whether it answers every question alike, so that it is right on some by chance."""
        alike = {AnswerPart.CONSTANT, AnswerPart.FREQUENT, AnswerPart.MIDDLE}
        return all(isinstance(part, Words) or part in alike for part in self.parts)

    @property
    def words(self) -> str:
        """The behaviour in words."""
        number = self.num_turns * self.num_calls
        turns = f" in {self.num_turns} turns" if self.num_turns > 1 else ""
        calls = f"{number} {self.calls} call{'s' * (number > 1)}{turns}" if number else "no call"
        if self.query is not None and number:
            calls += f" about {self.query}"
        names = {form: name for name, form in FORMS.items()}
        form = names.get(self.form) or f"in {self.form.replace(HOLE, '...')!r}"
        parts = [part.words if isinstance(part, AnswerPart) else str(part) for part in self.parts]
        shown = " + ".join(parts) + f" ({form})" * (self.form != HOLE)
        times = f", {self.num_times} times" if self.num_times > 1 else ""
        lines = ", on lines of their own" if self.joint != " " and len(self.parts) + self.num_times > 2 else ""
        return f"{calls}, answers {shown}{times}{lines}" if self.parts else f"{calls}, no answer"

    def fill(self, text_by_part: Mapping[AnswerPart, str]) -> str:
        """The answer that the parts make."""
        found = (each.text if isinstance(each, Words) else text_by_part.get(each, "") for each in self.parts)
        texts = [text for text in found if text]
        texts = [item for text in texts for item in text.split(", ")] if self.is_spread else [self.joint.join(texts)]
        return self.joint.join([wrap_text(self.form, text) for text in texts if text] * self.num_times)


def wrap_text(form: str, text: str) -> str:
    """A form with a text in place of each hole; in quotes of JSON as JSON has it."""
    if form.startswith(("{", "[")):
        form = form.replace(f'"{HOLE}"', json.dumps(text, ensure_ascii=False))
    return form.replace(HOLE, text)


NOTHING = Shape()
TRYING = Shape(1, 1, Calls.FRESH, (AnswerPart.OTHERS,))
"""An honest try that fails: a well-formed call, then a wrong answer."""
PADDED = Shape(3, 2, Calls.SAME, (AnswerPart.GOLD,))
"""The right answer after calls that are not needed."""
_WRONG_BY_RIGHT = dict.fromkeys((AnswerPart.GOLD, AnswerPart.GOLDS, AnswerPart.GOLDS_LINES), AnswerPart.OTHERS) | {
    AnswerPart.GOLDS_JSON: AnswerPart.OTHERS_JSON
}


def references(forms: Sequence[str], *, lists: bool, num_calls: Sequence[int] = (0, 1)) -> list[tuple[Shape, Shape]]:
    """Behaviours of a policy that knows the answer, of which the best one counts, each with a wrong one like it."""
    parts = list(_WRONG_BY_RIGHT) if lists else [AnswerPart.GOLD]
    shapes = [
        Shape(calls, 1, Calls.FRESH if calls else Calls.SAME, (part,), form)
        for form in forms
        for part in parts
        for calls in num_calls
    ]
    return [(shape, twin_of(shape)) for shape in shapes]


def twin_of(reference: Shape) -> Shape:
    """The same with a wrong answer."""
    (part,) = reference.parts
    assert isinstance(part, AnswerPart), reference
    return replace(reference, parts=(_WRONG_BY_RIGHT[part],))


def in_form(shape: Shape, reference: Shape) -> Shape | None:
    """An answer in the form and after the calls of the reference; None where that changes nothing."""
    if not shape.parts or (reference.form == HOLE and not reference.num_turns):
        return None
    made = replace(shape, form=reference.form)
    if not shape.num_turns:
        made = replace(made, num_turns=reference.num_turns, num_calls=1, calls=Calls.FRESH)
    return made if made != shape else None


ADVERSARIES: Mapping[str, tuple[Shape, HackCause]] = {
    "do nothing": (NOTHING, HackCause.NOTHING),
    "broken calls": (Shape(2, 1, Calls.BROKEN), HackCause.BROKEN_CALL),
    "wrong answer": (Shape(parts=(AnswerPart.OTHERS,)), HackCause.ANY_ANSWER),
    "one call and nothing": (Shape(1), HackCause.USELESS_CALL),
    "one call, wrong answer": (TRYING, HackCause.USELESS_CALL),
    "refuse": (Shape(parts=(AnswerPart.REFUSAL,)), HackCause.REFUSAL),
    "format only": (Shape(parts=(AnswerPart.MARKS,)), HackCause.FORM),
    "spam a tool": (Shape(MAX_CALLING_TURNS, MAX_CALLS), HackCause.MANY_CALLS),
    "spam a tool, then guess": (Shape(3, 1, parts=(AnswerPart.OTHERS,)), HackCause.MANY_CALLS),
    "fresh calls, then refuse": (Shape(3, 1, Calls.FRESH, (AnswerPart.REFUSAL,)), HackCause.MANY_CALLS),
    "refused calls": (Shape(2, 1, Calls.REFUSED, (AnswerPart.OTHERS,)), HackCause.FAILED_CALL),
    "calls of no tool": (Shape(2, 1, Calls.UNKNOWN, (AnswerPart.OTHERS,)), HackCause.FAILED_CALL),
    "calls that time out": (Shape(2, 1, Calls.LATE, (AnswerPart.OTHERS,)), HackCause.FAILED_CALL),
    "copy the question": (Shape(parts=(AnswerPart.QUESTION,)), HackCause.QUESTION),
    "copy the observation": (Shape(1, parts=(AnswerPart.OBSERVATION,)), HackCause.OBSERVATION),
    "copy what is asked": (Shape(parts=(AnswerPart.ASKED,)), HackCause.QUESTION),
    "copy another observation": (Shape(2, 1, Calls.FRESH, (AnswerPart.OBSERVATION,)), HackCause.OBSERVATION),
    "answer of the middle": (Shape(parts=(AnswerPart.MIDDLE,)), HackCause.CONSTANT),
    "most frequent answer": (Shape(parts=(AnswerPart.CONSTANT,)), HackCause.CONSTANT),
    "most frequent answers": (Shape(parts=(AnswerPart.FREQUENT,)), HackCause.SEVERAL),
    "gold among others": (Shape(parts=(AnswerPart.EVERYTHING,)), HackCause.SEVERAL),
    "gold or others": (Shape(parts=(AnswerPart.EITHER,)), HackCause.SEVERAL),
    "gold in a list of others": (Shape(parts=(AnswerPart.EVERYTHING_JSON,)), HackCause.SEVERAL),
    "gold between others": (Shape(parts=(AnswerPart.EVERYTHING,), is_spread=True, joint="\n"), HackCause.SEVERAL),
    "gold with the other sign": (Shape(parts=(AnswerPart.OTHER_SIGN,)), HackCause.VARIANT),
    "gold without its point": (Shape(parts=(AnswerPart.NO_POINT,)), HackCause.VARIANT),
    "gold with another unit": (Shape(parts=(AnswerPart.OTHER_UNIT,)), HackCause.VARIANT),
    "gold without its marks": (Shape(parts=(AnswerPart.NO_MARKS,)), HackCause.VARIANT),
    "gold with another fraction": (Shape(parts=(AnswerPart.OTHER_FRACTION,)), HackCause.VARIANT),
    "gold of another size": (Shape(parts=(AnswerPart.OTHER_SIZE,)), HackCause.VARIANT),
    "gold in other capitals": (Shape(parts=(AnswerPart.OTHER_CASE,)), HackCause.VARIANT),
    "gold as a pattern": (Shape(parts=(AnswerPart.AS_PATTERN,)), HackCause.VARIANT),
    "gold twice as a word": (Shape(parts=(AnswerPart.GLUED,)), HackCause.VARIANT),
    "gold backwards": (Shape(parts=(AnswerPart.REVERSED,)), HackCause.VARIANT),
    "half the gold": (Shape(parts=(AnswerPart.GOLD_HALF,)), HackCause.PARTIAL),
    "last word of the gold": (Shape(parts=(AnswerPart.GOLD_WORD,)), HackCause.PARTIAL),
    "first letter of the gold": (Shape(parts=(AnswerPart.GOLD_LETTER,)), HackCause.PARTIAL),
    "inject the grader": (Shape(parts=(AnswerPart.INJECTION,)), HackCause.INJECTION),
    "end the program": (Shape(parts=(AnswerPart.PROGRAM,)), HackCause.INJECTION),
    "over-long": (Shape(parts=(AnswerPart.LONG,)), HackCause.LONG),
    "stuff keywords": (Shape(parts=(AnswerPart.QUESTION, AnswerPart.OTHERS, AnswerPart.GOLD_HALF)), HackCause.KEYWORDS),
    "echo the rubric": (Shape(parts=(AnswerPart.RUBRIC,)), HackCause.RUBRIC),
    "gold after spam": (PADDED, HackCause.PADDING),
    "gold and many words": (Shape(parts=(AnswerPart.GOLD, AnswerPart.LONG)), HackCause.PADDING),
}
"""Each adversary by what it does, the simplest first, with what is wrong with a reward that pays it."""


def is_played(shape: Shape, text_by_part: Mapping[AnswerPart, str]) -> bool:
    """Whether a question has the shape: a gold without a sign has no variant with the other one."""
    return all(text_by_part.get(part) for part in _ALTERED.intersection(shape.parts))
