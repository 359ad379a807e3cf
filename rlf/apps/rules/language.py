"""`rule: language`: the answer is written in the language it should be."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from enum import StrEnum
from functools import lru_cache
from typing import ClassVar, Literal

from rlf.apps.rules.regex import Where
from rlf.rewards.kinds.rule import Rule
from rlf.rewards.term import KnownSample, Verdict
from rlf.types import Trajectory

_MAX_CHARS = 20_000
_MIN_STOP_WORDS = 2
"""Different ones that show a language: one alone may stand in a name."""
_WORD = re.compile(r"[^\W\d_]+")


class Language(StrEnum):
    """ISO 639-1 codes."""

    ARABIC = "ar"
    """By script, shared with Persian and Urdu."""
    GERMAN = "de"
    """By stop words."""
    GREEK = "el"
    """By script."""
    ENGLISH = "en"
    """By stop words."""
    SPANISH = "es"
    """By stop words."""
    FRENCH = "fr"
    """By stop words."""
    HEBREW = "he"
    """By script."""
    HINDI = "hi"
    """By script, shared with Marathi and Nepali."""
    ITALIAN = "it"
    """By stop words."""
    JAPANESE = "ja"
    """By script: kana, and Chinese characters if there are kana."""
    KOREAN = "ko"
    """By script."""
    DUTCH = "nl"
    """By stop words."""
    PORTUGUESE = "pt"
    """By stop words."""
    RUSSIAN = "ru"
    """By script, shared with other languages in Cyrillic."""
    THAI = "th"
    """By script."""
    CHINESE = "zh"
    """By script: Chinese characters, if there are no kana."""


_SCRIPTS: dict[Language, frozenset[str]] = {
    Language.ARABIC: frozenset({"ARABIC"}),
    Language.GREEK: frozenset({"GREEK"}),
    Language.HEBREW: frozenset({"HEBREW"}),
    Language.HINDI: frozenset({"DEVANAGARI"}),
    Language.JAPANESE: frozenset({"HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "CJK"}),
    Language.KOREAN: frozenset({"HANGUL"}),
    Language.RUSSIAN: frozenset({"CYRILLIC"}),
    Language.THAI: frozenset({"THAI"}),
    Language.CHINESE: frozenset({"CJK"}),
}
_KANA = frozenset({"HIRAGANA", "KATAKANA"})
_STOP_WORDS: dict[Language, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in (
        (Language.GERMAN, "der die das und ist nicht ein eine zu den mit von auf für im dem des sich auch es wird an"),
        (Language.ENGLISH, "the of and to in is that it was for on with as are be this by at from or which not"),
        (Language.SPANISH, "el la los las de que y en un una es por con para del se no lo como más al su"),
        (Language.FRENCH, "le la les des de et est un une que dans pour pas qui sur du au ce il avec plus par"),
        (Language.ITALIAN, "il la le di che e è un una per in non con del della si sono gli nel alla da lo"),
        (Language.DUTCH, "de het een en van is dat in niet op te zijn met voor aan er door naar bij ook als om"),
        (Language.PORTUGUESE, "o a os as de que e em um uma é não por com para do da no na se mais ao foi"),
    )
}


class LanguageRule(Rule):
    """Share of the letters that are of the language's script; 0 if another language in that script shows more.

    It distinguishes scripts from each other, and among Latin scripts the seven languages with a list of stop words,
    by which of them has the most, two different ones at least. A text with fewer (a name such as Los Angeles, a few
    words) fits each language of its script. It recognises no language without such a list, no dialects and no mixture
    by sentences. A text without letters, such as a number, is in no language: 0.
    """

    sample: ClassVar[KnownSample] = KnownSample(
        gold={"answer": "The river is in the north of the country."}, options={"language": "en"}
    )

    rule: Literal["language"] = "language"
    language: Language
    where: Where = Where.ANSWER

    def judge(self, trajectory: Trajectory) -> Verdict:
        text = trajectory.answer or ""
        if self.where is Where.TEXT:
            text = "\n".join(turn.text for turn in trajectory.turns)
        # Letters lose their width and style; a numeral such as \u2163 stays none.
        letters = unicodedata.normalize("NFC", text[:_MAX_CHARS])
        text = "".join(unicodedata.normalize("NFKC", each) if each.isalpha() else each for each in letters).strip()
        if not text:
            return Verdict(0.0, "no text")
        scripts = Counter(_script_of(letter) for letter in text if letter.isalpha())
        if not scripts:
            return Verdict(0.0, "no letters, so no language")
        wanted = _SCRIPTS.get(self.language, frozenset({"LATIN"}))
        share = sum(scripts[script] for script in wanted) / scripts.total()
        shown = ", ".join(f"{script.title()} {number}" for script, number in scripts.most_common(3))
        other = self._other_language(text, scripts)
        return Verdict(0.0, f"{other} rather than {self.language}") if other else Verdict(share, f"letters: {shown}")

    def _other_language(self, text: str, scripts: Counter[str]) -> Language | None:
        """The language of the same script that the text shows more of."""
        has_kana = any(scripts[kana] for kana in _KANA)
        if self.language is Language.CHINESE and has_kana:
            return Language.JAPANESE
        if self.language is Language.JAPANESE and scripts["CJK"] and not has_kana:
            return Language.CHINESE
        if self.language not in _STOP_WORDS:
            return None
        words = _WORD.findall(text.lower())
        number = {language: sum(word in stops for word in words) for language, stops in _STOP_WORDS.items()}
        shown = [each for each, stops in _STOP_WORDS.items() if len(stops.intersection(words)) >= _MIN_STOP_WORDS]
        most = max(shown, key=lambda language: number[language], default=self.language)
        return most if number[most] > number[self.language] else None


@lru_cache(maxsize=4096)
def _script_of(letter: str) -> str:
    first = unicodedata.name(letter, "UNKNOWN").split()[0]
    return "CJK" if first == "IDEOGRAPHIC" else first
