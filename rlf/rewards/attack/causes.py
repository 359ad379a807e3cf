"""Faults of rewards that pay behaviours without skill, in words, and what to change."""

from __future__ import annotations

from enum import StrEnum


class Cause(StrEnum):
    """Why a reward can be earned without skill."""

    RIGHT_IS_NOT_PAID = "right_is_not_paid"
    """A right answer earns no more than a wrong one of the same form."""
    NOTHING = "nothing"
    """Doing nothing is paid."""
    BROKEN_CALL = "broken_call"
    """Calls that cannot be parsed are paid."""
    USELESS_CALL = "useless_call"
    """One call is paid, whatever is asked."""
    ANY_ANSWER = "any_answer"
    """A wrong answer without a call is paid."""
    REFUSAL = "refusal"
    """A refusal is paid, which a wrong answer is not."""
    FORM = "form"
    """The form is paid, whatever it holds."""
    MANY_CALLS = "many_calls"
    """Calls are paid by their number."""
    QUESTION = "question"
    """A copy of the question is paid."""
    OBSERVATION = "observation"
    """A copy of a tool result is paid."""
    CONSTANT = "constant"
    """One answer is paid on questions where it is wrong."""
    SEVERAL = "several"
    """Several answers at once are paid where one of them is right."""
    VARIANT = "variant"
    """A wrong sign, a lost point, operator or unit is paid."""
    PARTIAL = "partial"
    """A part of the right answer is paid like the whole."""
    INJECTION = "injection"
    """The grader obeys the answer."""
    LONG = "long"
    """Length is paid."""
    KEYWORDS = "keywords"
    """Words of the question and of answers are paid."""
    RUBRIC = "rubric"
    """The rubric's own words are paid."""
    PADDING = "padding"
    """Calls that are not needed raise the reward of a right answer."""
    COMBINATION = "combination"
    """A combination of calls and texts is paid that no named adversary has."""


WORDS: dict[Cause, str] = {
    Cause.RIGHT_IS_NOT_PAID: "being right is not paid",
    Cause.NOTHING: "doing nothing is paid",
    Cause.BROKEN_CALL: "calls that cannot be parsed are paid",
    Cause.USELESS_CALL: "a useless call is paid",
    Cause.ANY_ANSWER: "any answer is paid, right or wrong",
    Cause.REFUSAL: "a refusal is paid",
    Cause.FORM: "the form is paid, whatever the answer",
    Cause.MANY_CALLS: "calls are paid by their number",
    Cause.QUESTION: "a copy of the question is paid",
    Cause.OBSERVATION: "a copy of a tool result is paid",
    Cause.CONSTANT: "one answer is paid on every question",
    Cause.SEVERAL: "several answers at once are paid",
    Cause.VARIANT: "a sign, a point, an operator or a unit does not count",
    Cause.PARTIAL: "a part of the right answer is paid like the whole",
    Cause.INJECTION: "the grader obeys the answer",
    Cause.LONG: "length is paid",
    Cause.KEYWORDS: "words of the question and of answers are paid",
    Cause.RUBRIC: "the rubric's own words are paid",
    Cause.PADDING: "calls that are not needed raise the reward of a right answer",
    Cause.COMBINATION: "a combination of calls and texts is paid",
}
OF_ANSWERS = frozenset(
    {
        Cause.QUESTION,
        Cause.OBSERVATION,
        Cause.CONSTANT,
        Cause.SEVERAL,
        Cause.VARIANT,
        Cause.PARTIAL,
        Cause.INJECTION,
        Cause.PADDING,
    }
)
"""Causes that say nothing of one another; of all others the simplest explains the rest of a term."""
STRICTER: dict[Cause, str] = {
    Cause.VARIANT: "compare with `normalize: text`, or with `rule: math`",
    Cause.SEVERAL: "compare the whole answer, e.g. with `rule: exact_match` or `rule: choice`",
    Cause.CONSTANT: "compare the whole answer, e.g. with `rule: exact_match` or `rule: choice`",
    Cause.OBSERVATION: "compare the whole answer, e.g. with `rule: exact_match`",
    Cause.PARTIAL: "compare the whole answer, e.g. with `rule: exact_match`",
    Cause.INJECTION: "let the grader compare the answer, and take no score from it",
}
"""Advice for a term that decides what is right; of the other causes `compare the answer with the gold`."""
