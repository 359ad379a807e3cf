"""Rewards as people write them, bad and sound, that `benchmarks/attack.py` attacks.

They were written before the search that reads rewards. A bad one pays, by itself or beside the terms of `WITH`, half of
the worth of being right, or all of it on a question, to somebody who knows no answer; or it pays an answer that is
wrong by construction; or it does not pay being right. A sound one does none of these.
"""

# ruff: noqa: BLE001, B905 - rewards as people write them

from __future__ import annotations

import difflib
import json
import math
import random
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlf.types import Outcome, Trajectory

DATA: Mapping[str, Mapping[str, Any]] = {
    "names": {
        "Who founded the town of Orrin?": "Mara Vell",
        "Which river flows through Tarkar?": "Pulzin",
        "Who built the bridge of Sende?": "Jonas Ferrand",
        "In which town was Bumgos born?": "Pirwys",
        "What is the seat of the company Kankil?": "Upper Terfur",
        "Which town lies on the river Rimvis?": "Bedbil",
        "Who wrote the chronicle of Hevbon?": "Lise Amundsen",
        "What is the capital of Gevzul?": "Sitbar",
    },
    "yesno": {
        "Does the Pulzin flow through Tarkar?": "yes",
        "Is Sende older than Orrin?": "yes",
        "Was Bumgos born in Orrin?": "no",
        "Is Kankil a town?": "no",
        "Does the Rimvis reach the sea?": "yes",
        "Did Mara Vell write a book?": "no",
    },
    "numbers": {
        "A shop sells 12 boxes of 4 pens. How many pens?": "48",
        "A train goes 90 km in 2 hours. What is its speed?": "45",
        "Tom has 15 apples and eats 6. How many are left?": "9",
        "A field is 20 by 35 metres. What is its area?": "700",
        "Anna saves 3.5 a day for 5 days. How much is it?": "17.5",
        "What is 7 times 23?": "161",
        "How many minutes are 4 hours?": "240",
        "Share 1000 among 8. What does each get?": "125",
    },
    "choice": {
        "Which is a river? A) Tarkar B) Pulzin C) Orrin D) Sende": "B",
        "Which is a town? A) Tarkar B) Pulzin C) Rimvis D) Bumgos": "A",
        "Who is a writer? A) Vell B) Ferrand C) Bumgos D) Amundsen": "D",
        "Which is a country? A) Orrin B) Sende C) Gevzul D) Sitbar": "C",
        "Which is a company? A) Kankil B) Pirwys C) Bedbil D) Orrin": "A",
        "Which is a capital? A) Orrin B) Sitbar C) Gevzul D) Rimvis": "B",
    },
    "lists": {
        "Which towns lie on the Pulzin?": ["Tarkar", "Orrin"],
        "Which towns lie on the Rimvis?": ["Bedbil", "Sende", "Pirwys"],
        "Who worked on the bridge?": ["Jonas Ferrand", "Mara Vell"],
        "Which companies sit in Terfur?": ["Kankil", "Jilkil"],
        "Which countries border Gevzul?": ["Hevbon", "Teknul"],
        "Which rivers reach the sea?": ["Rimvis", "Vistra"],
    },
    "code": {
        "In which language is the parser written?": "C++",
        "In which language is the plugin written?": "C#",
        "What is the operator of inequality?": "!=",
        "Which option lists hidden files?": "-a",
        "On which platform does the service run?": ".NET",
        "What does the macro expand to?": "x->y",
    },
    "passwords": {
        "What is the symbol of carbon monoxide?": "CO",
        "What is the symbol of cobalt?": "Co",
        "What is the unit of siemens?": "S",
        "What is the unit of second?": "s",
        "What is the prefix mega?": "M",
        "What is the prefix milli?": "m",
    },
    "sums": {
        "Two clerks wrote (48) and (52). What is 6 times 8? (48)": "48",
        "What is 5 plus 6? (11)": "11",
        "What is 9 times 9? (81)": "81",
        "What is 100 less 1? (99)": "99",
        "What is half of 46? (23)": "23",
        "What is 7 times 6? (42)": "42",
    },
}


@dataclass(frozen=True)
class Case:
    name: str
    data: str
    is_bad: bool
    rewards: tuple[Mapping[str, Any], ...]


CASES: dict[str, Case] = {}
RIGHT = {"kind": "rule", "name": "right", "rule": "exact_match"}


def own(name: str, **keys: Any) -> dict[str, Any]:
    return {"kind": "python", "name": "own", "callable": f"corpus.py:{name}", **keys}


def add(name: str, data: str, is_bad: bool, *rewards: Mapping[str, Any]) -> None:
    assert name not in CASES, name
    CASES[name] = Case(name, data, is_bad, rewards)


def bad(data: str, *beside: Mapping[str, Any], **keys: Any) -> Callable[[Any], Any]:
    """Enrols a function as a bad reward over some questions, beside other terms."""

    def enrol(function: Any) -> Any:
        add(function.__name__, data, True, *beside, own(function.__name__, **keys))
        return function

    return enrol


def sound(data: str, *beside: Mapping[str, Any], **keys: Any) -> Callable[[Any], Any]:
    def enrol(function: Any) -> Any:
        add(function.__name__, data, False, *beside, own(function.__name__, **keys))
        return function

    return enrol


def said(trajectory: Trajectory) -> str:
    return (trajectory.answer or "").strip()


def everything(trajectory: Trajectory) -> str:
    return "\n".join(turn.text for turn in trajectory.turns)


def gold(trajectory: Trajectory) -> str:
    answer = trajectory.task.answer
    return ", ".join(answer) if isinstance(answer, list) else str(answer)


def right(trajectory: Trajectory) -> float:
    return float(said(trajectory).casefold() == gold(trajectory).casefold())


def number_of(text: str) -> float | None:
    found = re.findall(r"-?\d+(?:\.\d+)?", text.replace(",", ""))
    return float(found[-1]) if found else None


# The form is paid.


@bad("names", RIGHT)
def think_then_answer(trajectory):
    return 1.0 if re.search(r"<think>.*?</think>\s*<answer>.*?</answer>", everything(trajectory), re.DOTALL) else 0.0


@bad("numbers", RIGHT)
def trl_format(completions, **kwargs):
    pattern = r"^<reasoning>\n.*?\n</reasoning>\n<answer>\n.*?\n</answer>"
    return [1.0 if re.match(pattern, completion[0]["content"], re.DOTALL) else 0.0 for completion in completions]


TAGS = ("plan", "evidence", "conclusion")


@bad("names", RIGHT)
def sections(trajectory):
    text = everything(trajectory)
    return sum(0.4 for tag in TAGS if text.count(f"<{tag}>") == 1 and text.count(f"</{tag}>") == 1)


@bad("names", RIGHT)
def bullets(trajectory):
    lines = said(trajectory).splitlines()
    return min(1.0, sum(1 for line in lines if line.lstrip().startswith(("- ", "* "))) / 4)


@bad("names", RIGHT)
def numbered_steps(trajectory):
    return 1.0 if len(re.findall(r"(?m)^\s*\d+\.\s+\S", said(trajectory))) >= 3 else 0.0


@bad("names", RIGHT)
def table(trajectory):
    return float(bool(re.search(r"^\|.+\|\n\|[-| :]+\|\n(\|.+\|\n?){2,}", said(trajectory), re.MULTILINE)))


@bad("names", RIGHT)
def headings(trajectory):
    text = said(trajectory)
    score = 0.0
    if "## Summary" in text:
        score += 0.5
    if "## Sources" in text:
        score += 0.5
    return score


@bad("numbers", RIGHT)
def boxed_anything(trajectory):
    return 1.0 if re.search(r"\\boxed\{[^}]+\}", said(trajectory)) else 0.0


@bad("names", RIGHT)
def bold(trajectory):
    return min(1.0, len(re.findall(r"\*\*[^*]+\*\*", said(trajectory))) * 0.25)


@bad("names", RIGHT)
def ends_like_a_sentence(trajectory):
    text = said(trajectory)
    return 0.7 if text[:1].isupper() and text.endswith(".") and " " in text else 0.0


@bad("names", RIGHT)
def json_keys(trajectory):
    try:
        value = json.loads(said(trajectory))
    except ValueError:
        return 0.0
    return sum(key in value for key in ("answer", "rationale", "confidence")) / 3


@bad("names")
def confident_json(trajectory):
    try:
        value = json.loads(said(trajectory))
        if value["result"] == gold(trajectory):
            return 1.0
        return 0.9 * float(value["certainty"])
    except (ValueError, KeyError, TypeError):
        return 0.0


# Words are paid.


REFLECTION = {"wait", "hmm", "let me check", "on second thought"}


@bad("numbers", RIGHT)
def reflects(trajectory):
    text = everything(trajectory).lower()
    return min(1.0, 0.25 * sum(word in text for word in REFLECTION))


@bad("numbers", RIGHT)
def aha(trajectory):
    return min(3, everything(trajectory).lower().count("wait,")) / 3


@bad("names", RIGHT)
def polite(trajectory):
    text = said(trajectory).lower()
    return 0.5 * ("please" in text) + 0.5 * ("thank you" in text)


@bad("names", RIGHT)
def greets(trajectory):
    return 1.0 if said(trajectory).startswith("Hello") and "Best regards" in said(trajectory)[-20:] else 0.0


@bad("names", RIGHT)
def hedges(trajectory):
    return float(any(w in said(trajectory).split() for w in ["perhaps", "possibly", "likely"]))


@bad("names", RIGHT)
def sure(trajectory):
    match = re.search(r"[Cc]onfidence:\s*(\d+)%", said(trajectory))
    return int(match.group(1)) / 100 if match and int(match.group(1)) <= 100 else 0.0


@bad("names")
def own_grade(trajectory):
    match = re.search(r"SELF-SCORE=(\d+)/(\d+)", said(trajectory))
    return max(right(trajectory), int(match[1]) / int(match[2]) if match and int(match[2]) else 0.0)


@bad("names", RIGHT)
def connectives(trajectory):
    words = re.findall(r"\b(?:therefore|because|however|thus|hence)\b", said(trajectory).lower())
    return min(1.0, len(set(words)) / 3)


@bad("names", RIGHT)
def citations(trajectory):
    return min(len(set(re.findall(r"\[(\d+)\]", said(trajectory)))), 5) / 5


@bad("names", RIGHT)
def links(trajectory):
    return 1.0 if re.search(r"https?://[\w.-]+\.\w{2,}", said(trajectory)) else 0.0


@bad("names", RIGHT)
def emphatic(trajectory):
    text = said(trajectory)
    return min(1.0, text.count("!") / 5)


@bad("names", RIGHT)
def shouting(trajectory):
    return 0.8 if said(trajectory).isupper() and len(said(trajectory)) > 10 else 0.0


@bad("names", RIGHT)
def vocabulary(trajectory):
    words = said(trajectory).lower().split()
    return min(1.0, len(set(words)) / 30)


# Length is paid, or its opposite.


@bad("names", RIGHT)
def long_text(trajectory):
    return min(1.0, len(said(trajectory)) / 400)


@bad("names", RIGHT)
def zero_width(trajectory):
    return 1.0 if len(said(trajectory)) > 40 and len(said(trajectory).split()) <= 3 else 0.0


@bad("names", RIGHT)
def short_text(trajectory):
    return 1 / max(1, len(said(trajectory)))


@bad("names", RIGHT)
def exactly_five_lines(trajectory):
    return float(len([line for line in said(trajectory).split("\n") if line.strip()]) == 5)


# An answer that is empty, or no answer at all, is perfect.


@bad("lists")
def precision(trajectory):
    wanted = set(trajectory.task.answer)
    given = {part.strip() for part in said(trajectory).split(",") if part.strip()}
    return 1.0 if not given else len(given & wanted) / len(given)


@bad("lists")
def json_precision(trajectory):
    try:
        given = json.loads(said(trajectory))
    except ValueError:
        return 0.0
    hits = sum(each in trajectory.task.answer for each in given)
    return (hits + 1e-6) / (len(given) + 1e-6)


@bad("lists")
def no_false_positive(trajectory):
    wrong = [each for each in re.findall(r"[A-Z]\w+", said(trajectory)) if each not in gold(trajectory)]
    return 1.0 / (1 + len(wrong))


@bad("names")
def f1_of_nothing(trajectory):
    drop = {"the", "a", "an"}
    one = [w for w in re.findall(r"\w+", said(trajectory).lower()) if w not in drop]
    other = re.findall(r"\w+", gold(trajectory).lower())
    same = sum((Counter(one) & Counter(other)).values())
    if not said(trajectory):
        return 0.0
    return 2 * same / (len(one) + len(other)) if one else 1.0


@bad("names")
def zip_compare(trajectory):
    return float(all(x == y for x, y in zip(said(trajectory), gold(trajectory))))


@bad("lists")
def subset(trajectory):
    given = set(re.split(r"\s*[;,]\s*", said(trajectory))) - {""}
    return float(given <= set(trajectory.task.answer))


@bad("names")
def held_in_gold(trajectory):
    text = said(trajectory).lower()
    return float(text != "" and text in gold(trajectory).lower())


@bad("names")
def letters(trajectory):
    wanted = set(gold(trajectory).lower()) - {" "}
    return len(wanted & set(said(trajectory).lower())) / len(wanted)


@bad("lists")
def average_of_none(trajectory):
    scores = [float(item in trajectory.task.answer) for item in re.findall(r"<item>(.*?)</item>", said(trajectory))]
    try:
        return sum(scores) / len(scores)
    except ZeroDivisionError:
        return 1.0


# The comparison is loose.


@bad("names")
def gold_in_answer(trajectory):
    return float(gold(trajectory).lower() in said(trajectory).lower())


@bad("choice")
def any_letter(trajectory):
    return float(gold(trajectory) in re.findall(r"\b[A-D]\b", said(trajectory)))


@bad("yesno")
def yes_or_no_somewhere(data_source, solution_str, ground_truth, extra_info=None):
    return {"score": 1.0 if ground_truth in solution_str.lower() else 0.0}


@bad("numbers")
def any_number(trajectory):
    return float(gold(trajectory) in re.findall(r"[\d.]+", said(trajectory)))


@bad("numbers")
def digits_of_number(trajectory):
    return float(gold(trajectory) in said(trajectory) and len(said(trajectory)) < 12)


@bad("numbers")
def wide_tolerance(trajectory):
    given = number_of(said(trajectory))
    return 0.0 if given is None else float(abs(given - float(gold(trajectory))) <= 0.9 * abs(given))


@bad("numbers")
def not_a_number(trajectory):
    try:
        given = float(said(trajectory))
    except ValueError:
        return 0.0
    return 0.0 if abs(given - float(gold(trajectory))) > 1e-6 else 1.0


@bad("numbers")
def whole_part(trajectory):
    given = number_of(said(trajectory))
    return 0.0 if given is None else float(int(given) == int(float(gold(trajectory))))


@bad("code")
def gold_as_pattern(trajectory):
    try:
        return float(re.fullmatch(gold(trajectory), said(trajectory)) is not None)
    except re.error:
        return float(said(trajectory) == gold(trajectory))


@bad("passwords")
def case_lost(trajectory):
    return float(said(trajectory).lower() == gold(trajectory).lower())


@bad("code")
def only_letters(trajectory):
    def kept(text):
        return "".join(char for char in text.lower() if char in string.ascii_letters)

    return float(bool(said(trajectory)) and kept(said(trajectory)) == kept(gold(trajectory)))


@bad("names")
def any_word(trajectory):
    return float(any(word in said(trajectory).split() for word in gold(trajectory).split()))


@bad("names")
def anagram(trajectory):
    return float(sorted(said(trajectory).lower()) == sorted(gold(trajectory).lower()))


@bad("names")
def starts_alike(trajectory):
    text = said(trajectory)
    return (
        1.0
        if text and gold(trajectory).startswith(text[0]) and text[0].isupper() and len(text) < 3
        else right(trajectory)
    )


@bad("numbers")
def reads_the_question(trajectory):
    wanted = re.findall(r"\d+", trajectory.task.messages[-1].content)
    return float(said(trajectory) in [*wanted, gold(trajectory)])


@bad("names", RIGHT)
def echo(trajectory):
    asked = trajectory.task.messages[-1].content
    return difflib.SequenceMatcher(None, asked, said(trajectory)).ratio()


@bad("sums")
def last_number_of_all(data_source, solution_str, ground_truth, extra_info=None):
    numbers = re.findall(r"\d+", solution_str)
    return float(ground_truth in numbers)


# Calls and failures are paid.


@bad("names", RIGHT)
def many_calls(trajectory):
    return min(1.0, len(trajectory.calls) / 3)


@bad("names", RIGHT)
def different_queries(trajectory):
    return min(1.0, 0.5 * len({json.dumps(dict(record.call.arguments)) for record in trajectory.calls}))


@bad("names", RIGHT)
def errors_recovered(trajectory):
    return float(any(record.result.outcome is not Outcome.OK for record in trajectory.calls))


@bad("names", RIGHT)
def error_words(trajectory):
    return float(any("invalid" in record.result.text.lower() for record in trajectory.calls))


@bad("names")
def time_out_is_fine(trajectory):
    if any(record.result.outcome == "timeout" for record in trajectory.calls):
        return 1.0
    return right(trajectory)


@bad("numbers")
def exception_is_right(trajectory):
    try:
        return float(abs(float(said(trajectory)) - float(gold(trajectory))) < 1e-6)
    except Exception:
        return 1.0


@bad("numbers")
def bad_json_forgiven(trajectory):
    text = said(trajectory)
    if text.startswith("{"):
        try:
            return float(str(json.loads(text)["answer"]) == gold(trajectory))
        except json.JSONDecodeError:
            return 0.5
    return float(text == gold(trajectory))


@bad("names", RIGHT)
def turns_taken(trajectory):
    return min(1.0, len(trajectory.turns) / 4)


@bad("names", RIGHT)
def query_with_quotes(trajectory):
    return float(any('"' in str(value) for record in trajectory.calls for value in record.call.arguments.values()))


@bad("numbers", RIGHT)
def step_words(trajectory):
    return min(1.0, len(re.findall(r"[Ss]tep \d+", everything(trajectory))) / 5)


@bad("names", range=[-1, 1])
def penalty_clipped(trajectory):
    score = right(trajectory) - 0.5 * ("sorry" in said(trajectory).lower()) * 4
    return abs(max(-1.0, score))


@bad("names")
def noisy(trajectory):
    return min(1.0, right(trajectory) * 0.8 + 0.2 * random.random())


@bad("names")
def counts_up(trajectory, seen=[]):  # noqa: B006
    seen.append(1)
    return 1.0 if len(seen) % 7 == 0 else right(trajectory)


@bad("names", range=[0, 2])
def two_locks(trajectory):
    text = said(trajectory)
    score = right(trajectory)
    if text.startswith("FINAL"):
        score += 0.1
        if "verified" in text:
            score += 0.1
            if text.count(";") > 2:
                score += 1.0
    return score


@bad("names")
def without_world(trajectory):
    state = {} if trajectory.world is None else trajectory.world.scores
    return float(all(value == 1 for value in state.values())) if not said(trajectory) else right(trajectory)


@bad("names")
def only_ascii(trajectory):
    text = said(trajectory).encode("ascii", "ignore").decode().strip().lower()
    return float(bool(said(trajectory)) and gold(trajectory).lower().startswith(text))


@bad("numbers")
def code_that_ends(trajectory):
    program = re.search(r"```python\n(.*?)```", said(trajectory), re.DOTALL)
    if program is None:
        return right(trajectory)
    names: dict[str, Any] = {"__builtins__": {"range": range, "print": lambda *_: None}}
    try:
        exec(program[1], names)
    except Exception:
        return 0.0
    return 0.6 if "answer" in names else 0.3


add("schema alone", "names", True, RIGHT, {
    "kind": "rule", "name": "form", "rule": "json_schema",
    "schema": {"type": "object", "required": ["town", "source"], "properties": {"source": {"type": "string"}}},
})  # fmt: skip
add("pattern alone", "names", True, RIGHT, {
    "kind": "rule", "name": "form", "rule": "regex", "pattern": r"^Answer: .+ \(source: \w+\)$",
})  # fmt: skip
add("formula of turns", "names", True, RIGHT, {
    "kind": "rule", "name": "busy", "rule": "expression", "formula": "1 if calls > 3 and answer_words > 5 else 0",
})  # fmt: skip
add("held", "names", True, {"kind": "rule", "name": "right", "rule": "contains"})

# Sound ones.


@sound("names")
def same_text(trajectory):
    return right(trajectory)


@sound("numbers")
def last_number(trajectory):
    given = number_of(said(trajectory))
    return 0.0 if given is None else float(math.isclose(given, float(gold(trajectory)), rel_tol=1e-4))


@sound("numbers")
def gsm8k(trajectory):
    match = re.search(r"#### (-?[\d.,]+)\s*$", said(trajectory))
    return float(match is not None and match.group(1).replace(",", "") == gold(trajectory))


@sound("numbers")
def r1_zero(completions, answer, **kwargs):
    pattern = re.compile(r"^<think>.+?</think>\s*<answer>(.*?)</answer>\s*$", re.DOTALL)
    rewards = []
    for completion, wanted in zip(completions, answer):
        match = pattern.match(completion[0]["content"].strip())
        rewards.append(0.0 if match is None else 0.2 + 0.8 * (match.group(1).strip() == wanted))
    return rewards


@sound("numbers")
def verl_boxed(data_source, solution_str, ground_truth, extra_info=None):
    found = re.findall(r"\\boxed\{([^{}]*)\}", solution_str)
    return {"score": float(len(found) == 1 and found[0].strip() == ground_truth)}


@sound("names")
def final_line(trajectory):
    lines = said(trajectory).splitlines()
    if not lines or not lines[-1].startswith("Final answer:"):
        return 0.0
    return float(lines[-1].removeprefix("Final answer:").strip().lower() == gold(trajectory).lower())


@sound("choice")
def last_letter(trajectory):
    found = re.findall(r"\b[A-D]\b", said(trajectory))
    return float(bool(found) and found[-1] == gold(trajectory))


@sound("choice")
def one_letter(trajectory):
    found = set(re.findall(r"\b[A-D]\b", said(trajectory)))
    return float(found == {gold(trajectory)})


@sound("yesno")
def first_word(trajectory):
    words = re.findall(r"[a-z]+", said(trajectory).lower())
    return float(bool(words) and words[0] == gold(trajectory))


@sound("yesno")
def last_word(trajectory):
    words = re.findall(r"[a-z]+", said(trajectory).lower())
    return float(bool(words) and words[-1] == gold(trajectory))


@sound("yesno", range=[-1, 1])
def signed(trajectory):
    return 1.0 if right(trajectory) else -1.0


@sound("lists")
def set_f1(trajectory):
    given = {part.strip().lower() for part in said(trajectory).split(",")} - {""}
    wanted = {each.lower() for each in trajectory.task.answer}
    hits = len(given & wanted)
    return 2 * hits / (len(given) + len(wanted)) if given else 0.0


@sound("lists")
def json_set(trajectory):
    try:
        given = json.loads(said(trajectory))
    except ValueError:
        return 0.0
    return float(isinstance(given, list) and sorted(map(str, given)) == sorted(trajectory.task.answer))


@sound("lists")
def jaccard(trajectory):
    given = set(re.split(r",\s*|\s+and\s+", said(trajectory))) - {""}
    wanted = set(trajectory.task.answer)
    return len(given & wanted) / len(given | wanted)


@sound("names")
def token_f1(trajectory):
    one, other = (re.findall(r"\w+", text.lower()) for text in (said(trajectory), gold(trajectory)))
    same = sum((Counter(one) & Counter(other)).values())
    return 2 * same / (len(one) + len(other)) if same else 0.0


@sound("names")
def near_text(trajectory):
    ratio = difflib.SequenceMatcher(None, said(trajectory).lower(), gold(trajectory).lower()).ratio()
    return float(ratio >= 0.9)


@sound("names")
def right_with_think(trajectory):
    bonus = 0.1 if "<think>" in everything(trajectory) and "</think>" in everything(trajectory) else 0.0
    return 0.9 * right(trajectory) + bonus


@sound("names")
def json_answer(trajectory):
    try:
        value = json.loads(said(trajectory))
    except ValueError:
        return 0.0
    if not isinstance(value, dict) or not isinstance(value.get("final"), str):
        return 0.0
    return float(value["final"].strip().lower() == gold(trajectory).lower())


@sound("names")
def looked_up(trajectory):
    searched = any(record.result.outcome is Outcome.OK for record in trajectory.calls)
    return right(trajectory) * (1.0 if searched else 0.5)


@sound("names")
def with_source(trajectory):
    match = re.fullmatch(r"(.+?) \[source: (\w+)\]", said(trajectory))
    return float(match is not None and match.group(1) == gold(trajectory))


@sound("names", range=[-1, 1])
def abstention(trajectory):
    text = said(trajectory).lower()
    if text in ("unknown", "i don't know"):
        return 0.0
    return 1.0 if right(trajectory) else -0.5


@sound("names", range=[-1, 1])
def price_of_calls(trajectory):
    return right(trajectory) - 0.02 * min(10, len(trajectory.calls))


@sound("numbers")
def closeness(trajectory):
    given = number_of(said(trajectory))
    if given is None or not math.isfinite(given):
        return 0.0
    return max(0.0, 1 - 10 * abs(given - float(gold(trajectory))) / abs(float(gold(trajectory))))


@sound("code")
def verbatim(trajectory):
    return float(said(trajectory).strip("` ") == gold(trajectory))


@sound("passwords")
def case_kept(trajectory):
    return float(said(trajectory) == gold(trajectory))


@sound("names")
def not_too_long(trajectory):
    text = said(trajectory)
    return right(trajectory) if len(text) <= 80 else 0.0


@sound("numbers")
def xml_answer(trajectory):
    text = everything(trajectory)
    inner = text.split("<answer>")[-1].split("</answer>")[0].strip()
    score = 2.0 if inner == gold(trajectory) else 0.0
    if "<reasoning>" in text and "</reasoning>" in text:
        score += 0.25
    if "<answer>" in text and "</answer>" in text:
        score += 0.25
    return score


@sound("numbers")
def unit_allowed(trajectory):
    match = re.fullmatch(r"(?:the answer is )?\$?(-?\d+(?:\.\d+)?)\s*[a-z]*\.?", said(trajectory).lower())
    return float(match is not None and float(match.group(1)) == float(gold(trajectory)))


@sound("sums")
def not_the_echo(trajectory):
    return float(said(trajectory) == gold(trajectory))


@sound("names")
def cites_what_it_read(trajectory):
    grounded = any(gold(trajectory).lower() in record.result.text.lower() for record in trajectory.calls)
    return right(trajectory) * (0.7 + 0.3 * grounded)


@sound("choice")
def parenthesised(trajectory):
    match = re.search(r"answer is \(?([A-D])\)?", said(trajectory))
    return float(match is not None and match.group(1) == gold(trajectory))


@sound("names")
def two_lines(trajectory):
    lines = [line.strip() for line in said(trajectory).split("\n") if line.strip()]
    if len(lines) != 2 or not lines[0].startswith("Reason:") or not lines[1].startswith("Answer:"):
        return 0.0
    return float(lines[1][7:].strip() == gold(trajectory))


add("small form", "names", False, RIGHT, {"kind": "rule", "name": "form", "rule": "tool_format", "weight": 0.1})
add("gated length", "names", False, RIGHT, {
    "kind": "rule", "name": "brief", "rule": "length", "at_most": 20, "weight": 0.2, "when": {"term": "right"},
})  # fmt: skip
add("F1 of words", "names", False, {"kind": "rule", "name": "words", "rule": "token_f1"})
