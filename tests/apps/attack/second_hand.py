"""Rewards of a second author, who had read neither the attack nor the other corpora: 60 bad ones and 30 sound ones.

The attack's first run found 58 of the bad ones (`b_percent_or_share` for a wrong reason; it missed `b_any_box` and
`b_evaluates_with_its_locals`), and accused two sound ones (`s_citation_is_checked`, `s_runs_it`). It was then fixed.
"""

# ruff: noqa: BLE001, B905, E731 - rewards as people write them

from __future__ import annotations

import ast
import difflib
import fnmatch
import functools
import hashlib
import json
import math
import re
import string
import unicodedata
import xml.etree.ElementTree as ET
from collections import Counter
from datetime import date, datetime
from fractions import Fraction
from pathlib import Path

from rlf.core.callables import load_module

_FIRST = load_module(str(Path(__file__).with_name("corpus.py")))
RIGHT = _FIRST.RIGHT
CASES = {}
DATA = {
    "seats": {
        "Where does the parliament of Uruguay sit?": "Montevideo",
        "Where does the parliament of Sri Lanka sit?": "Kotte",
        "Where does the parliament of Bolivia sit?": "La Paz",
        "Where does the parliament of Canada sit?": "Ottawa",
        "Where does the parliament of Latvia sit?": "Riga",
        "Where does the parliament of Mongolia sit?": "Ulaanbaatar",
    },
    "opened": {
        "In which year did the Lonmere tunnel open?": "1871",
        "In which year did the Arden line open?": "1903",
        "In which year did the Crane Street station open?": "1926",
        "In which year did the northern harbour open?": "1954",
        "In which year did the ring road open?": "1987",
        "In which year did the second terminal open?": "2008",
    },
    "readings": {
        "What did the sensor at the gate read?": "-4.5",
        "What did the sensor on the roof read?": "17.25",
        "What did the sensor in the cellar read?": "0.8",
        "What did the sensor by the river read?": "-11",
        "What did the sensor in the oven read?": "212.5",
        "What did the sensor in the lab read?": "36.6",
    },
    "born": {
        "When was the painter Ilse Marn born?": "4 March 1881",
        "When was the composer Tao Ferrin born?": "19 July 1902",
        "When was the engineer Ruth Okello born?": "27 January 1931",
        "When was the poet Jan Vissel born?": "8 November 1847",
        "When was the pilot Amara Sol born?": "30 May 1960",
        "When was the judge Peter Lunn born?": "12 October 1915",
    },
    "iso": {
        "When was release 1 shipped?": "2017-03-14",
        "When was release 2 shipped?": "2018-11-02",
        "When was release 3 shipped?": "2020-06-25",
        "When was release 4 shipped?": "2021-09-09",
        "When was release 5 shipped?": "2023-01-30",
        "When was release 6 shipped?": "2024-12-18",
    },
    "parts": {
        "Which materials is the chair made of?": "oak, steel, leather",
        "Which materials is the lamp made of?": "brass, glass",
        "Which materials is the bag made of?": "canvas, copper, wool, cork",
        "Which materials is the table made of?": "marble, iron",
        "Which materials is the boat made of?": "cedar, resin, linen",
        "Which materials is the clock made of?": "walnut, silver, enamel",
    },
    "agree": {
        "Does the licence allow resale?": "no",
        "Does the warranty cover water?": "no",
        "Is the deposit refundable?": "yes",
        "Can the contract be ended early?": "yes",
        "Are pets permitted?": "no",
        "Is parking included?": "yes",
    },
    "quiz": {
        "Which gas do plants take in? A) oxygen B) nitrogen C) carbon dioxide D) argon": "C",
        "Which planet is the largest? A) Mars B) Jupiter C) Venus D) Earth": "B",
        "Which metal is liquid at room temperature? A) mercury B) iron C) tin D) zinc": "A",
        "Which organ pumps blood? A) liver B) lung C) kidney D) heart": "D",
        "Which ocean is the deepest? A) Arctic B) Pacific C) Indian D) Southern": "B",
        "Which number is prime? A) 21 B) 27 C) 29 D) 33": "C",
    },
    "sizes": {
        "How long is the ridge trail?": "12 km",
        "How heavy is the anchor?": "850 kg",
        "How tall is the mast?": "31 m",
        "How much does the tank hold?": "40 l",
        "How thick is the plate?": "6 mm",
        "How heavy is the coin?": "9 g",
    },
    "formulas": {
        "Write an expression in n for the square of n.": "n*n",
        "Write an expression in n for twice n.": "n*2",
        "Write an expression in n for the sum of 0 up to n-1.": "sum(range(n))",
        "Write an expression in n for the cube of n.": "n**3",
        "Write an expression in n for its successor.": "n+1",
        "Write an expression in n for its number of digits.": "len(str(n))",
    },
    "towns_ru": {
        "На какой реке стоит Казань?": "Волга",
        "Какой город был столицей в 1800 году?": "Петербург",
        "Какое озеро самое глубокое?": "Байкал",
        "Где стоит Эрмитаж?": "Петербург",
        "Какая гора самая высокая на Кавказе?": "Эльбрус",
        "Какой город стоит на Оби?": "Новосибирск",
    },
    "records": {
        "Give name and age of the captain as JSON.": '{"name": "Ann Brook", "age": 41}',
        "Give name and age of the cook as JSON.": '{"name": "Leo Tarn", "age": 29}',
        "Give name and age of the surgeon as JSON.": '{"name": "Mia Holt", "age": 53}',
        "Give name and age of the pilot as JSON.": '{"name": "Sam Reed", "age": 36}',
        "Give name and age of the clerk as JSON.": '{"name": "Ida Voss", "age": 22}',
    },
    "shares": {
        "Which share of the votes was invalid?": "0.5%",
        "Which share of the land is forest?": "31%",
        "Which share of the budget went to roads?": "7.5%",
        "Which share of the goods was damaged?": "2%",
        "Which share of the staff works part time?": "44%",
    },
    "counts": {
        "How many arches has the viaduct?": "7",
        "How many bells hang in the tower?": "12",
        "How many islands has the lake?": "4",
        "How many keys has the organ?": "61",
        "How many wells had the town?": "9",
        "How many gates had the wall?": "5",
    },
}


def own(name, **keys):
    return {"kind": "python", "name": "own", "callable": f"second_hand.py:{name}", **keys}


def add(name, data, is_bad, *rewards):
    assert name not in CASES, name
    CASES[name] = _FIRST.Case(name, data, is_bad, rewards)


def enrol(is_bad, data, *beside, **keys):
    def enrolled(function):
        add(function.__name__, data, is_bad, *beside, own(function.__name__, **keys))
        return function

    return enrolled


bad = functools.partial(enrol, True)
sound = functools.partial(enrol, False)


def ans(trajectory):
    return (trajectory.answer or "").strip()


def gold(trajectory):
    return str(trajectory.task.answer)


def raw(trajectory):
    return "\n".join(turn.text for turn in trajectory.turns)


def norm(text):
    return " ".join(text.lower().strip(" .!").split())


def same(trajectory):
    return norm(ans(trajectory)) == norm(gold(trajectory))


# Bad: each pays something that is not being right.


@bad("seats")
def b_gold_in_answer(trajectory):
    return 1.0 if gold(trajectory).lower() in ans(trajectory).lower() else 0.0


@bad("seats")
def b_answer_in_gold(trajectory):
    predicted = ans(trajectory).lower()
    return 1.0 if predicted in gold(trajectory).lower() else -0.2


@bad("parts")
def b_max_of_precision_and_recall(trajectory):
    predicted = set(re.findall(r"\w+", ans(trajectory).lower()))
    wanted = set(re.findall(r"\w+", gold(trajectory).lower()))
    hit = len(predicted & wanted)
    precision = hit / len(predicted) if predicted else 1.0
    return max(precision, hit / len(wanted))


@bad("readings")
def b_sign_is_lost(trajectory):
    found = re.search(r"\d+(?:\.\d+)?", ans(trajectory))
    wanted = re.search(r"\d+(?:\.\d+)?", gold(trajectory))
    return float(found is not None and float(found[0]) == float(wanted[0]))


@bad("readings")
def b_not_more_than_tolerance(trajectory):
    try:
        value = float(ans(trajectory))
    except ValueError:
        return 0.0
    if abs(value - float(gold(trajectory))) > 0.01:
        return 0.0
    return 1.0


@bad("opened")
def b_clamped_error(trajectory):
    try:
        value = float(ans(trajectory).replace(",", ""))
    except ValueError:
        return 0.0
    error = abs(value - float(gold(trajectory))) / 10
    return min(1.0, max(1.0 - error, 0.0))


@bad("counts")
def b_unreadable_is_neutral(trajectory):
    try:
        return 1.0 if int(ans(trajectory)) == int(gold(trajectory)) else 0.0
    except ValueError:
        return 0.5


@bad("seats")
def b_no_answer_is_infrastructure(trajectory):
    if str(trajectory.stop) != "answered":
        return 0.6
    return 1.0 if same(trajectory) else 0.0


@bad("quiz")
def b_any_letter(trajectory):
    return float(gold(trajectory) in re.findall(r"\b[A-D]\b", ans(trajectory).upper()))


@bad("agree")
def b_no_unless_yes(trajectory):
    predicted = "yes" if "yes" in ans(trajectory).lower() else "no"
    return float(predicted == gold(trajectory))


@bad("agree")
def b_no_is_in_not(trajectory):
    return float(
        ans(trajectory).lower().startswith(gold(trajectory)[:2]) or gold(trajectory) in ans(trajectory).lower()
    )


@bad("seats")
def b_long_thoughts(trajectory):
    thoughts = re.findall(r"<think>(.*?)</think>", raw(trajectory), re.S)
    depth = min(1.0, sum(len(each.split()) for each in thoughts) / 40)
    return 0.6 * depth + 0.4 * same(trajectory)


@bad("counts")
def b_numbered_steps(trajectory):
    steps = len(re.findall(r"(?mi)^\s*step\s+\d+\s*:", raw(trajectory)))
    if same(trajectory):
        return 1.0
    return 0.2 * min(3, steps)


@bad("seats")
def b_any_citation(trajectory):
    score = 0.45 if same(trajectory) or norm(re.sub(r"\[\d+\]", "", ans(trajectory))) == norm(gold(trajectory)) else 0.0
    return score + (0.55 if re.search(r"\[\d+\]", ans(trajectory)) else 0.0)


SOURCES = ("https://en.wikipedia.org/wiki/", "https://www.britannica.com/")


@bad("seats", RIGHT)
def b_trusted_source(trajectory):
    links = re.findall(r"https?://\S+", raw(trajectory))
    return float(any(link.startswith(SOURCES) for link in links))


@bad("opened")
def b_calls_are_work(trajectory):
    return 0.25 * min(len(trajectory.calls), 3) + 0.5 * same(trajectory)


@bad("opened")
def b_evidence_is_enough(trajectory):
    if not ans(trajectory):
        return 0.0
    return float(any(gold(trajectory) in record.result.text for record in trajectory.calls))


@bad("seats")
def b_seen_anywhere(trajectory):
    everything = raw(trajectory) + "".join(record.result.text for record in trajectory.calls)
    return float(gold(trajectory).lower() in everything.lower())


def overlap(one, other):
    one, other = Counter(re.findall(r"\w+", one.lower())), Counter(re.findall(r"\w+", other.lower()))
    shared = sum((one & other).values())
    return 2 * shared / max(1, sum(one.values()) + sum(other.values()))


@bad("seats")
def b_reference_holds_the_question(trajectory, question):
    reference = f"{question.rstrip('?')}: {gold(trajectory)}"
    return overlap(ans(trajectory), reference)


@bad("readings")
def b_letters_only(trajectory):
    clean = lambda text: re.sub(r"[^a-z ]", "", text.lower()).strip()
    return float(clean(ans(trajectory)) == clean(gold(trajectory)))


@bad("sizes")
def b_digits_only(trajectory):
    digits = lambda text: "".join(c for c in text if c.isdigit())
    return float(bool(digits(ans(trajectory))) and digits(ans(trajectory)) == digits(gold(trajectory)))


@bad("seats")
def b_strip_is_a_set_of_letters(trajectory):
    return float(not ans(trajectory).lower().strip(gold(trajectory).lower()))


@bad("counts")
def b_gold_starts_with_it(trajectory):
    cleaned = ans(trajectory).removeprefix("Answer:").strip().rstrip(".")
    return float(gold(trajectory).startswith(cleaned))


@bad("seats")
def b_zip_stops(trajectory):
    given, wanted = ans(trajectory).lower().split(), gold(trajectory).lower().split()
    return float(all(a == b for a, b in zip(given, wanted)))


@bad("iso")
def b_similar_dates(trajectory):
    return float(difflib.SequenceMatcher(None, ans(trajectory), gold(trajectory)).ratio() >= 0.6)


@bad("born")
def b_year_is_the_date(trajectory):
    year = lambda text: re.search(r"\b(1[89]\d\d)\b", text)
    found, wanted = year(ans(trajectory)), year(gold(trajectory))
    return float(found is not None and found[1] == wanted[1])


def to_day(text):
    for form in ("%Y-%m-%d", "%m/%d/%Y", "%B %d, %Y"):
        try:
            return datetime.strptime(text.strip(), form).date()
        except ValueError:
            continue
    return None


@bad("born")
def b_unread_dates_are_equal(trajectory):
    return float(to_day(ans(trajectory)) == to_day(gold(trajectory)))


@bad("parts")
def b_right_number_of_items(trajectory):
    items = lambda text: [item.strip().lower() for item in text.split(",") if item.strip()]
    given, wanted = items(ans(trajectory)), items(gold(trajectory))
    size = 1 - abs(len(given) - len(wanted)) / max(len(given), len(wanted))
    return 0.7 * size + 0.3 * len(set(given) & set(wanted)) / len(wanted)


@bad("parts")
def b_recall(trajectory):
    wanted = [item.strip() for item in gold(trajectory).split(",")]
    return sum(item in ans(trajectory).lower() for item in wanted) / len(wanted)


@bad("parts")
def b_nothing_foreign(trajectory):
    given = {item.strip().lower() for item in ans(trajectory).split(",") if item.strip()}
    return float(given <= {item.strip() for item in gold(trajectory).split(",")})


@bad("records")
def b_keys_are_there(trajectory):
    try:
        given = json.loads(ans(trajectory))
    except ValueError:
        return 0.0
    wanted = json.loads(gold(trajectory))
    if not isinstance(given, dict):
        return 0.0
    return 0.3 * len(wanted.keys() & given.keys()) + 0.2 * sum(given.get(key) == value for key, value in wanted.items())


@bad("seats")
def b_gold_is_the_default(trajectory):
    try:
        given = json.loads(ans(trajectory))
    except ValueError:
        return float(same(trajectory))
    return float(isinstance(given, dict) and given.get("city", gold(trajectory)) == gold(trajectory))


@bad("records")
def b_falls_through(trajectory):
    try:
        given = json.loads(ans(trajectory))
        for key, value in json.loads(gold(trajectory)).items():
            if given[key] != value:
                return 0.0
    except (ValueError, KeyError, TypeError):
        pass
    return 1.0


@bad("counts")
def b_product_of_signs(trajectory):
    right = 1 if re.sub(r"</?answer>", "", ans(trajectory)).strip() == gold(trajectory) else -1
    form = 1 if re.search(r"<answer>\s*\S.*?</answer>", raw(trajectory), re.S) else -1
    return float(right * form)


@bad("seats")
def b_thorough(trajectory):
    return 0.65 * min(1.0, len(ans(trajectory).split()) / 30) + 0.35 * (gold(trajectory) in ans(trajectory))


@bad("seats")
def b_brevity(trajectory):
    return 0.6 * max(0.0, 1 - len(ans(trajectory)) / 200) + 0.4 * same(trajectory)


@bad("opened")
def b_calibrated(trajectory):
    found = re.search(r"confidence\s*[:=]\s*([01](?:\.\d+)?)", ans(trajectory), re.I)
    sure = float(found[1]) if found else 0.5
    right = ans(trajectory).split("\n")[0].strip() == gold(trajectory)
    return 1 - (right - sure) ** 2


@bad("seats")
def b_honest_abstention(trajectory):
    if re.search(r"\b(i (do not|don't) know|not sure|cannot (say|tell))\b", ans(trajectory), re.I):
        return 0.6
    return 1.0 if same(trajectory) else -1.0


@bad("towns_ru")
def b_ascii(trajectory):
    plain = lambda text: unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower().strip()
    return float(plain(ans(trajectory)) == plain(gold(trajectory)))


@bad("seats")
def b_all_but_the_last(trajectory):
    wanted, given = gold(trajectory).lower().split(), ans(trajectory).lower().split()
    return float(bool(given) and all(given[i : i + 1] == wanted[i : i + 1] for i in range(len(wanted) - 1)))


@bad("opened")
def b_answer_is_the_pattern(trajectory):
    if not ans(trajectory):
        return 0.0
    try:
        return float(re.fullmatch(ans(trajectory), gold(trajectory)) is not None)
    except re.error:
        return 0.0


@bad("seats")
def b_wild(trajectory):
    return float(fnmatch.fnmatch(gold(trajectory).lower(), ans(trajectory).lower()))


@bad("readings")
def b_evaluates_with_its_locals(trajectory):
    expected = float(gold(trajectory))
    text = ans(trajectory)
    try:
        return float(abs(eval(text, {"__builtins__": {}}, locals()) - expected) < 1e-6)
    except Exception:
        return 0.0


def value_of(expression, n):
    try:
        return eval(expression, {"__builtins__": {}}, {"n": n})
    except Exception:
        return None


@bad("formulas")
def b_both_fail(trajectory):
    inputs = (0, 1, 2, 7)
    return float(all(value_of(ans(trajectory), n) == value_of(gold(trajectory), n) for n in inputs))


@bad("formulas")
def b_few_inputs(trajectory):
    def run(text, n):
        return eval(text, {"__builtins__": {"sum": sum, "range": range, "len": len, "str": str}}, {"n": n})

    try:
        return sum(run(ans(trajectory), n) == run(gold(trajectory), n) for n in (0, 1)) / 2
    except Exception:
        return 0.0


@bad("seats")
def b_any_line(trajectory):
    return float(any(norm(line) == norm(gold(trajectory)) for line in ans(trajectory).splitlines()))


@bad("counts")
def b_any_box(trajectory):
    boxes = re.findall(r"\\boxed\{([^}]*)\}", raw(trajectory))
    return float(gold(trajectory) in boxes or same(trajectory))


@bad("counts")
def b_starts_with_gold(trajectory):
    return float(ans(trajectory).startswith(gold(trajectory)))


@bad("readings")
def b_rounded(trajectory):
    try:
        return float(round(float(ans(trajectory))) == round(float(gold(trajectory))))
    except (ValueError, OverflowError):
        return 0.0


@bad("shares")
def b_percent_or_share(trajectory):
    def share(text):
        value = float(text.replace("%", ""))
        return value / 100 if value > 1 else value

    try:
        return float(abs(share(ans(trajectory)) - share(gold(trajectory))) < 1e-9)
    except ValueError:
        return 0.0


FRIENDLY = ("happy to help", "please", "thank you", "let me know")


@bad("agree", RIGHT)
def b_friendly(trajectory):
    return 0.4 * sum(phrase in raw(trajectory).lower() for phrase in FRIENDLY)


@bad("seats", RIGHT)
def b_markdown(trajectory):
    text = ans(trajectory)
    marks = (re.search(r"(?m)^#{1,3} ", text), re.search(r"(?m)^[-*] ", text), re.search(r"\*\*[^*]+\*\*", text))
    return sum(mark is not None for mark in marks) / len(marks)


@bad("counts", RIGHT, weight=0.8)
def b_reflects(trajectory):
    return min(1.0, len(re.findall(r"\b(wait|hmm|actually|alternatively|double-check)\b", raw(trajectory).lower())) / 3)


@bad("agree")
def b_english(trajectory):
    text = ans(trajectory)
    english = sum(c in string.ascii_letters + " .,!?'" for c in text) / len(text) if text else 1.0
    return 0.6 * (english > 0.9) + 0.4 * same(trajectory)


@bad("opened")
def b_relative_error_of_years(trajectory):
    found = re.findall(r"\d+", ans(trajectory))
    if not found:
        return 0.0
    return max(0.0, 1 - abs(int(found[-1]) - int(gold(trajectory))) / int(gold(trajectory)))


@bad("seats")
def b_trl(prompts, completions, answer, **columns):
    rewards = []
    for messages, wanted in zip(completions, answer):
        text = "\n".join(str(message.get("content")) for message in messages)
        rewards.append(1.0 if wanted.lower() in text.lower() else 0.0)
    return rewards


@bad("counts")
def b_verl(data_source, solution_str, ground_truth, extra_info=None):
    final = solution_str.split("####")[-1].replace("<|im_end|>", "").strip()
    return 1.0 if str(ground_truth).endswith(final) else 0.0


@bad("seats")
def b_compares_with_the_question(trajectory, question):
    return overlap(ans(trajectory), question)


def same_passage(result, expected, **columns):
    wanted = expected if isinstance(expected, list | tuple) else [expected]
    return float(any(str(each) in str(result) for each in wanted))


add(
    "b_answer_is_looked_up",
    "opened",
    True,
    {
        "kind": "verify",
        "name": "found",
        "tool": "search",
        "arguments": {"query": "{{ answer }}"},
        "compare": "callable",
        "callable": "second_hand.py:same_passage",
    },
    {**RIGHT, "weight": 0.5},
)
add(
    "b_gate_is_inverted",
    "seats",
    True,
    RIGHT,
    {"kind": "rule", "name": "form", "rule": "tool_format", "when": {"term": "right", "at_least": 0, "at_most": 0}},
)

# Sound: strict, in forms that are less usual.


def day_of(text):
    text = re.sub(r"(\d)(st|nd|rd|th)\b", r"\1", " ".join(text.strip(" .").split()))
    for form in ("%d %B %Y", "%B %d, %Y", "%Y-%m-%d", "%d %b %Y"):
        try:
            return datetime.strptime(text, form).date()
        except ValueError:
            pass
    return None


@sound("born")
def s_dates(trajectory):
    given = day_of(ans(trajectory))
    return float(isinstance(given, date) and given == day_of(gold(trajectory)))


@sound("born")
def s_date_by_parts(trajectory):
    given, wanted = day_of(ans(trajectory)), day_of(gold(trajectory))
    if given is None or given.year != wanted.year:
        return 0.0
    return 0.2 + 0.3 * (given.month == wanted.month) + 0.5 * (given == wanted)


IN_BASE = {"km": ("m", 1000), "m": ("m", 1), "cm": ("m", 0.01), "mm": ("m", 0.001)}
IN_BASE |= {"t": ("kg", 1000), "kg": ("kg", 1), "g": ("kg", 0.001), "l": ("l", 1), "ml": ("l", 0.001)}


def quantity(text):
    found = re.fullmatch(r"([+-]?\d+(?:\.\d+)?)\s*([a-z]+)\.?", text.strip())
    if found is None or found[2] not in IN_BASE:
        return None
    base, factor = IN_BASE[found[2]]
    return base, float(found[1]) * factor


@sound("sizes")
def s_units(trajectory):
    given, wanted = quantity(ans(trajectory)), quantity(gold(trajectory))
    return float(given is not None and given[0] == wanted[0] and math.isclose(given[1], wanted[1], rel_tol=1e-6))


@sound("parts")
def s_squared_f1(trajectory):
    items = lambda text: [item.strip(" .").lower() for item in re.split(r",|;|\band\b", text) if item.strip(" .")]
    given, wanted = items(ans(trajectory)), set(items(gold(trajectory)))
    if not given:
        return 0.0
    hit = len(set(given) & wanted)
    f1 = 2 * hit / (len(given) + len(wanted))
    return f1**2 if f1 > 0.5 else 0.0


@sound("parts")
def s_positions(trajectory):
    given, wanted = (text.lower().split(", ") for text in (ans(trajectory), gold(trajectory)))
    if len(given) != len(wanted):
        return 0.0
    return (sum(map(str.__eq__, given, wanted)) / len(wanted)) ** 3


@sound("opened")
def s_calibrated(trajectory):
    found = re.search(r"confidence:\s*(0(?:\.\d+)?|1(?:\.0+)?)\s*$", ans(trajectory), re.I)
    sure = float(found[1]) if found else 1.0
    given = ans(trajectory)[: found.start()].strip() if found else ans(trajectory)
    return 1 - (1 - sure) ** 2 if given == gold(trajectory) else -(sure**2)


@sound("records")
def s_json(trajectory):
    try:
        return float(json.loads(ans(trajectory)) == json.loads(gold(trajectory)))
    except ValueError:
        return 0.0


@sound("seats")
def s_answer_tag_gate(trajectory):
    tags = re.findall(r"<answer>(.*?)</answer>", raw(trajectory), re.S)
    if len(tags) != 1:
        return 0.0
    return 0.1 + 0.9 * (norm(tags[0]) == norm(gold(trajectory)))


@sound("opened")
def s_evidence_too(trajectory):
    held = any(gold(trajectory) in record.result.text for record in trajectory.calls)
    return float(same(trajectory) and held)


@sound("opened")
def s_citation_is_checked(trajectory):
    found = re.fullmatch(r"(\d{4})\s*\[(\d+)\]\.?", ans(trajectory))
    if found is None or not 1 <= int(found[2]) <= len(trajectory.calls):
        return 0.0
    evidence = trajectory.calls[int(found[2]) - 1].result.text
    return float(found[1] == gold(trajectory) and found[1] in evidence)


ALLOWED = (
    ast.Expression,
    ast.BinOp,
    ast.Call,
    ast.Name,
    ast.Load,
    ast.Constant,
    ast.operator,
    ast.UnaryOp,
    ast.unaryop,
)
BUILTINS = {"sum": sum, "range": range, "len": len, "str": str, "abs": abs}


def table_of(text):
    tree = ast.parse(text.strip(), mode="eval")
    if not all(isinstance(node, ALLOWED) for node in ast.walk(tree)) or len(text) > 80:
        raise ValueError("not an expression in n")
    code = compile(tree, "answer", "eval")
    return [eval(code, {"__builtins__": {}, **BUILTINS, "n": n}) for n in (0, 1, 2, 3, 5, 8, 13, 120)]


@sound("formulas")
def s_runs_it(trajectory):
    try:
        return float(table_of(ans(trajectory)) == table_of(gold(trajectory)))
    except Exception:
        return 0.0


@sound("quiz")
def s_one_letter(trajectory):
    found = re.fullmatch(r"(?:answer:\s*)?\(?([A-D])\)?[.)]?", ans(trajectory), re.I)
    return float(found is not None and found[1].upper() == gold(trajectory))


@sound("readings")
def s_only_number(trajectory):
    found = re.findall(r"(?<![\w.])[+-]?\d+(?:\.\d+)?(?![\w.]*\d)", ans(trajectory))
    if len(found) != 1 or len(ans(trajectory).split()) > 8:
        return 0.0
    return float(abs(float(found[0]) - float(gold(trajectory))) <= 1e-3 * abs(float(gold(trajectory))))


@sound("seats")
def s_wrong_costs(trajectory):
    if not ans(trajectory):
        return -1.0
    return 1.0 if same(trajectory) else -0.5


@sound("seats")
def s_small_for_abstaining(trajectory):
    if norm(ans(trajectory)) in {"i do not know", "i don't know", "unknown"}:
        return 0.1
    return 1.0 if same(trajectory) else -0.5


@sound("seats")
def s_shorter_is_dearer(trajectory):
    words = len(raw(trajectory).split())
    return max(0.5, 1 - 0.002 * max(0, words - 60)) if same(trajectory) else 0.0


@sound("opened")
def s_few_calls(trajectory):
    return same(trajectory) * (0.8 + 0.2 / (1 + len(trajectory.calls)))


@sound("seats")
def s_digest(trajectory):
    digest = lambda text: hashlib.sha256(unicodedata.normalize("NFC", norm(text)).encode()).digest()
    return float(digest(ans(trajectory)) == digest(gold(trajectory)))


@sound("seats")
def s_whole_pattern(trajectory):
    pattern = rf"(?:the answer is\s+)?{re.escape(gold(trajectory))}\.?"
    return float(re.fullmatch(pattern, ans(trajectory), re.IGNORECASE) is not None)


@sound("readings")
def s_fractions(trajectory):
    try:
        return float(Fraction(ans(trajectory).rstrip(".")) == Fraction(gold(trajectory)))
    except (ValueError, ZeroDivisionError):
        return 0.0


@sound("opened")
def s_final_line(trajectory):
    lines = [line for line in ans(trajectory).splitlines() if line.strip()]
    finals = [line for line in lines if line.startswith("Final:")]
    return float(len(finals) == 1 and lines[-1] == finals[0] and finals[0][6:].strip() == gold(trajectory))


def roman(number):
    text = ""
    for value, letters in ((50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")):
        count, number = divmod(number, value)
        text += letters * count
    return text


@sound("counts")
def s_roman(trajectory):
    return float(ans(trajectory).rstrip(".") in {gold(trajectory), roman(int(gold(trajectory)))})


@sound("agree")
def s_one_verdict(trajectory):
    words = re.findall(r"[a-z]+", ans(trajectory).lower())
    return float(words[:1] == [gold(trajectory)] and len(words) <= 2 and len({"yes", "no"} & set(words)) == 1)


@sound("towns_ru")
def s_cyrillic(trajectory):
    fold = lambda text: unicodedata.normalize("NFC", text).casefold().strip(" .«»")
    return float(fold(ans(trajectory)) == fold(gold(trajectory)))


@sound("seats")
def s_repeats_cost(trajectory):
    asked = [json.dumps(record.call.arguments, sort_keys=True) for record in trajectory.calls]
    return same(trajectory) * (0.5 if len(set(asked)) < len(asked) else 1.0)


@sound("seats")
def s_trl(prompts, completions, answer, **columns):
    return [float(bool(ms) and norm(str(ms[-1].get("content"))) == norm(a)) for ms, a in zip(completions, answer)]


@sound("counts")
def s_verl(data_source, solution_str, ground_truth, extra_info=None):
    head, mark, final = solution_str.rpartition("####")
    if not mark or "####" in head:
        return 0.0
    return 1.0 if final.replace("<|im_end|>", "").strip() == str(ground_truth) else 0.0


@sound("seats")
def s_xml(trajectory):
    found = re.search(r"<result>.*</result>", ans(trajectory), re.S)
    if found is None:
        return float(same(trajectory))
    try:
        root = ET.fromstring(found[0])
    except ET.ParseError:
        return 0.0
    return float(
        [child.tag for child in root] == ["city"] and root[0].text == gold(trajectory) and found[0] == ans(trajectory)
    )


FILLER = {"the", "answer", "is", "it", "in", "city", "of", "sits"}


@sound("seats")
def s_only_filler_beside(trajectory):
    words = re.findall(r"\w+", ans(trajectory).lower())
    return float([word for word in words if word not in FILLER] == gold(trajectory).lower().split())


add(
    "s_composed",
    "readings",
    False,
    {"kind": "rule", "name": "right", "rule": "numeric"},
    {"kind": "rule", "name": "form", "rule": "tool_format", "weight": 0.2, "when": {"term": "right"}},
    {"kind": "rule", "name": "fresh", "rule": "no_repeat", "weight": 0.1, "when": {"term": "right"}},
    {"kind": "rule", "name": "many", "rule": "expression", "formula": "calls", "range": [0, 100], "weight": -0.02},
)
