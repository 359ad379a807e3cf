"""Tasks as rows of training tokens: done well, done badly, and drills of bare copying."""

from __future__ import annotations

import random
from enum import StrEnum

from transformers import PreTrainedTokenizerFast

from benchmarks.embedded.small.lookups import LOOKUP_KINDS, sample_lookup
from benchmarks.embedded.small.programs import PROGRAM_KINDS, sample_program
from benchmarks.embedded.small.queries import sample_query
from benchmarks.embedded.small.task import Task
from benchmarks.embedded.small.tokenizer import WHOLE_WORDS
from benchmarks.embedded.small.words import random_column, random_value, random_word
from benchmarks.embedded.tiny.demonstrations import Demonstration
from benchmarks.embedded.tiny.layout import call_text

GIVE_UP_ANSWER = "unknown"


class Fault(StrEnum):
    """One way to do it badly."""

    GUESS = "guess"
    """Answers with a value out of the air."""
    GIVE_UP = "give_up"
    """Answers "unknown" without a look."""
    WRONG_CALL = "wrong_call"
    """Asks for something else, and answers with what that would give."""
    WRONG_READING = "wrong_reading"
    """Answers with another column of the row."""
    MALFORMED = "malformed"
    """Leaves out a bracket of the call."""


def sample_task(rng: random.Random, kind: str) -> Task:
    """A task of any kind that pretraining has."""
    if kind in LOOKUP_KINDS:
        return sample_lookup(rng, kind)
    return sample_program(rng, kind) if kind in PROGRAM_KINDS else sample_query(rng, kind)


def clean_row(tokenizer: PreTrainedTokenizerFast, task: Task) -> Demonstration:
    """The right call, its result, the answer."""
    row = _begin(tokenizer, task)
    row.call([task.call], [task.result])
    row.say(task.answer)
    return row


def careless_row(tokenizer: PreTrainedTokenizerFast, rng: random.Random, task: Task, fault: Fault) -> Demonstration:
    """The same task, done badly in the way of `fault`; a guess where the task has no such way."""
    row = _begin(tokenizer, task)
    if fault is Fault.GIVE_UP:
        row.say(GIVE_UP_ANSWER)
    elif fault is Fault.MALFORMED:
        row.say(call_text([task.call]).replace('"}}', '"}'))
    elif fault is Fault.WRONG_READING and task.wrong_answers:
        row.call([task.call], [task.result])
        row.say(rng.choice(task.wrong_answers))
    elif fault is Fault.WRONG_CALL and task.wrong_call is not None and task.wrong_call != task.call:
        row.call([task.wrong_call], [value := random_value(rng)])
        row.say(value)
    else:
        row.say(random_value(rng))
    return row


def copy_row(tokenizer: PreTrainedTokenizerFast, rng: random.Random) -> Demonstration:
    """Random words, values and tokens, then the same again; or a list of pairs and the value of one of them."""
    if rng.random() < 0.5:
        return _pairs_row(tokenizer, rng)
    words = [
        rng.choice([random_value(rng), random_word(rng), rng.choice(WHOLE_WORDS)]) for _ in range(rng.randint(3, 7))
    ]
    row = Demonstration(tokenizer)
    row.copy(tokenizer.encode(" ".join(words)))
    return row


def _pairs_row(tokenizer: PreTrainedTokenizerFast, rng: random.Random) -> Demonstration:
    """`a: 1, b: 2` and then, again and again, a key and its value."""
    cells = {random_column(rng): random_value(rng) for _ in range(rng.randint(2, 5))}
    row = Demonstration(tokenizer)
    row.read(tokenizer.encode(", ".join(f"{column}: {value}" for column, value in cells.items())))
    for column in rng.choices(list(cells), k=3):
        row.read(tokenizer.encode(f"\n{column}: "))
        row.act(tokenizer.encode(cells[column]))
    return row


def _begin(tokenizer: PreTrainedTokenizerFast, task: Task) -> Demonstration:
    row = Demonstration(tokenizer)
    row.ask(task.system, task.question)
    return row
