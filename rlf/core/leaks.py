"""Whether a text gives a value away, as it stands or in another form, and whether it lets a policy write one.

A value leaks in any case and spacing, reversed, spelled letter by letter, in other digits, as a number in words, and in
the usual encodings. Short values are not looked for in forms in which other words could be them by chance.
"""

from __future__ import annotations

import base64
import codecs
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache

_WORD = re.compile(r"[^\W_]+")
# Letters or digits one by one, each with the same kind of mark between: B-i-l, 1 7 3 8.
_SPELLED = re.compile(r"(?<![^\W_])[^\W_](?:[\s\-_.,;:/|*+]{1,2}[^\W_](?![^\W_])){2,}")
_GROUPED = re.compile(r"(?<!\d)\d{1,3}(?:[ ,.'\u2019_]\d{3})+(?!\d)")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_CODE = re.compile(r"[A-Za-z0-9+/]{6,}")
_ISO_DAY = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_MIN_FORM = 4
"""Characters of a value that is looked for reversed, put together, or encoded."""
_MIN_IN_WORDS = 10
"""Smaller numbers stand in words that count nothing: the longer one."""
_MAX_WINDOW = 4
_TEENS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
_ONES = re.findall(r"\w+", f"zero one two three four five six seven eight nine {_TEENS}")
_TENS = re.findall(r"\w+", "twenty thirty forty fifty sixty seventy eighty ninety")
_SCALES = ((10**9, "billion"), (10**6, "million"), (1000, "thousand"), (100, "hundred"))
_MONTHS = re.findall(r"\w+", "january february march april may june july august september october november december")

Value = str | int | float


class SearchedText:
    """A text in the forms in which values are looked for."""

    def __init__(self, text: str) -> None:
        self._raw = text
        self._text = unicodedata.normalize("NFKC", text).casefold()
        self._words = _WORD.findall(self._text)

    @cached_property
    def _spaced(self) -> str:
        return _space(self._words)

    @cached_property
    def _counted(self) -> str:
        return _space(_plain_number_words(self._words))

    @cached_property
    def _windows(self) -> frozenset[str]:
        return _join_neighbours(self._words)

    @cached_property
    def _reversed(self) -> frozenset[str]:
        return _join_neighbours(_WORD.findall(self._text[::-1]))

    @cached_property
    def _spelled(self) -> tuple[str, ...]:
        """Runs of single letters or digits, each without what stands between."""
        return tuple("".join(_WORD.findall(run)) for run in _SPELLED.findall(self._text))

    @cached_property
    def _codes(self) -> frozenset[str]:
        return frozenset(_CODE.findall(self._raw))

    @cached_property
    def _numbers(self) -> frozenset[float]:
        numbers = (*_NUMBER.findall(self._text), *re.findall(r"\d+", self._text))  # in digits of any script
        found = [
            _WORD.sub(lambda run: "".join(str(unicodedata.digit(one)) for one in run[0]), each) for each in numbers
        ]
        grouped = ["".join(re.findall(r"\d+", number)) for number in _GROUPED.findall(self._text)]
        return frozenset(float(number) for number in (*found, *grouped))

    def find(self, value: Value) -> str | None:
        """In which form the text has a value; None where it has it in none."""
        number = as_number(value)
        if number is not None:
            return self._find_number(number)
        words = _WORD.findall(unicodedata.normalize("NFKC", str(value)).casefold())
        compact = "".join(words)
        if not compact:
            return "as it stands" if (bare := str(value).strip()) and bare in self._raw else None
        if _space(words) in self._spaced or (compact in self._windows and _is_long(compact)):
            return "as it stands"
        return self._find_form(compact, str(value)) if _is_long(compact) else None

    def _find_number(self, number: float) -> str | None:
        if number in self._numbers:
            return "in digits"
        digits = re.sub(r"\D", "", f"{number:.12g}")
        words = _write_number(int(number)) if number == int(number) and number >= _MIN_IN_WORDS else []
        if words and _space(words) in self._counted:
            return "in words"
        return self._find_form(digits, f"{number:.12g}") if _is_long(digits) else None

    def _find_form(self, compact: str, value: str) -> str | None:
        if compact != compact[::-1] and compact in self._reversed:
            return "reversed"
        if any(compact in run or compact[::-1] in run for run in self._spelled):
            return "spelled"
        if self._codes and not self._codes.isdisjoint(_encode(value)):
            return "encoded"
        turned = codecs.encode(compact, "rot13")
        return "encoded" if turned != compact and turned in self._windows else None

    def gives(self, value: Value) -> bool:
        """Whether a policy that reads the text can write a value, be it in other words: a day, a number, a plural."""
        if self.find(value) is not None:
            return True
        text = unicodedata.normalize("NFKC", str(value)).casefold()
        if day := _ISO_DAY.match(text):
            year, month, of_month = day.groups()
            named = {_MONTHS[int(month) - 1], _MONTHS[int(month) - 1][:3]} if 1 <= int(month) <= 12 else set()
            has_month = bool(named & set(self._words)) or float(month) in self._numbers
            nth = int(of_month)
            has_day = nth in self._numbers or any(re.fullmatch(rf"0?{nth}(st|nd|rd|th)", one) for one in self._words)
            return float(year) in self._numbers and has_month and has_day
        if clock := re.fullmatch(r"(\d?\d):(\d\d)(?::00)?", text):
            hour, minute = int(clock[1]), int(clock[2])
            return bool({hour, (hour - 1) % 12 + 1} & self._numbers) and (not minute or minute in self._numbers)
        wanted = _WORD.findall(text)
        return bool(wanted) and all(any(_is_alike(word, each) for each in self._words) for word in wanted)


@lru_cache(maxsize=4096)
def _encode(value: str) -> frozenset[str]:
    """A value in base64 and in hexadecimal digits."""
    written = [each.encode() for each in (value, value.casefold())]
    return frozenset(
        form
        for each in written
        for form in (base64.b64encode(each).decode().rstrip("="), each.hex(), each.hex().upper())
    )


def as_number(value: Value) -> float | None:
    """The number that a value is, also one in digits alone; None for another text."""
    if not isinstance(value, str):
        return float(value)
    return float(value) if re.fullmatch(r"-?\d+(\.\d+)?", value.strip()) else None


def _is_long(compact: str) -> bool:
    return len(compact) >= _MIN_FORM


def _space(words: Iterable[str]) -> str:
    return f" {' '.join(words)} "


def _join_neighbours(words: Sequence[str]) -> frozenset[str]:
    """Every word, and up to four neighbours as one: `Riverside` is `river side`."""
    joined = ("".join(words[at : at + size]) for size in range(1, _MAX_WINDOW + 1) for at in range(len(words)))
    return frozenset(joined)


def _is_alike(wanted: str, word: str) -> bool:
    """Whether one word is the other, a longer form of it, or the same number."""
    if wanted == word:
        return True
    if wanted.isdecimal() or word.isdecimal():
        return wanted.lstrip("0") == word.lstrip("0") or [word] == _write_number(
            int(wanted) if wanted.isdecimal() else -1
        )
    if not (wanted.isalpha() and word.isalpha()):
        return False
    short, long = sorted((wanted, word), key=len)
    return len(short) >= (3 if short == wanted else 5) and len(long) - len(short) <= 2 and long.startswith(short)


def _plain_number_words(words: Sequence[str]) -> list[str]:
    """Words without the `and` of numbers, and with `one` for `a`: a hundred and one."""
    scales = {name for _, name in _SCALES}
    kept = [word for word in words if word != "and"]
    return [
        "one" if word == "a" and kept[at + 1 : at + 2] and kept[at + 1] in scales else word
        for at, word in enumerate(kept)
    ]


@lru_cache(maxsize=4096)
def _write_number(number: int) -> list[str]:
    """A whole number in English, a word each."""
    return list(_iterate_number_words(number)) if 0 <= number < 10**12 else []


def _iterate_number_words(number: int) -> Iterator[str]:
    for size, name in _SCALES:
        if number >= size:
            yield from _iterate_number_words(number // size)
            yield name
            if number % size:
                yield from _iterate_number_words(number % size)
            return
    if number < len(_ONES):
        yield _ONES[number]
        return
    yield _TENS[number // 10 - 2]
    if number % 10:
        yield _ONES[number % 10]
