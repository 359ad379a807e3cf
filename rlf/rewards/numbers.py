"""Numbers in text, as people and models write them."""

from __future__ import annotations

import math
import re
import unicodedata

from rlf.core.redact import fold

_MAX_CHARS = 20_000
SUPERSCRIPTS = str.maketrans("\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207b", "0123456789-")
# Superscripts are a power only behind a digit or a bracket: `km²` has a unit.
_RAISED = re.compile("(?<=[\\d)}])[\u207b\u2070\u00b9\u00b2\u00b3\u2074-\u2079]+")
_VULGAR = "\u00bd\u2153\u2154\u00bc\u00be\u2155\u2156\u2157\u2158\u2159\u215a\u215b\u215c\u215d\u215e"
_IN_BRACES = r"\{\s{0,3}([-+\d.,]{1,40})\s{0,3}\}"
_LATEX_FRACTION = re.compile(rf"\\[dtc]?frac\s{{0,3}}{_IN_BRACES}\s{{0,3}}{_IN_BRACES}")
# LaTeX takes one digit for each part without braces: \frac12 is 1/2.
_LATEX_SHORT_FRACTION = re.compile(r"\\[dtc]?frac\s{0,3}(\d)\s{0,3}(\d)")
# Spaces of LaTeX stand between groups of digits: `1\,000`, `1{,}000`.
_LATEX_SPACE = re.compile(r"\\[,;:! ]|\{,\}")
# Python's power sign between numbers, as models write it in answers.
_POWER = re.compile(r"(?<=\d)\*\*(?=[-+]?\d)")
# -$5 and $-5 are the same amount; the sign goes next to the digits.
_SIGN_BEFORE_CURRENCY = re.compile(r"-(?=[$\u00a3\u00a5\u20ac]\s?[\d.])([$\u00a3\u00a5\u20ac])\s?")
# `= - 5` has a sign, `7 - 5` has an operator. Look-behinds have fixed widths, hence three of them.
_SIGN_APART = re.compile(r"(?:(?<=[=:(\[{])|(?<=[=:(\[{]\s)|(?<=[=:(\[{]\s\s))-\s{1,3}(?=[$\u00a3\u00a5\u20ac]?[\d.])")
# `is minus 5` has a sign; `7 minus 5` has an operator, so a verb or the start must come before.
_SIGN_IN_WORDS = re.compile(
    r"(?P<start>^|[=:(,]|\b(?:is|are|was|were|equals|at|of|to|be)\b)(?P<space>\s{0,3})(?:minus|negative)\s{1,3}(?=[\d.])",
    re.IGNORECASE | re.MULTILINE,
)

# 2/3/2024 holds two slashes and is no fraction.
_DATE = re.compile(r"\d{1,4}(?:/\d{1,4}){2,}")

# Groups of three by spaces, `_` or `'` (1 000 000); else digits with points and commas, read by `_read_decimal`.
_PLAIN = r"(?:[1-9]\d{0,2}(?:(?:[ _']\d{3})+)(?![\d'_]| \d{3}(?!\d))|\d[\d.,]*\d|\d|[.,]\d+)"
# A full stop behind the digits ends a sentence, so it is taken along only where no digit follows.
_NUMBER = rf"{_PLAIN}(?:(?<=\d)\.(?!\d))?(?:[eE][-+]?\d{{1,4}})?"
# A number, and what makes another one of it: times ten to a power, a power, a fraction, a mixed fraction.
_EXPRESSION = re.compile(
    rf"(?<![A-Za-z0-9_.])(?P<sign>[-+]?)(?!0[xX][0-9A-Fa-f])(?P<first>{_NUMBER})"
    rf"(?:\s{{0,2}}(?:[xX*\u00d7\u00b7]|\\times|\\cdot)\s{{0,2}}10\s?\^\s?\{{?(?P<ten>[-+]?\d{{1,4}})\}}?"
    rf"|\s?\^\s?\{{?(?P<power>[-+]?\d{{1,4}})\}}?"
    rf"|(?: (?P<over>\d+))?\s?/\s?(?P<under>\d+(?:[.,]\d+)?)(?!\s?/)(?!\d))?"
)
# Groups of three, or as in India one of three and then groups of two (12,34,567).
_GROUPED = re.compile(r"[1-9]\d{0,2}(?:(?P<group>[,.])\d{3})(?:(?P=group)\d{3})*|[1-9]\d?(?:,\d{2})+,\d{3}")


def last_number(text: str) -> float | None:
    """The last finite number of a text; None when there is none.

    >>> last_number("about 1,250.5 km2")
    1250.5
    >>> [last_number(each) for each in ("\\u22125", "4,2", "1/2", "3 x 10^5", "1 000 000")]
    [-5.0, 4.2, 0.5, 300000.0, 1000000.0]
    """
    values = (_read_number(match) for match in _EXPRESSION.finditer(_in_ascii(text[-_MAX_CHARS:])))
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return finite[-1] if finite else None


def _in_ascii(text: str) -> str:
    """The text with fractions, powers and signs as they are typed, and the numbers of a date apart."""
    text = _DATE.sub(lambda date: date[0].replace("/", ";"), text)
    text = _LATEX_FRACTION.sub(r"\1/\2", _LATEX_SPACE.sub("", text))
    text = _LATEX_SHORT_FRACTION.sub(r"\1/\2", text)
    text = _RAISED.sub(lambda power: "^" + power[0].translate(SUPERSCRIPTS), text)
    for character in _VULGAR:
        if character in text:
            fraction = unicodedata.normalize("NFKC", character).replace("\u2044", "/")
            text = re.sub(rf"(?<=\d)\s?{character}", f" {fraction}", text).replace(character, fraction)
    text = _SIGN_BEFORE_CURRENCY.sub("-", _SIGN_APART.sub("-", _POWER.sub("^", fold(text))))
    return _SIGN_IN_WORDS.sub(r"\g<start>\g<space>-", text)


def _read_number(match: re.Match[str]) -> float | None:
    """The number that an expression is; None where it is none."""
    number = _read_decimal(match["first"])
    try:
        if match["ten"] is not None:
            number *= 10.0 ** int(match["ten"])
        elif match["power"] is not None:
            number **= int(match["power"])
        elif match["under"] is not None:
            under = _read_decimal(match["under"])
            number = number / under if match["over"] is None else number + int(match["over"]) / under
    except (ZeroDivisionError, OverflowError):
        return None
    return -number if match["sign"] == "-" else number


def _read_decimal(text: str) -> float:
    """A number of digits, points, commas and other marks between groups of three.

    Of the two marks the last is the decimal one. Digits between marks that are no groups of three are a list, of which
    the last number counts.
    """
    mantissa, _, exponent = re.sub(r"[ _']", "", text).rstrip(".").lower().partition("e")
    comma, point = mantissa.rfind(","), mantissa.rfind(".")
    mark, group = (".", ",") if point > comma else (",", ".")
    whole, _, decimals = mantissa.rpartition(mark)
    if group in mantissa or mantissa.count(mark) > 1 or (mark == "," and _GROUPED.fullmatch(mantissa)):
        if _GROUPED.fullmatch(mantissa):
            whole, decimals = mantissa.replace(mark, ""), ""
        else:
            whole = whole.replace(group, "") if _GROUPED.fullmatch(whole) else re.split("[.,]", whole)[-1]
            whole, decimals = (whole, decimals) if group in mantissa else (decimals, "")
    elif mark not in mantissa:
        whole, decimals = mantissa, ""
    return float(f"{whole or '0'}.{decimals or '0'}e{exponent or '0'}")
