"""Texts as mathematics: the LaTeX of a text that is mathematics in whole, and the part of an answer that is its result.

Pure and without the library that compares: `rlf check` asks here which golds are read, `math_worker` reads the same.
A gold is read in whole or as text, never in part, since a part ("2" of 2^{10}) would be paid for.
"""

from __future__ import annotations

import re

from rlf.core.redact import fold
from rlf.rewards.answers import last_boxed, read_answer_text, read_date, result_of
from rlf.rewards.normalization import normalize
from rlf.rewards.quantities import SUPERSCRIPTS
from rlf.rewards.rules.numeric import number_in

_MAX_CHARS = 2000
_NEAR = 1e-6
_PROSE = re.compile(r"(?=[^\\^=*/+\u221a]*$).*(?<![A-Za-z])(?!sqrt|sin|cos|tan|log|exp|pi\b)[A-Za-z']{3,}", re.DOTALL)
"""A text of words, and no formula."""
_NAMES = "sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|sinh|cosh|tanh|log|ln|exp|min|max|gcd|lcm|det"
_GREEK = "alpha|beta|gamma|delta|epsilon|theta|lambda|mu|pi|rho|sigma|tau|phi|varphi|psi|omega|Delta|Omega"
_COMMANDS = (
    rf"{_NAMES}|{_GREEK}|frac|sqrt|binom|infty|cup|cap|setminus|cdot|times|div|pm|mp|leq?|geq?|neq?|lt|gt|circ"
    r"|emptyset|lfloor|rfloor|lceil|rceil|in|mathbb|begin|end|sum|int"
)
_TOKEN = re.compile(
    rf"\\(?:{_COMMANDS})(?![A-Za-z])|\\[{{}}%\\]|(?:[bpv]matrix|array)(?=\}})|\d+(?:\.\d+)?|\.\d+"
    r"|(?<![A-Za-z])[A-Za-z](?![A-Za-z])"
    # A product of names, 2ab or xy + 1, stands at a digit, an operator or a bracket; other letters are a word.
    r"|(?<![A-Za-z])[x-z]{2,3}(?![A-Za-z])|(?<=[\d)}^*/+=-])[a-z]{2,4}(?![A-Za-z])|(?<![A-Za-z])[a-z]{2,4}(?=\s?[_^*/+=()-])"
    r"|[-+*/^_=<>()\[\]{},!|&]"
)
_SPELLINGS = (
    r"\left=> \right=> \displaystyle=> {,}=>, \dfrac=>\frac \tfrac=>\frac \cfrac=>\frac \lvert=>| \rvert=>| "
    r"\varnothing=>\emptyset **=>^ <==>\le_ >==>\ge_ !==>\ne_ "
    "\u2264=>\\le_ \u2265=>\\ge_ \u2260=>\\ne_ \u03c0=>\\pi_ \u221e=>\\infty_ \u222a=>\\cup_ \u2229=>\\cap_ "
    "\u2205=>\\emptyset_ \u00d7=>\\times_ \u00b7=>\\cdot_ \u00f7=>/ \u00b1=>\\pm_ \u00b0=>^\\circ_"
)
_SAME = [tuple(pair.replace("_", " ").split("=>")) for pair in _SPELLINGS.split()]
"""Spellings of one thing, in the order in which they are replaced; `_` is a space."""
_SPACE = re.compile(r"(?<!\\)\\[!,;: ]|~|\\q?quad(?![A-Za-z])")
_WORDS = re.compile(r"\\(?:text(?:bf|it|rm|normal)?|mbox|mathrm|mathbf|operatorname)\s?\{([^{}]*)\}")
_DOLLAR = re.compile(r"\\?[$\u00a3\u20ac](?=\s?[-+\d.])|(?<=\d)\\\$")
_GROUPS = re.compile(r"(?<![\d.,^_])(\d{1,3}(?:,\d{3})+|[1-9]\d{0,2}(?: \d{3})+)(?![\d,]| \d)")
_MIXED = re.compile(r"(?<![\d.^_/}])(\d+)\s+(\d+)\s?/\s?(\d+)(?![\d.])")
_REPEATING = re.compile(r"(?<![\d.])(\d{0,15})\.(\d{0,15})\\overline\{(\d{1,15})\}")
_ORDINAL = re.compile(r"(?<=\d)\s?(?:\^\{?\s?)?(?:st|nd|rd|th)\s?\}?$")
_PERCENT = re.compile(r"(?<=[\d.}])\s?(?:\\?%|percent)$")
_DEGREES = re.compile(r"(?<=[\d.}])\s?(?:\^\{?\s?\\circ\s?\}?|degrees?)(?:\s?[CF])?\s?$")
_UNIT = re.compile(
    r"(?<=[\d})])(?:\s?(?:[cmk]m|m(?=/s)|kg|mg|m[lL]|ft|lbs?|oz|mi|yd)|\s+(?:in|hr|[mgsh]|(?!sqrt|and|mod)[A-Za-z]{3,20}))"
    r"(?:\s?/\s?[A-Za-z]{1,10})?(?:\s?\^?\s?\{?\d\}?)?\.?$"
)
_NAMED_UNIT = re.compile(
    r"(?<=[\d})])\s?\\(?:text|mbox|mathrm|textrm)\s?\{\s*([A-Za-z][A-Za-z /]*)\.?\s*\}(?:\^\{?\d\}?)?$"
)
_NO_UNIT = re.compile(r"(?:hundred|dozen|half|quarter|third)s?\b|(?<!\\)\b[ap]m\b", re.IGNORECASE)
_LARGE = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_TIMES_TEN = re.compile(rf"(?<=\d)\s?(?:({'|'.join(_LARGE)})|[eE]([-+]?\d{{1,4}}))$")
_MONTHS = "Jan|Feb|Mar|Apr|May|June?|July?|Aug|Sept?|Oct|Nov|Dec"
_NO_NUMBER = re.compile(
    rf"(?:\d\s?:\s?\d+|\d\)?_\{{?\d+|\d\s?%\s?\d+|\b(?:{_MONTHS})[a-z]{{0,6}}\.?\s+\d{{1,2}}(?:st|nd|rd|th)?)\D{{0,200}}$"
)
"""A time, a ratio, a number in a base, a remainder, a day: no digits of it are a number."""
_AND = re.compile(r"\s*,?\s+(?:and|or)\s+", re.IGNORECASE)
_APART = re.compile(r"\d\s+[\d.]")
"""Numbers with nothing but space between them, which the library would add."""
_BASE = re.compile(r"\(?(\d+)\)?_\{?(\d+)\}?")
_RAISED = re.compile("(?<=[\\w)}])[\u207b\u2070\u00b9\u00b2\u00b3\u2074-\u2079]+")
_PRODUCT = re.compile(
    rf"(?<![\\A-Za-z{{])(?!(?:{_NAMES}|pi|sqrt|mod|or|and|in|ft|mi|[cmk][mgl])(?![a-z]))[a-z]{{2,3}}(?![A-Za-z}}])"
)
"""Names side by side, which between dollar signs are a product: $ab$."""
_INEQUALITY = re.compile(r"(?P<name>[a-z])\s*(?P<sign><|>|\\[lg](?:eq?|t)(?![A-Za-z]))(?P<end>[^<>]+)")
_ROOT = re.compile(r"\u221a\s?(?:\{?(\d+(?:\.\d+)?|[A-Za-z])\}?|\(([^()]*)\))")


def in_ascii(text: str) -> str:
    """The text with signs, digits, powers and roots as they are typed."""
    text = _RAISED.sub(lambda power: f"^{{{power[0].translate(SUPERSCRIPTS)}}}", text)
    return _ROOT.sub(lambda root: f"sqrt({root[1] or root[2]})", fold(text))


def as_latex(text: str) -> str | None:
    """The LaTeX of a text that is mathematics in whole; None where any part of it is not.

    >>> [as_latex(text) for text in ("2^10", "3 1/2", "5 \\\\text{ cm}", "3, 5 and 7")]
    ['2^{10}', '3\\\\frac{1}{2}', '5', '3, 5,7']
    >>> [as_latex(text) for text in ("March 5", "10:30", "4210_5", "the last is 7")]
    [None, None, None, None]
    """
    if len(text) > _MAX_CHARS:
        return None
    is_formula = text.strip()[:1] == "$"
    text = _without_marks(re.sub(r"\$\s?(,|or|and)\s?\$", r" \1 ", in_ascii(text)))
    if is_formula:
        text = _PRODUCT.sub(lambda names: " ".join(names[0]), text)
    if ":" in text.replace("\\:", "") or _NO_UNIT.search(text) or _BASE.fullmatch(text):
        return None
    latex = _unify(text)
    return latex if latex and _is_mathematics(latex) else None


def gold_latex(gold: str) -> str | None:
    """The LaTeX of a gold, or of the result that it ends with; None where it is compared as text."""
    return None if read_date(gold) is not None else as_latex(gold) or as_latex(result_of(gold))


def is_same_quantity(answer: str, gold: str) -> bool | None:
    """Whether an answer is a gold that is a number, where both have units or the answer is prose; None elsewhere."""
    known, given = read_answer_text(result_of(gold)).quantity, read_answer_text(result_of(answer)).quantity
    is_prose = _PROSE.match(result_of(answer)) is not None
    if is_prose and given is None:
        given = number_in(answer)
    if known is None or not (is_prose or (given and known.unit and given.unit)):
        return None
    return given is not None and known.is_near(given, _NEAR)


def in_radians(latex: str, text: str) -> str:
    """LaTeX of an angle that a text has in degrees."""
    return f"({latex})\\cdot\\frac{{\\pi}}{{180}}" if _DEGREES.search(_without_marks(in_ascii(text))) else latex


def _as_intervals(text: str) -> str:
    """Inequalities of one name with "or" between them as a union of intervals: x < 2 or x > 3."""
    parts = re.split(r"\s*\bor\b\s*", text)
    found = [match for part in parts if (match := _INEQUALITY.fullmatch(part.strip()))]
    if len(parts) < 2 or len(found) < len(parts) or len({match["name"] for match in found}) > 1:
        return text
    return "\\cup ".join(
        f"(-\\infty, {match['end']}{'])'['e' not in match['sign']]}"
        if match["sign"].strip("\\")[0] in "<l"
        else f"{'[('['e' not in match['sign']]}{match['end']}, \\infty)"
        for match in found
    )


def _unify(text: str) -> str:
    """One spelling for what LaTeX, Unicode and keyboards write in several ways."""
    text = _NAMED_UNIT.sub("", text)
    text = _WORDS.sub(lambda words: f" {words[1]} " if words[1].strip() else " ", text)
    for written, same in _SAME:
        text = text.replace(written, same)
    text = _as_intervals(_DOLLAR.sub("", _SPACE.sub("", text)).strip())
    text = _REPEATING.sub(_fraction_of, text)
    text = re.sub(r"^(?:minus|negative)\s+(?=\d)", "-", text)
    text = _TIMES_TEN.sub(lambda ten: f"\\times 10^{{{_LARGE[ten[1]] if ten[1] else int(ten[2])}}}", text)
    text = re.sub(r"(?<=\d)\s?[xX]\s?(?=10\s?\^)", r"\\times ", text)
    text = re.sub(r"(?<=[)\]])\s?U\s?(?=[(\[])", r"\\cup ", text)
    text = _ORDINAL.sub("", text)
    text = _PERCENT.sub(r"\\%", text)
    text = _UNIT.sub("", _DEGREES.sub("", text))
    text = _AND.sub(",", text)
    if re.search(r"[(\[{]", text) is None:  # in (1,234) the comma separates
        parts = re.split(r",\s+", text)
        text = ", ".join(_GROUPS.sub(lambda number: re.sub("[ ,]", "", number[1]), part) for part in parts)
    text = _MIXED.sub(r"\1\\frac{\2}{\3}", text)
    text = re.sub(r"\^\s?\(([^()]*)\)", r"^{\1}", text)
    text = re.sub(r"\^\s?([-+]?\d+(?:\.\d+)?)", r"^{\1}", text)
    text = re.sub(
        r"\^\{0?\.(\d{1,9})\}", lambda digits: f"^{{\\frac{{{int(digits[1])}}}{{{10 ** len(digits[1])}}}}}", text
    )
    text = re.sub(r"(?<=\d)\s+(?=[A-Za-z](?![A-Za-z]))", "", text)
    text = re.sub(r"_\s?(\d+)", r"_{\1}", text)
    text = re.sub(r"\\frac\s*(\d)\s*(\d)", r"\\frac{\1}{\2}", text)
    text = re.sub(r"(?<![\\A-Za-z])sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}", text)
    text = re.sub(rf"(?<![\\A-Za-z])({_NAMES}|pi)(?![A-Za-z])", r"\\\1 ", text)
    text = re.sub(r"(?<![\\A-Za-z])(?:infinity|inf)(?![A-Za-z])", r"\\infty ", text)
    text = re.sub(r"^\\?\{(.*?)\\?\}$", r"\\{\1\\}", text) if text.count("{") == 1 else text
    text = "\\emptyset" if re.fullmatch(r"\\\{\s*\\\}", text) else text
    return text.strip()


def _is_mathematics(latex: str) -> bool:
    """Whether there is nothing but tokens of mathematics, and space between them."""
    if _APART.search(latex) or "\\circ" in latex or (re.search(r"\\c[ua]p", latex) and not re.search(r"[)\]}]", latex)):
        return False
    at = 0
    while at < len(latex):
        if latex[at].isspace():
            at += 1
            continue
        token = _TOKEN.match(latex, at)
        if token is None:
            return False
        at = token.end()
    # Letters without a number or an operator are a word; one alone is a name, or a choice.
    return re.fullmatch(r"(?![x-z]{2,3}$)[A-Za-z]{2,}", latex) is None


def _fraction_of(number: re.Match[str]) -> str:
    """A number whose last digits repeat."""
    whole, once, again = number[1] or "0", number[2], number[3]
    under = (10 ** len(again) - 1) * 10 ** len(once)
    return f"\\frac{{{int(whole + once + again) - int(whole + once)}}}{{{under}}}"


def _without_marks(text: str) -> str:
    """Without the signs around mathematics, and the full stop behind it."""
    text = text.strip()
    for _ in range(4):
        before = text
        text = text.strip().rstrip(".").strip() if not text.endswith("...") else text
        text = re.sub(r"^\*\*(.+)\*\*$", r"\1", text)
        inner = last_boxed(text)
        if inner is not None and text == f"\\boxed{{{inner}}}":
            text = inner
        for start, end in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
            if text.startswith(start) and text.endswith(end) and len(text) > len(start + end):
                middle = text[len(start) : -len(end)]
                text = middle if "$" not in middle.replace("\\$", "") else text
        if text == before:
            break
    return text


def has_no_number(text: str) -> bool:
    """Whether a text ends with digits that are no number by themselves: 10:30, May 5, 4210_5."""
    return _NO_NUMBER.search(_SPACE.sub("", text)) is not None


def same_math(answer: str, gold: str) -> bool:
    """Whether the result of an answer is a gold that is compared as text."""
    given, expected = (_plain_text(each) for each in (result_of(answer), gold))
    number, wanted = _BASE.fullmatch(given), _BASE.fullmatch(expected)
    if wanted is not None:  # the question may name the base: its digits will do
        return given == wanted[1] or (number is not None and number.groups() == wanted.groups())
    return given != "" and given == expected


def _plain_text(text: str) -> str:
    text = _WORDS.sub(r"\1", _without_marks(in_ascii(text)))
    text = _SPACE.sub(" ", text.replace("{:}", ":").replace("\\:", ":"))
    text = re.sub(r"\s*:\s*", ":", text)
    text = re.sub(r"([ap])\.?m\b\.?", r"\1m", text, flags=re.IGNORECASE)
    return normalize(_without_marks(text)) or text.strip()
