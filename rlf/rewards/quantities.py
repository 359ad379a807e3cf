"""Quantities: numbers with units in text, as people and models write them.

What can be read in two ways is read in the one way that is stated at `Quantity` and `_read_decimal`.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction
from functools import cache, lru_cache
from typing import NamedTuple

from rlf.core.redact import fold

_MAX_CHARS = 20_000

# Units: dimension, factor to its first unit (and what is added before), names; `*` before those that take SI prefixes.
# A name that stands twice may be either: 5 pounds weigh or cost. Months are no days, and no currency is another.
_UNITS = """
*m 1 m|metre|meter; *kg 1/1000 g|gram|gramme; *s 1 s|sec|second; *A 1 A|amp|ampere; *K 1 K|kelvin
*mol 1 mol|mole; *cd 1 cd|candela; *s^-1 1 Hz|hertz; *kg.m.s^-2 1 N|newton; *kg.m^-1.s^-2 1 Pa|pascal
*kg.m^2.s^-2 1 J|joule; *kg.m^2.s^-3 1 W|watt; *kg.m^2.s^-3.A^-1 1 V|volt; *kg.m^2.s^-3.A^-2 1 \u03a9|\u2126|ohm
*m^3 1/1000 L|l|litre|liter; *bit 1 bit; *bit 8 B|byte; bit 8192 KiB|kibibyte; bit 8388608 MiB|mebibyte
bit 8589934592 GiB|gibibyte; *kg.m^2.s^-2 4.184 cal|calorie; *kg.m^2.s^-2 3600 Wh|watt hour|watt-hour|watthour
*kg.m^2.s^-2 1.602176634e-19 eV|electronvolt; *kg 1000 t|tonne|metric ton; s 60 min|minute; s 3600 h|hr|hour
s 86400 d|day; s 604800 wk|week; month 1 mo|month; month 12 y|yr|year; month 120 decade
month 1200 century|centuries; m 0.0254 in|inch|inches; m 0.3048 ft|foot|feet; m 0.9144 yd|yard
m 1609.344 mi|mile; m 1852 nmi|nautical mile; m^2 4046.8564224 acre; m^2 10000 ha|hectare
kg 0.45359237 lb|lbs|pound; kg 0.028349523125 oz|ounce; kg 907.18474 ton; kg 1000 ton
m^3 0.003785411784 gal|gallon; m.s^-1 0.44704 mph; m.s^-1 5/18 kph|kmh|kmph; m.s^-1 463/900 kn|knot
kg.m^-1.s^-2 100000 bar; kg.m^-1.s^-2 101325 atm|atmosphere
K 1+273.15 C|\u00b0C|\u2103|celsius|degree celsius|centigrade|degree centigrade|\u00b0|degree
K 5/9+459.67 F|\u00b0F|\u2109|fahrenheit|degree fahrenheit|\u00b0|degree; turn 1/360 \u00b0|deg|degree
turn 0.15915494309189535 rad|radian; - 1/100 %|percent|per cent|pct; - 1/1000 \u2030|per mille
$ 1 $|USD|US$|dollar|US dollar|buck; $ 1/100 \u00a2|cent; EUR 1 \u20ac|EUR|euro; EUR 1/100 cent|euro cent
GBP 1 \u00a3|GBP|pound|pound sterling; GBP 1/100 p|penny|pence; JPY 1 \u00a5|JPY|yen; CNY 1 \u00a5|CNY|RMB|yuan
INR 1 \u20b9|INR|Rs|rupee
"""
_PREFIXES = {
    **{"n": -9, "\u00b5": -6, "\u03bc": -6, "u": -6, "m": -3, "c": -2, "d": -1, "h": 2},
    **{"k": 3, "K": 3, "M": 6, "G": 9, "T": 12},
    **{"nano": -9, "micro": -6, "milli": -3, "centi": -2, "deci": -1, "kilo": 3, "mega": 6, "giga": 9, "tera": 12},
}
_FACTOR = re.compile(
    r"(?P<over>/|\bper\b)?[\s.*\u00b7\u22c5-]{0,3}(?:(?P<power_first>square|sq\.?|cubic|cu\.?)\s)?"
    r"(?P<name>[^\W\d_]+|[%\u00b0\u2030$\u20ac\u00a3\u00a5\u20b9\u00a2][CF]?)(?:\^?\{?(?P<power>-?\d)\}?)?\s{0,3}"
)


class MeasureUnit(NamedTuple):
    """What a unit measures, and how a number of it becomes one of the first unit of its dimension."""

    dimension: tuple[tuple[str, int], ...]
    factor: Fraction
    offset: Fraction = Fraction(0)
    """Added before the factor, of temperatures."""

    def to_base(self, value: Fraction) -> Fraction:
        return (value + self.offset) * self.factor


_NONE = MeasureUnit((), Fraction(1))


@cache
def _known_units() -> dict[str, tuple[MeasureUnit, ...]]:
    """Every unit by its names, with prefixes: of tenths, hundredths and hundreds those that are usual (no decibel)."""
    units = dict[str, tuple[MeasureUnit, ...]]()
    for entry in re.split(r"[;\n]\s*", _UNITS.strip()):
        dimension, factor, names = entry.split(" ", 2)
        parts = [part.partition("^") for part in dimension.lstrip("*-").split(".") if part]
        size, _, offset = factor.partition("+")
        powers = tuple(sorted((base, int(power or 1)) for base, _, power in parts))
        unit = MeasureUnit(powers, Fraction(size), Fraction(offset or 0))
        for name in names.split("|"):
            units[name] = (*units.get(name, ()), unit)
            for prefix, ten in _PREFIXES.items() if dimension[0] == "*" else ():
                usual = abs(ten) > 2 or name in ("m", "l", "L", "g", "Pa") or len(prefix) > 1
                if usual and (len(prefix) > 1) == (len(name) > 3):
                    units.setdefault(prefix + name, (unit._replace(factor=unit.factor * Fraction(10) ** ten),))
    return units


@lru_cache(maxsize=4096)
def units_of(text: str) -> tuple[MeasureUnit, ...]:
    """What a unit may be: km, km/h, m s^-2, square miles, degrees Celsius; none where it is no unit.

    >>> [float(unit.factor) for text in ("km/h", "square kilometres", "apples") for unit in units_of(text)]
    [0.2777777777777778, 1000000.0]
    """
    text = _RAISED_UNIT.sub(lambda power: "^" + power[0].translate(SUPERSCRIPTS), text).replace(" ^", "^").strip()
    if named := _named_units(text):
        return named
    powers, factor, at = dict[str, int](), Fraction(1), 0
    while at < len(text):
        part = _FACTOR.match(text, at)
        named = _named_units(part["name"]) if part is not None else ()
        if part is None or not named or named[0].offset:
            return ()
        first = {"s": 2, "c": 3}.get((part["power_first"] or " ")[0], 1)
        power = first * int(part["power"] or 1) * (-1 if part["over"] else 1)
        factor *= named[0].factor ** power
        for base, exponent in named[0].dimension:
            powers[base] = powers.get(base, 0) + exponent * power
        at = part.end()
    dimension = tuple(sorted((base, power) for base, power in powers.items() if power))
    return (MeasureUnit(dimension, factor),) if text else ()


def _named_units(name: str) -> tuple[MeasureUnit, ...]:
    """The units of one name, in the plural too, or in other letters (KM, Hours)."""
    known, low = _known_units(), name.casefold().replace("degrees", "degree") if len(name) > 1 else name
    forms = (name, name.rstrip("."), low, *(form[:-1] for form in (name, low) if form.endswith("s") and len(form) > 2))
    return next((known[form] for form in forms if form in known), ())


class Quantity(NamedTuple):
    """A number as it is written, and its unit.

    Numbers are exact. A bare number is compared with a percentage as the share that it is: 0.75 is 75 %.
    """

    value: Fraction
    unit: str = ""

    def __str__(self) -> str:
        return f"{_show_number(self.value)} {self.unit}".rstrip()

    def same(self, other: Quantity) -> bool:
        """Whether both are the same amount: 1 km and 1000 m, 20 degrees C and 68 degrees F."""
        pairs = ((mine, theirs) for mine in self._units() for theirs in other._units())
        return any(
            mine.dimension == theirs.dimension and mine.to_base(self.value) == theirs.to_base(other.value)
            for mine, theirs in pairs
        )

    def is_near(self, answer: Quantity, tolerance: float) -> bool:
        """Whether an answer is this gold, within tolerance * max(1, |gold|)."""
        limit = tolerance * max(1.0, abs(float(self.value)))
        return any(abs(value - self.value) <= limit for value in self.readings_of(answer))

    def readings_of(self, answer: Quantity) -> list[Fraction]:
        """The numbers that an answer may have in the unit of this gold; none where it has a unit of something else.

        Without a unit an answer is in the gold's, and the other way round, so that a percentage may be either number.
        """
        found = [] if self.unit and answer.unit else [answer.value]
        return found + [
            theirs.to_base(answer.value) / mine.factor - mine.offset
            for mine in self._units()
            for theirs in answer._units()
            if mine.dimension == theirs.dimension
        ]

    def in_base(self) -> str:
        """The amount in the first unit of its dimension, equal for equal amounts."""
        unit = self._units()[0]
        powers = (base if power == 1 else f"{base}^{power}" for base, power in unit.dimension)
        return " ".join((_show_number(unit.to_base(self.value)), *powers))

    def _units(self) -> tuple[MeasureUnit, ...]:
        return units_of(self.unit) or (_NONE,)


def _show_number(value: Fraction) -> str:
    """Exact: with a point where that ends, else as a fraction."""
    text = str(value)
    if value.denominator == 1 or 10**12 % value.denominator:
        return text
    whole, part = divmod(abs(value) * 10**12, 10**12)
    return f"{'-' * (value < 0)}{whole}.{int(part):012}".rstrip("0")


# Numbers in text, as people and models write them.

SUPERSCRIPTS = str.maketrans("\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207b", "0123456789-")
# Superscripts are a power only behind a digit or a bracket: `km²` has a unit.
_RAISED_UNIT = re.compile("[\u207b\u2070\u00b9\u00b2\u00b3\u2074-\u2079]+")
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
_PLAIN = r"(?:[1-9]\d{0,2}(?:(?:[ _']\d{3})+)(?:[.,]\d+)?(?![\d'_]| \d{3}(?!\d))|\d[\d.,]*\d|\d|[.,]\d+)"
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


_CURRENCY = re.compile(r"(US\$|[$\u20ac\u00a3\u00a5\u20b9]|\b(?:USD|EUR|GBP|JPY|CNY|INR|Rs))\s?$")
_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_SCALES |= {"k": 3, "mn": 6, "m": 6, "bn": 9, "b": 9}
_LARGE = "hundred|thousand|million|billion|trillion"
_SCALE = re.compile(rf"\s{{0,2}}({_LARGE}|bn|mn|(?<=\d)k)(?![A-Za-z])", re.IGNORECASE)
# An amount of money has no unit behind it, so that its letters are scales: $5M.
_SCALE_OF_MONEY = re.compile(rf"\s{{0,2}}({_LARGE}|[bm]n|[kmb])(?![A-Za-z])", re.IGNORECASE)
_HAS_LATEX = re.compile(r"[\\~$]")
_LATEX_UNITS = (
    (re.compile(r"\\(?:text|mathrm|textrm|mbox|operatorname)\s?\{([^{}]{0,99})\}"), r" \1 "),
    (re.compile(r"\^?\s?\{?\s?\\circ\s?\}?\s?"), "\u00b0"),
    (re.compile(r"\\([%$&])"), r"\1"),
    (re.compile(r"~"), " "),
    (re.compile(r"\$\$?(?![\s$])([^$\n]{1,200})(?<!\s)\$\$?(?!\d)"), r"\1"),  # as pandoc has it: $5 and $6 are money
)
_END_OF_CLAUSE = re.compile(r"[,;:!?()\[\]\n=\"]|\.(?:\s|$)|\s[-\u2014]\s")
_TOO_LARGE, _TOO_FINE = 2**1023, 2**3072
_MAX_DIGITS = 1000
"""Python refuses to write or read integers of more than 4300, which no answer has."""
_MAX_BITS = 200_000


class Found(NamedTuple):
    """A number of a text, and where it stands with its unit."""

    quantity: Quantity
    start: int
    end: int


def find_numbers(text: str) -> list[Found]:
    """The finite numbers of a text, in order."""
    found, end = list[Found](), 0
    for match in _EXPRESSION.finditer(text):
        if match.start() < end:  # the power of a unit
            continue
        value, start, end = _read_number(match), match.start(), match.end()
        currency = _CURRENCY.search(text, max(0, start - 5), start)
        scale = (_SCALE_OF_MONEY if currency else _SCALE).match(text, end)
        if scale is not None:
            value = value and value * 10 ** _SCALES[scale[1].casefold()]
            end = scale.end()
        unit, end = (currency[1], end) if currency else _read_unit(text, end)
        if value is not None and abs(value) < _TOO_LARGE and value.denominator < _TOO_FINE:
            found.append(Found(Quantity(value, unit), currency.start() if currency else start, end))
    return found


def _read_unit(text: str, start: int) -> tuple[str, int]:
    """The unit that stands behind a number, and where it ends; empty where there is none.

    Of small letters apart from the number ("5 in", "3 a") nothing but the end of a clause may follow.
    """
    rest = _END_OF_CLAUSE.split(text[start : start + 60], maxsplit=1)[0]
    words = list(re.finditer(r"\S+", rest))[:4]
    for last in reversed(words):
        unit = rest[: last.end()].strip()
        whole = not (unit.isalpha() and unit.islower() and len(unit) < 3) or not rest[last.end() :].strip()
        if whole and units_of(unit):
            return unit, start + last.end()
    return "", start


def in_typed_form(text: str) -> str:
    """The text with fractions, powers and signs as they are typed, and the numbers of a date apart."""
    for pattern, plain in _LATEX_UNITS if _HAS_LATEX.search(text) else ():
        text = pattern.sub(plain, text)
    text = _DATE.sub(lambda date: date[0].replace("/", ";"), text)
    text = _LATEX_FRACTION.sub(r"\1/\2", _LATEX_SPACE.sub("", text))
    text = _LATEX_SHORT_FRACTION.sub(r"\1/\2", text)
    text = _RAISED.sub(lambda power: "^" + power[0].translate(SUPERSCRIPTS), text)
    for character in _VULGAR:
        if character in text:
            fraction = unicodedata.normalize("NFKC", character).replace("\u2044", "/")
            text = re.sub(rf"(?<=\d)\s?{character}", f" {fraction}", text).replace(character, fraction)
    text = _SIGN_BEFORE_CURRENCY.sub(r"\1-", _SIGN_APART.sub("-", _POWER.sub("^", fold(text))))
    return _SIGN_IN_WORDS.sub(r"\g<start>\g<space>-", text)


def _read_number(match: re.Match[str]) -> Fraction | None:
    """The number that an expression is; None where it is none, or several."""
    number = _read_decimal(match["first"]) if len(match[0]) <= _MAX_DIGITS else None
    if number is None:
        return None
    power = int(match["ten"] or match["power"] or 0)
    if abs(power) * max(4, number.numerator.bit_length(), number.denominator.bit_length()) > _MAX_BITS:
        return None  # beyond what a float holds, and long to compute
    try:
        if match["ten"] is not None:
            number *= Fraction(10) ** power
        elif match["power"] is not None:
            number **= power
        elif match["under"] is not None:
            under = _read_decimal(match["under"]) or Fraction(0)
            number = number / under if match["over"] is None else number + int(match["over"]) / under
    except ZeroDivisionError:
        return None
    return -number if match["sign"] == "-" else number


def _read_decimal(text: str) -> Fraction | None:
    """A number of digits, points, commas and other marks between groups of three.

    Of two marks the last is the decimal one (1.234,50); a single comma before three digits groups them (1,234), a
    single point does not (1.234). Digits between marks that are no groups of three are a list, and no number.
    """
    mantissa, _, exponent = re.sub(r"[ _']", "", text).rstrip(".").lower().partition("e")
    comma, point = mantissa.rfind(","), mantissa.rfind(".")
    mark, group = (".", ",") if point > comma else (",", ".")
    whole, _, decimals = mantissa.rpartition(mark)
    if mark not in mantissa or (_GROUPED.fullmatch(mantissa) and (mark == "," or mantissa.count(mark) > 1)):
        whole, decimals = mantissa.replace(mark, ""), ""
    elif group in whole and _GROUPED.fullmatch(whole):
        whole = whole.replace(group, "")
    elif not whole.isdigit() and whole:
        return None
    return Fraction(f"{whole or '0'}.{decimals or '0'}e{exponent or '0'}")
