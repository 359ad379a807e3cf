"""Names of the built-in worlds.

A name is one START and one END syllable. The pairs are dealt to the three splits once and for all, so a name
of the held-out world occurs in no training or validation world, though every syllable occurs in all three.
"""

from __future__ import annotations

import random
from enum import StrEnum
from functools import cache

_NUM_SYLLABLES = 160
_SYLLABLE_SEED = 1
_SPLIT_SEED = 2
_EVALUATION_SHARE = 0.15
_AWKWARD_STARTS = ("Dik", "Fat", "Fuk", "Hom", "How", "Jud", "Kak", "Kok", "Kum", "Nud", "Nut", "Puk", "Rap", "Sod")
_AWKWARD = frozenset({*_AWKWARD_STARTS, "Suk", "Tit", "Tot", "fux", "for", "sex", "was"})
"""Syllables that are words of the templates, or that one would rather not read."""


class NameSplit(StrEnum):
    """Which questions a name may appear in."""

    TRAIN = "train"
    """Pretraining worlds and the training questions."""
    VALIDATION = "validation"
    """The world that choices are tuned on."""
    HELDOUT = "heldout"
    """The test world, looked at for final figures alone."""


def _syllables(onsets: str, vowels: str, codas: str, seed: int) -> tuple[str, ...]:
    every = [onset + vowel + coda for onset in onsets for vowel in vowels for coda in codas]
    usable = [syllable for syllable in every if syllable not in _AWKWARD]
    return tuple(sorted(random.Random(seed).sample(usable, _NUM_SYLLABLES)))


STARTS: tuple[str, ...] = _syllables("BDFGHJKLMNPRSTVZ", "aeiou", "dklmnrtv", _SYLLABLE_SEED)
ENDS: tuple[str, ...] = _syllables("bdfgklmnprstvwz", "aeiouy", "lnrsx", _SYLLABLE_SEED + 1)


@cache
def split_names(split: NameSplit) -> tuple[str, ...]:
    """Every name that `split` may use; the three tuples are disjoint and cover all pairs of syllables."""
    names = [start + end for start in STARTS for end in ENDS]
    random.Random(_SPLIT_SEED).shuffle(names)
    num_evaluation = int(len(names) * _EVALUATION_SHARE)
    bounds = {
        NameSplit.HELDOUT: (0, num_evaluation),
        NameSplit.VALIDATION: (num_evaluation, 2 * num_evaluation),
        NameSplit.TRAIN: (2 * num_evaluation, len(names)),
    }
    first, last = bounds[split]
    return tuple(names[first:last])
