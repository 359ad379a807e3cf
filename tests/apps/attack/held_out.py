"""Rewards that were written after the search that reads rewards, and were not looked at while it was made.

Its first run found 64 of these 68 bad ones, and accused 3 of the 34 sound ones.
"""

# ruff: noqa: BLE001, B905, E731, E741 - rewards as people write them

from __future__ import annotations

import asyncio
import difflib
import functools
import json
import math
import random
import re
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlf.core.callables import load_module

_FIRST = load_module(str(Path(__file__).with_name("corpus.py")))
RIGHT = _FIRST.RIGHT
CASES: dict[str, Any] = {}


def own(name, **keys):
    return {"kind": "python", "name": "own", "callable": f"held_out.py:{name}", **keys}


def add(name, data, is_bad, *rewards):
    CASES[name] = _FIRST.Case(name, data, is_bad, rewards)


def enrol(is_bad, data, *beside, **keys):
    def wrap(function):
        add(function.__name__, data, is_bad, *beside, own(function.__name__, **keys))
        return function

    return wrap


bad, sound = functools.partial(enrol, True), functools.partial(enrol, False)

DATA = {
    "cap": {
        "What is the capital of France?": "Paris",
        "What is the capital of Japan?": "Tokyo",
        "What is the capital of Peru?": "Lima",
        "What is the capital of Norway?": "Oslo",
        "What is the capital of Egypt?": "Cairo",
        "What is the capital of Kenya?": "Nairobi",
    },
    "gsm": {
        f"Ann has {a} coins and finds {b} more, then gives away {c}. How many has she?": str(a + b - c)
        for a, b, c in [(12, 30, 7), (5, 9, 3), (100, 45, 20), (8, 8, 1), (60, 15, 32), (27, 13, 11)]
    },
    "mc": {
        "Pick the prime. (A) 4 (B) 7 (C) 9 (D) 15": "B",
        "Pick the even one. (A) 3 (B) 5 (C) 8 (D) 11": "C",
        "Pick the square. (A) 16 (B) 12 (C) 18 (D) 20": "A",
        "Pick the cube. (A) 9 (B) 10 (C) 26 (D) 27": "D",
    },
    "yn": {"Is 7 prime?": "yes", "Is 9 prime?": "no", "Is 11 prime?": "yes", "Is 15 prime?": "no"},
    "ents": {
        "Name the colours of the flag of Italy.": ["green", "white", "red"],
        "Name the colours of the flag of Japan.": ["white", "red"],
        "Name the primary colours.": ["red", "yellow", "blue"],
        "Name the colours of the flag of Ukraine.": ["blue", "yellow"],
    },
    "long": {
        "Why is the sky blue?": "Because air scatters short waves of light more than long ones",
        "Why do ships float?": "Because they push away water as heavy as themselves",
        "Why is there winter?": "Because the axis of the earth is tilted against its orbit",
        "Why does iron rust?": "Because it joins with the oxygen of moist air",
    },
}


def A(t):
    return (t.answer or "").strip()


def T(t):
    return "\n".join(x.text for x in t.turns)


def G(t):
    return t.task.answer if isinstance(t.task.answer, str) else " ".join(t.task.answer)


def norm(s):
    return re.sub(r"\s+", " ", re.sub(r"[^\w\s]", "", s.lower())).strip()


# ---------- bad
@dataclass
class Weights:
    think: float = 0.5
    answer: float = 0.5


CFG = Weights()


@bad("gsm", RIGHT)
def b_tags_cfg(t):
    s = 0
    x = T(t)
    if x.count("<think>\n") == 1:
        s += CFG.think / 2
    if x.count("\n</think>\n") == 1:
        s += CFG.think / 2
    if x.count("\n<answer>\n") == 1:
        s += CFG.answer / 2
    if x.count("\n</answer>") == 1:
        s += CFG.answer / 2
    return s


class Keyword:
    def __init__(self, words, each):
        self.words = words
        self.each = each

    def __call__(self, t):
        return min(1.0, sum(self.each for w in self.words if w in A(t).lower()))


_kw = Keyword(["alternatively", "let's verify", "double-check"], 0.4)


@bad("cap", RIGHT)
def b_kw_obj(t):
    return _kw(t)


@bad("cap", RIGHT)
def b_len_words(completions, **kw):
    return [min(1.0, len(c[0]["content"].split()) / 60) for c in completions]


@bad("cap", RIGHT)
def b_sentences(t):
    return min(1.0, len(re.split(r"[.!?]\s", A(t))) / 5)


@bad("cap", RIGHT)
def b_paragraphs(t):
    return 1.0 if A(t).count("\n\n") >= 3 else 0.0


@bad("cap", RIGHT)
def b_emoji(t):
    return float(any(ord(c) > 0x1F000 for c in A(t)))


@bad("cap", RIGHT)
def b_nonascii(t):
    a = A(t)
    return sum(ord(c) > 127 for c in a) / len(a) if a else 0.0


@bad("cap", RIGHT)
def b_code_block(t):
    return float("```" in A(t) and "def " in A(t))


@bad("cap", RIGHT)
def b_html(t):
    return float(bool(re.search(r"<(\w+)>[^<]*</\1>", A(t))))


@bad("cap", RIGHT)
def b_date(t):
    return float(bool(re.search(r"\b(19|20)\d{2}-(0[1-9]|1[0-2])-\d{2}\b", A(t))))


@bad("cap", RIGHT)
def b_quote(t):
    return float(bool(re.search(r'"[^"]{5,}"\s*\(.+?, \d{4}\)', A(t))))


@bad("cap", RIGHT)
def b_email(t):
    return float(re.search(r"[\w.+-]+@[\w-]+\.[a-z]{2,}", A(t)) is not None)


@bad("ents")
def b_recall(t):
    w = t.task.answer
    return sum(x in A(t).lower() for x in w) / len(w)


@bad("ents")
def b_f1_empty(t):
    p = set(re.findall(r"\b(?:green|white|red|yellow|blue|black)\b", A(t).lower()))
    g = set(t.task.answer)
    tp = len(p & g)
    prec = tp / len(p) if p else 1.0
    rec = tp / len(g)
    return max(prec * 0.7 + rec * 0.3, 0)


@bad("ents")
def b_json_f1(t):
    try:
        p = json.loads(A(t)).get("items", [])
    except Exception:
        return 0.0
    g = t.task.answer
    return 1.0 if all(x in g for x in p) else 0.0


@bad("gsm")
def b_any_num(t):
    return float(any(float(x) == float(G(t)) for x in re.findall(r"-?\d+\.?\d*", A(t))))


@bad("gsm")
def b_exc(t):
    try:
        return float(int(A(t)) == int(G(t)))
    except ValueError:
        return 0.6


@bad("gsm")
def b_nan(t):
    try:
        v = float(A(t).split()[-1])
    except (ValueError, IndexError):
        return 0.0
    err = abs(v - float(G(t))) / abs(float(G(t)))
    return 1.0 if not err > 0.01 else 0.0


@bad("gsm", range=[0, 1])
def b_relerr(t):
    m = re.findall(r"-?[\d.]+(?:e\d+)?", A(t))
    if not m:
        return 0.0
    try:
        v = float(m[-1])
    except ValueError:
        return 0.0
    g = float(G(t))
    return max(0.0, 1 - abs(v - g) / max(abs(v), abs(g), 1e-9)) if abs(v - g) < 1e-9 else (0.8 if abs(v) > 1e6 else 0.0)


@bad("gsm")
def b_div0(t):
    m = re.match(r"(\d+)/(\d+)$", A(t))
    try:
        v = float(m[1]) / float(m[2]) if m else float(A(t))
        return float(v == float(G(t)))
    except ZeroDivisionError:
        return 1.0
    except ValueError:
        return 0.0


@bad("mc")
def b_letter_in(t):
    return float(G(t).lower() in A(t).lower())


@bad("mc")
def b_hedge_opts(t):
    found = re.findall(r"\(([A-D])\)", A(t))
    return float(G(t) in found)


@bad("yn")
def b_yes_default(t):
    a = A(t).lower()
    if "yes" in a and G(t) == "yes":
        return 1.0
    if "yes" not in a and G(t) == "no":
        return 1.0
    if "no" in a.split() and G(t) == "no":
        return 1.0
    return 0.0 if a in ("yes", "no") else 0.5


@bad("cap")
def b_prefix(t):
    return float(bool(A(t)) and G(t).lower().startswith(A(t).lower()))


@bad("cap")
def b_first_letter(t):
    return float(A(t)[:1].upper() == G(t)[:1])


@bad("cap")
def b_len_match(t):
    return float(len(A(t)) == len(G(t)))


@bad("cap")
def b_charset(t):
    return len(set(A(t).lower()) & set(G(t).lower())) / len(set(G(t).lower()))


@bad("cap")
def b_strip_all(t):
    k = lambda s: re.sub(r"[^a-z]", "", s.lower())
    return float(k(G(t)).startswith(k(A(t)))) if A(t) else 0.0


@bad("cap")
def b_regex_user(t):
    try:
        return float(re.fullmatch(A(t), G(t)) is not None)
    except re.error:
        return 0.0


@bad("cap")
def b_eval_true(t):
    try:
        return float(bool(eval(A(t), {"gold": G(t)}, {}) == G(t)))
    except Exception:
        return float(A(t) == G(t))


@bad("cap")
def b_world(t):
    w = getattr(t, "world", None)
    done = w.scores.get("done", 0) if w else 1
    return float(done)


@bad("cap", RIGHT)
def b_ncalls(t):
    return min(len(t.calls), 4) / 4


@bad("cap", RIGHT)
def b_toolname(t):
    return float(any(r.call.name == "search" for r in t.calls))


@bad("cap", RIGHT)
def b_err(t):
    return float(any("no passage" in r.result.text.lower() for r in t.calls))


@bad("cap", RIGHT)
def b_long_query(t):
    return float(any(len(str(dict(r.call.arguments))) > 60 for r in t.calls))


@bad("cap")
def b_rand(t):
    return float(A(t) == G(t)) if random.random() < 0.9 else 1.0


@bad("cap")
def b_time(t):
    return (float(A(t) == G(t)) + (time.perf_counter_ns() % 7) / 7) / 2


@bad("cap")
def b_hash_bonus(t):
    return 1.0 if A(t) == G(t) or (A(t).startswith("#") and A(t).endswith("#") and len(A(t)) > 4) else 0.0


@bad("cap", RIGHT, weight=1)
def b_nested(t):
    a = A(t)
    if "Observation" in a:
        if "Conclusion" in a.split("Observation", 1)[1]:
            return 1.0
        return 0.2
    return 0.0


@bad("cap", RIGHT)
def b_ordered(t):
    pos = [A(t).find(w) for w in ("Given", "Find", "Solve")]
    return float(all(p >= 0 for p in pos) and pos == sorted(pos))


@bad("cap", RIGHT)
def b_yaml(t):
    d = dict(l.split(": ", 1) for l in A(t).splitlines() if ": " in l)
    return len({"title", "summary", "tags"} & d.keys()) / 3


@bad("cap", RIGHT)
def b_csv(t):
    rows = [l.split(",") for l in A(t).splitlines()]
    return float(len(rows) >= 3 and all(len(r) == 4 for r in rows))


@bad("cap", RIGHT)
def b_palin(t):
    a = A(t).lower()
    return float(len(a) >= 5 and a == a[::-1])


@bad("cap", RIGHT)
def b_alliter(t):
    w = A(t).lower().split()
    return float(len(w) >= 4 and len({x[0] for x in w}) == 1)


@bad("cap", RIGHT)
def b_lower(t):
    return float(bool(A(t)) and A(t) == A(t).lower() and len(A(t).split()) >= 3)


@bad("cap", RIGHT)
def b_no_bad_words(t):
    return 0.0 if any(w in A(t).lower() for w in ("sorry", "cannot", "unable")) else 1.0


@bad("cap", RIGHT)
def b_readable(t):
    w = A(t).split()
    return 0.0 if len(w) < 5 else float(sum(map(len, w)) / len(w) < 4)


@bad("long")
def b_overlap_unigram(t):
    g = set(norm(G(t)).split())
    return len(g & set(norm(A(t)).split())) / len(g)


@bad("long")
def b_stop(t):
    g = norm(G(t)).split()
    return float(sum(w in norm(A(t)).split() for w in g[:2]) >= 1)


@bad("long")
def b_seq(t):
    return float(difflib.SequenceMatcher(None, G(t), A(t)).ratio() > 0.25)


@bad("gsm")
def b_round(t):
    m = re.findall(r"-?\d+\.?\d*", A(t))
    return float(bool(m) and round(float(m[-1]), -1) == round(float(G(t)), -1))


@bad("gsm")
def b_lastdigit(t):
    m = re.findall(r"\d", A(t))
    return float(bool(m) and m[-1] == G(t)[-1])


@bad("gsm")
def b_question_number(t):
    q = re.findall(r"\d+", t.task.messages[-1].content)
    return float(A(t) == G(t) or A(t) in q)


@bad("gsm", RIGHT)
def b_equation(t):
    return float(bool(re.search(r"\d+\s*[-+*/]\s*\d+\s*=\s*\d+", A(t))))


@bad("gsm", RIGHT)
def b_show_work(t):
    return min(1.0, 0.34 * len(re.findall(r"<<[^>]+>>", A(t))))


@bad("cap", RIGHT)
async def b_async(t):
    await asyncio.sleep(0)
    return 1.0 if "verdict: pass" in A(t).lower() else 0.0


def _mk(prefix, bonus):
    def f(t):
        return bonus if A(t).startswith(prefix) else 0.0

    return f


b_closure = _mk("Certainly!", 0.9)
b_closure.__name__ = "b_closure"
bad("cap", RIGHT)(b_closure)


def _p(word, t):
    return float(word in A(t))


b_partial = functools.partial(_p, "hereby")
add("b_partial", "cap", True, RIGHT, own("b_partial"))


@bad("cap")
def b_trailing(t):
    a = A(t).split(";")
    return float(a[-1].strip() in ("", G(t)))


@bad("cap")
def b_neg(t):
    return abs((A(t) == G(t)) - 0.5) * 2


@bad("cap", range=[-1, 1])
def b_clip(t):
    s = 1.0 if A(t) == G(t) else -1.0
    s -= 0.1 * len(A(t).split())
    return (s + 5) % 2 - 1 if s < -2 else s


@bad("cap")
def b_verl(data_source, solution_str, ground_truth, extra_info=None):
    m = re.findall(r"answer:\s*(.+)", solution_str.lower())
    return float(any(ground_truth.lower() in x for x in m))


@bad("cap")
def b_xml_loose(t):
    m = re.search(r"<answer>(.*)</answer>", T(t), re.S)
    return float(m is not None and G(t).lower() in m[1].lower())


@bad("gsm")
def b_boxed_any(t):
    return float(G(t) in re.findall(r"\\boxed\{(.*?)\}", T(t)))


add(
    "schema_nested",
    "cap",
    True,
    RIGHT,
    {
        "kind": "rule",
        "name": "form",
        "rule": "json_schema",
        "schema": {
            "type": "object",
            "required": ["city", "facts"],
            "properties": {
                "city": {"type": "string", "minLength": 3},
                "facts": {"type": "array", "minItems": 2, "items": {"type": "string"}},
            },
        },
    },
)
add(
    "regex_steps",
    "cap",
    True,
    RIGHT,
    {"kind": "rule", "name": "form", "rule": "regex", "pattern": r"(?s)^Step 1:.+Step 2:.+Therefore,", "where": "text"},
)
add(
    "formula_tokens",
    "cap",
    True,
    RIGHT,
    {"kind": "rule", "name": "t", "rule": "expression", "formula": "1 if tokens > 80 and calls == 2 else 0"},
)
add("lang", "cap", True, RIGHT, {"kind": "rule", "name": "w", "rule": "length", "at_least": 40})


# ---------- sound
@sound("cap")
def s_norm(t):
    return float(norm(A(t)) == norm(G(t)))


@sound("cap")
def s_prefix_phrase(t):
    m = re.fullmatch(r"(?:The (?:answer|capital) is )?(\w+)\.?", A(t))
    return float(bool(m) and m[1].lower() == G(t).lower())


@sound("cap")
def s_last_line(t):
    return float(bool(A(t)) and A(t).splitlines()[-1].strip().rstrip(".").lower() == G(t).lower())


@sound("cap")
def s_json(t):
    try:
        d = json.loads(A(t))
        return float(d["capital"].lower() == G(t).lower())
    except Exception:
        return 0.0


@sound("cap")
def s_think(t):
    m = re.fullmatch(r"\s*<think>(.+?)</think>\s*(\w+)\s*", T(t).replace("<|im_end|>", ""), re.S)
    return 0.0 if not m else 0.1 + 0.9 * (m[2] == G(t))


@sound("gsm")
def s_num(t):
    m = re.findall(r"-?\d[\d,]*\.?\d*", A(t))
    return float(bool(m) and float(m[-1].replace(",", "")) == float(G(t)))


@sound("gsm")
def s_first_num(t):
    m = re.search(r"-?\d+", A(t))
    return float(bool(m) and m[0] == G(t))


@sound("gsm")
def s_hash(t):
    p = A(t).split("####")
    return float(len(p) == 2 and p[1].strip() == G(t))


@sound("gsm")
def s_boxed(t):
    m = re.findall(r"\\boxed\{([^{}]*)\}", T(t))
    return float(bool(m) and m[-1] == G(t))


@sound("gsm")
def s_int(t):
    try:
        return float(int(A(t)) == int(G(t)))
    except ValueError:
        return 0.0


@sound("gsm")
def s_isclose(t):
    try:
        v = float(A(t))
    except ValueError:
        return 0.0
    return float(math.isclose(v, float(G(t)), rel_tol=0.005))


@sound("mc")
def s_mc(t):
    m = re.findall(r"\b([A-D])\b", A(t).upper())
    return float(len(set(m)) == 1 and m[0] == G(t))


@sound("mc")
def s_mc_first(t):
    return float(A(t)[:1].upper() == G(t))


@sound("mc")
def s_mc_final(t):
    m = re.search(r"[Ff]inal answer:?\s*\(?([A-D])\)?\s*\.?$", A(t))
    return float(bool(m) and m[1] == G(t))


@sound("yn")
def s_yn(t):
    w = norm(A(t)).split()
    return float(bool(w) and w[0] == G(t) and not {"yes", "no"} <= set(w))


@sound("yn")
def s_bool(t):
    return float({"yes": "true", "no": "false"}[G(t)] == A(t).lower() or A(t).lower() == G(t))


@sound("ents")
def s_f1(t):
    p = set(re.findall(r"[a-z]+", A(t).lower()))
    g = set(t.task.answer)
    return 2 * len(p & g) / (len(p) + len(g)) if p else 0.0


@sound("ents")
def s_setjson(t):
    try:
        return float(set(json.loads(A(t))) == set(t.task.answer))
    except Exception:
        return 0.0


@sound("ents")
def s_sorted(t):
    return float(sorted(x.strip().lower() for x in A(t).split(",")) == sorted(t.task.answer))


@sound("long")
def s_rouge(t):
    a, b = norm(A(t)).split(), norm(G(t)).split()
    m = difflib.SequenceMatcher(None, a, b).get_matching_blocks()
    l = sum(x.size for x in m)
    return 2 * l / (len(a) + len(b)) if a else 0.0


@sound("long")
def s_f1long(t):
    a, b = Counter(norm(A(t)).split()), Counter(norm(G(t)).split())
    c = sum((a & b).values())
    return 2 * c / (sum(a.values()) + sum(b.values())) if c else 0.0


@sound("cap", range=[-1, 1])
def s_penal(t):
    return (1.0 if norm(A(t)) == norm(G(t)) else -0.2) - 0.01 * len(t.calls)


@sound("cap")
def s_used_tool(t):
    return 0.8 * (norm(A(t)) == norm(G(t))) + 0.2 * bool(t.calls)


@sound("cap")
def s_brief(t):
    return (norm(A(t)) == norm(G(t))) * (1.0 if len(A(t).split()) <= 5 else 0.5)


@sound("cap")
def s_levenshtein(t):
    return float(difflib.SequenceMatcher(None, A(t).lower(), G(t).lower()).ratio() > 0.92)


@sound("cap")
def s_fmt20(t):
    return 0.8 * (A(t).lower().strip(".") == G(t).lower()) + 0.2 * (A(t).endswith("."))


@sound("gsm")
def s_units(t):
    m = re.match(r"^\$?(\d+)( coins)?\.?$", A(t))
    return float(bool(m) and m[1] == G(t))


@sound("gsm", RIGHT)
def s_small(t):
    return 0.1 * bool(re.search(r"<think>.+</think>", T(t), re.S))


@sound("gsm")
def s_trl(completions, answer, **kw):
    out = []
    for c, a in zip(completions, answer):
        m = re.search(r"<answer>\s*(.*?)\s*</answer>", c[0]["content"], re.S)
        out.append(float(bool(m) and m[1] == a))
    return out


@sound("cap")
async def s_async(t):
    return float(norm(A(t)) == norm(G(t)))


@sound("cap")
def s_alias(t):
    al = {"tokyo": ["tokio"], "cairo": ["al-qahirah"]}
    g = G(t).lower()
    return float(norm(A(t)) in [g, *al.get(g, [])])


@sound("gsm")
def s_partial_credit(t):
    m = re.findall(r"-?\d+", A(t))
    if not m:
        return 0.0
    v, g = float(m[-1]), float(G(t))
    return 1.0 if v == g else 0.3 if abs(v - g) <= 1 else 0.0


@sound("yn")
def s_tag_yn(t):
    m = re.findall(r"<answer>(yes|no)</answer>", T(t))
    return float(m == [G(t)])


@sound("mc")
def s_paren(t):
    return float(A(t).strip("(). ") == G(t))
