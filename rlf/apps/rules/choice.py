"""`rule: choice`: the letter of a multiple-choice answer is the gold's."""

from __future__ import annotations

import re
from typing import ClassVar, Literal

from pydantic import Field

from rlf.core.redact import fold
from rlf.rewards.answers import Answer, marked_part
from rlf.rewards.kinds.rule import Rule
from rlf.rewards.normalization import golds, shown
from rlf.rewards.term import KnownSample, Verdict
from rlf.types import Trajectory

# Only the end of an answer is read: models conclude there, and every expression below stays linear in it.
_MAX_CHARS = 2000
_MAX_BARE_CHARS = 40
# Bounded repeats here and below: no answer can make an expression run in quadratic time.
_WRAPPER = re.compile(
    r"\\(?:text|textbf|textit|textrm|texttt|mathrm|mathbf|mathit|mathsf|bf|rm)(?![a-z])|\\[()\[\],;! ]"
)
"""LaTeX around a letter, which says nothing."""
# What Markdown and LaTeX leave around a letter, as in `**B**` or `$B$`, is not part of the answer.
_MARKS = re.compile(r"[*`$_{}]")
# One letter, perhaps in brackets or quotes. What follows distinguishes it from a word (`A-level`, `B.5`, `I'm`).
_LETTER = r"[(\[\"']{0,3}([A-Za-z])(?![A-Za-z0-9]|['.\-][A-Za-z]|\.\d)[)\]\"']{0,3}"
# `B or C`, `B, C`, `B. Or maybe C`: then several letters are named. `A and B is right` begins a new statement instead.
_ALTERNATIVE = re.compile(
    rf"[.?!]?\s{{0,3}}(?:[,/&;(]\s{{0,3}}(?:or|and|maybe|perhaps|possibly)\b|[,/&;]|\b(?:or|and)\b)\s{{0,3}}"
    rf"(?:(?:also|even|maybe|perhaps|possibly|option)\s)?{_LETTER}(?!\s{{0,3}}(?:is|are|was|were)\b)",
    re.IGNORECASE,
)
_LETTER_OF_NO = r"[(\"']?[A-Za-z]\b[)\"']?,?"
"""One that is named in order to be denied."""
# Words between the verb and the letter: `is probably the option (B)`.
_FILLER = (
    r"(?:(?:the|also|option|choice|letter|answer|clearly|definitely|certainly|probably|likely|either|it's|it\sis)"
    r"\s{1,3}){0,3}"
)
# What joins the subject and the letter: a verb, a colon, an arrow or a dash.
_VERB = (
    r"[\"']?\s{0,3}(?:'s\b|:|=|\u2192|->|[-\u2014]\s"
    r"|\b(?:is|are|was|would be|should be|must be|will be)\b\s{0,3}:?)\s{0,3}"
)
# `the answer to the second question is B`; the lazy repeat takes as few words as it can.
_OF = r"(?:\s(?:to|for|of)(?:\s\w{1,20}){1,4}?)?"
_STATEMENTS = [
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"\b(?:answer|choice|option|letter|correct|right one|response|pick|guess|final"
        rf"|selection|verdict|conclusion|ans\.?)s?{_OF}{_VERB}{_FILLER}"
        rf"(?:not\s{_LETTER_OF_NO}\sbut\s)?{_LETTER}",
        # `the answer is B`, `so choose B`, as C-Eval and CMMLU answers end.
        rf"(?:\u7b54\u6848|\u6545\u9009|\u9009\u62e9|\u9009\u9879|\u9009)"
        rf"[\s:\u4e3a\u662f\u5e94\u8be5\u9009\u9879]{{0,6}}{_LETTER}",
        rf"(?<![A-Za-z0-9]){_LETTER}\s{{1,3}}(?:it\sis\b|(?:is|seems|looks)\s"
        r"(?:(?:the|most|clearly)\s)?(?:correct|right|best|likely|answer)\b)",
        rf"\b(?:choose|pick|select|chose|picked|selected|vote|opt|conclude|(?:go|going|went|stick|sticking|left) with"
        rf"|say|lean(?:ing)? (?:to|towards?))"
        rf"(?::\s{{0,3}}|\s{{1,3}})(?:for\s)?{_FILLER}{_LETTER}",
        rf"\bnot\s{_LETTER_OF_NO}\s(?:but|rather)\s{_LETTER}",
        # `Therefore, B.` counts only where the letter ends the sentence: `So A is ...` goes on to something else.
        rf"\b(?:therefore|thus|hence|so|finally|in conclusion|definitely|certainly|probably|likely|wait|no|sorry"
        rf"|actually|leaves|I (?:think|believe|guess)|(?:it|this|that)(?:'s| is)|(?:must|has to|would) be"
        rf"|leaves us with)\b[,:]?\s{{0,3}}(?:it is|it's)?\s{{0,3}}{_FILLER}{_LETTER}\s{{0,3}}(?=[.!](?:\s|$)|\n|$)",
    )
]
_NAMED = re.compile(rf"\b(?:answer|choice|option)\s{{1,3}}{_LETTER}", re.IGNORECASE)
_WHOLE = re.compile(rf"\W*{_LETTER}\W*")
# `B) Paris`, `B, because ...`, `B - Paris`; a dash needs two letters behind it, else it may be a minus.
_LEADING = re.compile(
    r"^[ \t]*[(\[]?([A-Za-z])(?:[)\].:]+(?=\s|$)|,?\s(?=(?:because|since|not|rather|instead|I think|I believe|final)\b)"
    r"|\s-\s(?=[^\W\d_]{2}))",
    re.MULTILINE,
)
_FOLLOWING = (
    "although|and|are|as|at|because|but|by|due|even|for|from|given|here|however|if|in|instead|is|it|not|of|on|or|over"
    "|rather|since|so|than|that|then|this|though|to|was|we|which|while|with|without|you"
)
"""What may follow a letter that is chosen, and no article."""
_ARTICLE = re.compile(rf"[AI] (?!(?:{_FOLLOWING})\b)[a-z]")
"""A letter that is a word of the sentence: "A river", "I think"."""
# `not B`, `I don't think the answer is B`, `anything but B`: up to five words in between, none of which turns round.
_DENIED_BEFORE = re.compile(
    r"(?:\b(?:not|never|neither|nor|cannot|except|avoid|eliminate|exclude|discard|reject|rule out|other than"
    r"|rather than|instead of|wrong|incorrect|unlikely|least likely|doubt|no way|(?:anything|everything|all) but)|n't)"
    r"(?:\s(?!but\b|so\b|and\b|thus\b|hence\b)[a-z']{1,15}){0,5}\s{1,3}[(\[\"']{0,3}$",
    re.IGNORECASE,
)
_DENIED_BEHIND = re.compile(
    r"[)\]\"']{0,3}\s{1,3}(?:isn't|can't|cannot|couldn't|won't|doesn't|does not|(?:is|was|are|seems|looks|would be)\s"
    r"(?:(?:also|clearly|definitely|obviously)\s)?(?:not|wrong|incorrect|false|out|impossible|eliminated|excluded)\b)",
    re.IGNORECASE,
)
# `Is it B?` chooses nothing: letters before a question mark do not count.
_QUESTION = re.compile(r"[)\]\"']{0,3}\s{0,3}\?")
_SENTENCE_END = re.compile(r"[)\]\"']{0,3}\s{0,3}(?:[.!]|\n|$)")


class Choice(Rule):
    """1 if the chosen letter is that of a gold, else 0.

    Behind the thinking, the letter is looked for in this order: in the last <answer>B</answer>, else the last
    \\boxed{B}; then the whole of that or its last line ("B", "(b)."), the last statement ("the answer is B", "Answer:
    B", "B is correct", "I'm going with B", "Therefore, B."), the only option that is named ("option B"), and what the
    answer begins with ("B) Paris"). Markdown and LaTeX around a letter do not count. A statement of several letters
    ("A, B, C or D") chooses nothing, nor does one that denies a letter ("not A", "anything except A", "A is wrong"),
    and letters are not picked out of sentences.
    """

    needs_answer: ClassVar[bool] = True
    sample: ClassVar[KnownSample] = KnownSample(gold={"gold": "B", "answer": "The answer is (B)."})

    gold_advice: ClassVar[str] = "Name the column of letters, write `choices`, or `rule: exact_match`."

    rule: Literal["choice"] = "choice"
    choices: str = Field(default="ABCD", pattern=r"^[A-Z]{2,26}$")
    """Letters that can be chosen."""

    def judge(self, trajectory: Trajectory) -> Verdict:
        """Compares the letters; a task whose golds hold none is unscorable."""
        texts = golds(trajectory.task.answer)
        right = {letter for text in texts if (letter := chosen_letter(text, self.choices)) is not None}
        if not right:
            return Verdict(None, f"the gold {shown(texts)} names none of {self.choices}")
        letter = chosen_letter(trajectory.answer or "", self.choices)
        if letter is None:
            return Verdict(0.0, f"no letter of {self.choices} is chosen, or more than one")
        return Verdict(float(letter in right), f"{letter} is chosen; right is {' or '.join(sorted(right))}")

    def read_gold(self, gold: str) -> Answer:
        letter = chosen_letter(gold, self.choices)
        fault = f"names none of {self.choices}, and is unscorable"
        return Answer("text", gold, fault=fault) if letter is None else Answer("choice", letter)


def chosen_letter(text: str, choices: str) -> str | None:
    """The letter that a text chooses, in upper case; None when it chooses none of `choices`, or several.

    >>> chosen_letter("I think the answer is b.", "ABCD")
    'B'
    >>> chosen_letter("The answer is A, B, C or D", "ABCD")
    """
    part, is_marked = marked_part(text[-_MAX_CHARS:])
    bare = _WRAPPER.sub(" ", fold(part))
    lines = bare.strip()  # Markdown begins lines: its marks go one by one below
    text = _MARKS.sub("", bare)
    if is_marked and _ARTICLE.match(text.strip()) is None:
        found = _read_letters(re.compile(_LETTER).match(text.strip()), text.strip(), choices)
        if found:
            return found if len(found) == 1 else None
    for find in (_in_whole, _in_statement, _in_name, _in_front):
        found = find(lines if find is _in_whole else text, choices)
        if found:
            return found if len(found) == 1 else None
    return None


def _in_whole(text: str, choices: str) -> str:
    """The letter that is all of a text or of its last line; several where other lines are such letters too."""
    lines = [_bare_letter(line, choices) for line in text.split("\n")]
    return "".join(dict.fromkeys(filter(None, lines))) if lines[-1] else _bare_letter(text, choices)


def _bare_letter(text: str, choices: str) -> str:
    bare = _MARKS.sub("", text)
    match = _WHOLE.fullmatch(bare) if len(bare) <= _MAX_BARE_CHARS else None
    return match[1].upper() if match is not None and match[1].upper() in choices and "?" not in bare else ""


def _in_statement(text: str, choices: str) -> str:
    """The letters of the last statement."""
    matches = [match for form in _STATEMENTS for match in form.finditer(text) if _is_meant(match, text)]
    stated = [(match.start(1), letters) for match in matches if (letters := _read_letters(match, text, choices))]
    last = [letters for _, letters in sorted(stated)]
    also = [match for match in matches if re.search(r"\balso\b", match[0], re.IGNORECASE)]
    return "".join(last if also else last[-1:])


def _in_name(text: str, choices: str) -> str:
    """Every letter that is named as an option."""
    named = (_read_letters(match, text, choices) for match in _NAMED.finditer(text) if _is_meant(match, text))
    return "".join(sorted(set("".join(named))))


def _in_front(text: str, choices: str) -> str:
    """The letter that a text begins with; several where it lists the options."""
    if _LEADING.match(text) is None:
        return ""
    matches = (match for match in _LEADING.finditer(text) if not _is_denied(match, text))
    return "".join(dict.fromkeys("".join(_read_letters(match, text, choices) for match in matches)))


def _read_letters(match: re.Match[str] | None, text: str, choices: str) -> str:
    """The letter of a match and those that follow it as alternatives, each once."""
    found = dict[str, None]()
    while match is not None:
        found[match[1].upper()] = None
        match = _ALTERNATIVE.match(text, match.end())
    return "".join(letter for letter in found if letter in choices)


def _is_meant(match: re.Match[str], text: str) -> bool:
    """Whether a letter is a choice: a small one, which may be a word, must end its sentence, and "A" no article.

    A letter before a question mark is asked for, and one that is denied is not chosen.
    """
    if _ARTICLE.match(text, match.start(1)) or _QUESTION.match(text, match.end(1)) or _is_denied(match, text):
        return False
    return match[1].isupper() or match[0][-1] in ")]" or _SENTENCE_END.match(text, match.end(1)) is not None


def _is_denied(match: re.Match[str], text: str) -> bool:
    before = text[max(0, match.start(1) - 80) : match.start(1)]
    return _DENIED_BEFORE.search(before) is not None or _DENIED_BEHIND.match(text, match.end(1)) is not None
