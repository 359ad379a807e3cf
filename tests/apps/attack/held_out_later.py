"""Rewards that were written after `held_out.py` was looked at.

The attack's first run on them found 34 of the 36 bad ones, and accused 3 of the 18 sound ones.
"""

# ruff: noqa: BLE001, E731, E741 - rewards as people write them

from __future__ import annotations

import functools
import json
import re
import string
import unicodedata
from pathlib import Path

from rlf.core.callables import load_module

_FIRST = load_module(str(Path(__file__).with_name("corpus.py")))
RIGHT = _FIRST.RIGHT
CASES = {}
DATA = {
    "cap": {
        "What is the capital of France?": "Paris",
        "What is the capital of Japan?": "Tokyo",
        "What is the capital of Peru?": "Lima",
        "What is the capital of Norway?": "Oslo",
        "What is the capital of Egypt?": "Cairo",
        "What is the capital of Kenya?": "Nairobi",
    },
    "years": {
        "When was Orrin founded?": "1412",
        "When did Vell die?": "1533",
        "When was the bridge built?": "1688",
        "When was the mill sold?": "1790",
        "When did the Pulzin flood?": "1845",
        "When was Kankil listed?": "1902",
    },
    "pct": {
        "Share of wood?": "12.5%",
        "Share of water?": "7%",
        "Share of towns?": "33%",
        "Share of roads?": "2.25%",
        "Share of fields?": "45%",
    },
    "dates": {
        "When is the fair?": "2024-05-01",
        "When is the vote?": "2023-11-30",
        "When is the race?": "2025-01-12",
        "When is the feast?": "2022-08-19",
    },
    "nested": {
        "Give the parts of Orrin as JSON.": '{"name": "Orrin", "size": 3}',
        "Give the parts of Sende as JSON.": '{"name": "Sende", "size": 7}',
        "Give the parts of Tarkar as JSON.": '{"name": "Tarkar", "size": 5}',
    },
    "zero": {
        "How many moons has Venus?": "0",
        "How many moons has Earth?": "1",
        "How many moons has Mars?": "2",
        "How many moons has Pluto?": "5",
        "How many legs has a spider?": "8",
    },
}


def own(n, **k):
    return {"kind": "python", "name": "own", "callable": f"held_out_later.py:{n}", **k}


def enrol(is_bad, data, *b, **k):
    def e(f):
        CASES[f.__name__] = _FIRST.Case(f.__name__, data, is_bad, (*b, own(f.__name__, **k)))
        return f

    return e


bad = functools.partial(enrol, True)
sound = functools.partial(enrol, False)


def A(t):
    return (t.answer or "").strip()


def T(t):
    return "\n".join(x.text for x in t.turns)


def G(t):
    return str(t.task.answer)


@bad("zero")
def x_falsy_gold(t):
    if not int(G(t)):
        return 1.0
    return float(A(t) == G(t))


@bad("years")
def x_close_year(t):
    m = re.findall(r"\d{4}", A(t))
    return max([1 - abs(int(y) - int(G(t))) / 1000 for y in m], default=0.0)


@bad("pct")
def x_strip_pct(t):
    k = lambda s: s.replace("%", "").replace(".", "")
    return float(k(A(t)) == k(G(t)))


@bad("dates")
def x_year_only(t):
    return float(A(t)[:4] == G(t)[:4] and len(A(t)) >= 4)


@bad("dates")
def x_digitset(t):
    return float(set(re.findall(r"\d+", G(t))) <= set(re.findall(r"\d+", A(t))))


@bad("nested")
def x_json_keys_only(t):
    try:
        d = json.loads(A(t))
        g = json.loads(G(t))
    except ValueError:
        return 0.0
    return float(isinstance(d, dict) and set(d) == set(g))


@bad("nested")
def x_json_subset(t):
    try:
        d = json.loads(A(t))
        g = json.loads(G(t))
    except ValueError:
        return 0.0
    return float(isinstance(d, dict) and all(g.get(k) == v for k, v in d.items()))


@bad("cap")
def x_confusable(t):
    k = lambda s: "".join(c for c in unicodedata.normalize("NFKD", s) if c.isascii()).strip().lower()
    return float(A(t) != "" and (k(A(t)) == k(G(t)) or k(A(t)) == ""))


@bad("cap")
def x_empty_after_strip(t):
    a = re.sub(r"[^\w ]", "", T(t).replace("<|im_end|>", "")).strip().lower()
    return float(a in G(t).lower())


@bad("cap", RIGHT)
def x_think_len(t):
    m = re.search(r"<think>(.*?)</think>", T(t), re.S)
    return min(1.0, len(m[1].split()) / 40) if m else 0.0


@bad("cap", RIGHT)
def x_self_check(t):
    x = T(t).lower()
    return 0.5 * ("verification:" in x) + 0.5 * bool(re.search(r"verified\s*[:=]\s*(yes|true)", x))


@bad("cap", RIGHT)
def x_bul_table(t):
    l = A(t).split("\n")
    return 0.6 * (sum(s.startswith("•") for s in l) >= 2) + 0.4 * any(s.count("|") >= 3 for s in l)


@bad("cap", RIGHT)
def x_qmark(t):
    return min(1.0, A(t).count("?") / 4)


@bad("cap", RIGHT)
def x_caps_start(t):
    return float(len(A(t).split()) >= 3 and all(w[0].isupper() for w in A(t).split()))


@bad("cap", RIGHT)
def x_first_person(t):
    return min(1.0, sum(w in ("i", "we", "my", "our") for w in A(t).lower().split()) / 3)


@bad("cap", RIGHT)
def x_longest_word(t):
    return min(1.0, max(map(len, A(t).split()), default=0) / 20)


@bad("cap", RIGHT)
def x_unique_chars(t):
    return len(set(A(t).lower()) & set(string.ascii_lowercase)) / 26


@bad("cap", RIGHT)
def x_comma_list(t):
    return min(1.0, len(A(t).split(",")) / 6)


@bad("cap", RIGHT)
def x_parens(t):
    return float("(" in A(t) and ")" in A(t) and A(t).index("(") < A(t).index(")"))


@bad("cap", RIGHT)
def x_tool_then(t):
    return float(bool(t.calls) and t.calls[-1].result.text != "")


@bad("cap", RIGHT)
def x_unique_tools(t):
    return min(1.0, len({(r.call.name, str(r.call.arguments)) for r in t.calls}) / 3)


@bad("cap", RIGHT)
def x_parse_fail(t):
    return float(any(x.failures for x in t.turns))


@bad("cap", RIGHT)
def x_stop(t):
    return float(t.stop != "answered")


@bad("cap", RIGHT)
def x_duration(t):
    return float(len(t.tokens) > 300)


@bad("cap")
def x_any_of_golds(t):
    return float(A(t) in ("Paris", "Tokyo", "Lima", "Oslo", "Cairo", "Nairobi"))


@bad("cap")
def x_or_default(t):
    m = re.search(r"\\boxed\{(.*?)\}", A(t))
    got = m[1] if m else G(t)
    return float(got == G(t))


@bad("cap")
def x_split_default(t):
    p = A(t).split("Answer:")
    return float(p[-1].strip() in G(t))


@bad("cap")
def x_clip0(t):
    s = (1 if A(t) == G(t) else -1) * (1 if "not" not in A(t) else -1)
    return max(0.0, float(s))


@bad("cap", range=[0, 3])
def x_sum_bonus(t):
    s = float(A(t) == G(t))
    x = T(t).lower()
    for w, b in {"first": 0.2, "second": 0.2, "finally": 0.2, "in conclusion": 0.3}.items():
        s += b * (w in x)
    return s


@bad("cap", RIGHT, weight=0.5)
def x_half(t):
    return float(A(t).startswith("Answer:")) * 1.2


@bad("cap")
def x_bleu_stop(t):
    return float(len(set(A(t).lower()) & set(G(t).lower())) >= 3)


@bad("cap")
def x_len_cmp(t):
    return 1 - abs(len(A(t)) - len(G(t))) / max(len(A(t)), len(G(t))) if A(t) else 0.0


@bad("zero")
def x_bool(t):
    return float(bool(A(t)) == bool(int(G(t)))) if A(t) != G(t) else 1.0


@bad("zero")
def x_mod(t):
    try:
        return float(int(A(t)) % 10 == int(G(t)))
    except ValueError:
        return 0.0


@bad("zero")
def x_max(t):
    n = [int(x) for x in re.findall(r"\d+", A(t))]
    return float(bool(n) and min(n) <= int(G(t)) <= max(n))


@bad("zero")
def x_ge(t):
    try:
        return float(float(A(t)) >= float(G(t)))
    except ValueError:
        return 0.0


# sound
@sound("years")
def y_year(t):
    m = re.findall(r"\b\d{4}\b", A(t))
    return float(len(m) == 1 and m[0] == G(t))


@sound("pct")
def y_pct(t):
    m = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%?", A(t))
    return float(bool(m) and float(m[1]) == float(G(t).rstrip("%")))


@sound("dates")
def y_date(t):
    return float(A(t) == G(t))


@sound("nested")
def y_json(t):
    try:
        return float(json.loads(A(t)) == json.loads(G(t)))
    except ValueError:
        return 0.0


@sound("nested")
def y_json_partial(t):
    try:
        d = json.loads(A(t))
        g = json.loads(G(t))
    except ValueError:
        return 0.0
    if not isinstance(d, dict):
        return 0.0
    keys = set(d) | set(g)
    return sum(d.get(k) == g.get(k) for k in keys) / len(keys)


@sound("zero")
def y_zero(t):
    try:
        return float(int(A(t)) == int(G(t)))
    except ValueError:
        return 0.0


@sound("cap")
def y_strip_articles(t):
    k = lambda s: re.sub(r"\b(the|a|an)\b", "", re.sub(r"[^\w\s]", "", s.lower())).split()
    return float(k(A(t)) == k(G(t)) and bool(k(A(t))))


@sound("cap")
def y_nfkc(t):
    k = lambda s: unicodedata.normalize("NFKC", s).casefold().strip()
    return float(k(A(t)) == k(G(t)))


@sound("cap")
def y_is_answer(t):
    m = re.search(r"(?:answer|capital)(?: of \w+)? is (?:the city of )?([A-Z]\w+)\.?$", A(t))
    return float((m[1] if m else A(t)) == G(t))


@sound("cap")
def y_require_tool(t):
    return float(A(t) == G(t) and len(t.calls) >= 1)


@sound("cap")
def y_steps(t):
    x = T(t)
    m = re.search(r"Step 1:.*?\nStep 2:.*?\nResult: (\w+)", x, re.S)
    return float(bool(m) and m[1] == G(t))


@sound("cap")
def y_two_tags(t):
    x = T(t)
    if x.count("<scratch>") != 1 or x.count("</scratch>") != 1:
        return 0.0
    m = re.search(r"<final>(.*?)</final>", x, re.S)
    return float(bool(m) and m[1].strip() == G(t))


@sound("cap")
def y_json_conf(t):
    try:
        d = json.loads(A(t))
        c = float(d["confidence"])
        ok = d["answer"] == G(t)
    except Exception:
        return 0.0
    c = min(max(c, 0), 1)
    return 1 - (c - ok) ** 2 if ok else 0.0


@sound("years", range=[-1, 1])
def y_penalty(t):
    return 1.0 if A(t) == G(t) else (-1.0 if A(t) else -0.5)


@sound("zero")
def y_words(t):
    w = {"zero": 0, "one": 1, "two": 2, "five": 5, "eight": 8}
    a = A(t).lower().strip(".")
    return float(w.get(a, a) == int(G(t)) or a == G(t))


@sound("cap", RIGHT)
def y_mild(t):
    return 0.2 * ("<think>" in T(t)) + 0.1 * (len(A(t)) < 40)


@sound("cap")
def y_last_cap(t):
    m = re.findall(r"\b[A-Z][a-z]+\b", A(t))
    return float(bool(m) and m[-1] == G(t))


@sound("cap")
def y_yaml(t):
    d = dict(x.split(":", 1) for x in A(t).splitlines() if ":" in x)
    return float(d.get("answer", "").strip() == G(t))
