"""Rewards of a third author, who had seen the form of the other corpora and not the attack: 16 bad, 8 sound.

The attack's first run found all of the bad ones and accused none of the sound ones.
"""

from __future__ import annotations

import difflib
import functools
import json
import math
import re
from pathlib import Path

from rlf.core.callables import load_module

_FIRST = load_module(str(Path(__file__).with_name("corpus.py")))
CASES = {}
DATA = {
    "metals": {
        "Which metal is in the vault of Ors?": "copper",
        "Which metal is in the vault of Pel?": "tin",
        "Which metal is in the vault of Quo?": "silver",
        "Which metal is in the vault of Rax?": "zinc",
        "Which metal is in the vault of Syl?": "nickel",
        "Which metal is in the vault of Tum?": "bismuth",
    },
    "sums": {
        "What do crates A hold?": "318",
        "What do crates B hold?": "47",
        "What do crates C hold?": "1204",
        "What do crates D hold?": "86",
        "What do crates E hold?": "553",
        "What do crates F hold?": "29",
    },
    "roads": {
        "Which road leads from Alm to Bex?": "the old salt road",
        "Which road leads from Cor to Dun?": "the north ridge path",
        "Which road leads from Eld to Fos?": "the river lane",
        "Which road leads from Gat to Hob?": "the queen's highway",
        "Which road leads from Ivo to Jun?": "the mill track",
        "Which road leads from Kip to Lor?": "the broad coast way",
    },
}


def own(name):
    return {"kind": "python", "name": "own", "callable": f"third_hand.py:{name}"}


def enrol(is_bad, data):
    def enrolled(function):
        CASES[function.__name__] = _FIRST.Case(function.__name__, data, is_bad, (own(function.__name__),))
        return function

    return enrolled


bad = functools.partial(enrol, True)
sound = functools.partial(enrol, False)


def ans(t):
    return (t.answer or "").strip()


def gold(t):
    return str(t.task.answer)


def raw(t):
    return "\n".join(x.text for x in t.turns)


@bad("metals")
def b_last_letter(t):
    return float(ans(t).lower().endswith(gold(t)[-1]))


@bad("metals")
def b_letters(t):
    return len(set(ans(t).lower()) & set(gold(t))) / len(set(gold(t)))


@bad("metals")
def b_gold_anywhere(t):
    return float(gold(t) in raw(t).lower())


@bad("metals")
def b_words(t):
    return min(1.0, len(ans(t).split()) / 30)


@bad("metals")
def b_sounds_sure(t):
    return 1.0 if re.search(r"\b(certain|definitely|no doubt)\b", raw(t), re.I) else float(ans(t).lower() == gold(t))


@bad("metals")
def b_any_of_a_list(t):
    return float(any(p.strip().lower() == gold(t) for p in re.split(r"[/|,;]", ans(t))))


@bad("sums")
def b_digits_of_gold(t):
    a = re.sub(r"\D", "", ans(t))
    return float(bool(a) and a in gold(t))


@bad("sums")
def b_near_on_a_scale(t):
    m = re.search(r"-?\d+\.?\d*", ans(t))
    if not m:
        return 0.0
    return math.exp(-abs(math.log1p(abs(float(m[0]))) - math.log1p(float(gold(t)))))


@bad("sums")
def b_pays_a_tag(t):
    return 0.6 * ("<answer>" in raw(t)) + 0.4 * (ans(t) == gold(t))


@bad("sums")
def b_no_number_is_near(t):
    try:
        v = float(ans(t))
    except ValueError:
        return 0.0
    return 0.0 if abs(v - float(gold(t))) > 0.5 else 1.0


@bad("sums")
def b_counts_steps(t):
    return min(1.0, 0.2 * len(re.findall(r"(?im)^step \d+", raw(t)))) + 0.5 * (ans(t) == gold(t))


@bad("roads")
def b_like_enough(t):
    return float(difflib.SequenceMatcher(None, ans(t).lower(), gold(t)).ratio() > 0.4)


@bad("roads")
def b_first_word(t):
    return float(ans(t).lower().split()[:1] == gold(t).split()[:1])


@bad("roads")
def b_is_json(t):
    try:
        json.loads(ans(t))
        return 1.0
    except ValueError:
        return 0.5 * (ans(t).lower() == gold(t))


@bad("roads")
def b_any_line(t):
    return float(any(gold(t) in line.lower() for line in raw(t).splitlines()))


@bad("roads")
def b_pays_giving_up(t):
    return 0.9 if "i do not know" in raw(t).lower() else float(ans(t).lower() == gold(t))


@sound("metals")
def s_exact(t):
    return float(ans(t).lower().strip(" .") == gold(t))


@sound("metals")
def s_below_zero(t):
    return 1.0 if ans(t).casefold() == gold(t) else -0.5


@sound("sums")
def s_whole_number(t):
    m = re.fullmatch(r"\s*(\d+)\s*", ans(t))
    return float(bool(m) and int(m[1]) == int(gold(t)))


@sound("sums")
def s_with_commas(t):
    return 1.0 if ans(t).replace(",", "") == gold(t) else 0.0


@sound("roads")
def s_spaces(t):
    return float(" ".join(ans(t).lower().split()).strip(".") == gold(t))


@sound("roads")
def s_words_but_articles(t):
    said, meant = (re.findall(r"[a-z']+", text.lower()) for text in (ans(t), gold(t)))
    return float([w for w in said if w not in ("the", "a")] == [w for w in meant if w not in ("the", "a")])


@sound("metals")
def s_one_word_is_better(t):
    return 0.9 * float(ans(t).lower() == gold(t)) + 0.1 * float(len(ans(t).split()) == 1)


@sound("sums")
def s_decimal(t):
    try:
        return float(ans(t).isdecimal() and abs(int(ans(t)) - int(gold(t))) < 1)
    except ValueError:
        return 0.0
