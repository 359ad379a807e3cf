"""Questions about one row of a table, for look-up tools that no one has seen before.

Names, columns, values, tools and their documents are drawn anew for every question.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.embedded.small.task import Task
from benchmarks.embedded.small.words import TABLES, random_code, random_column, random_name, random_value, random_word

LOOKUP_KINDS = ("row", "cell", "choice", "missing")
_QUESTIONS = (
    *("What is the {c} of {k}?", "What is the {c} of {k}?", "What is the {c} of {k}?", "Which {c} has {k}?"),
    *(
        "What {c} does {k} have?",
        "Give the {c} of {k}.",
        "Find the {c} for {k}.",
        "Tell me the {c} of {k}.",
        "{k}: {c}?",
    ),
    "What is {k}'s {c}?",
)
_NOT_FOUND = ("No row found.", "not found", "Error: not found", "unknown {p}", "No {p} {k}.")


class _Tool(NamedTuple):
    name: str
    parameters: tuple[str, ...]
    description: str

    @property
    def document(self) -> str:
        return f"- {self.name}({', '.join(self.parameters)}): {self.description}"


def sample_lookup(rng: random.Random, kind: str, columns: Sequence[str] = ()) -> Task:
    """A question of `kind`: `row` reads a row and picks a column, `cell` asks the tool for a column, `choice` picks one
    of several tools, and `missing` finds nothing.

    Args:
        columns: what the columns are drawn from; none for random ones.
    """
    if kind == "choice":
        return _choice(rng)
    number = rng.randint(2, 6)
    columns = rng.sample(columns, number) if columns else _columns(rng, number)
    key_column = "name" if rng.random() < 0.3 else random_column(rng)
    key, asked = _sample_key(rng), rng.randrange(len(columns))
    values = [random_value(rng) for _ in columns]
    wording = rng.choice(_QUESTIONS)
    if kind == "cell":
        return _cell(rng, key_column, key, columns, values, asked, wording.format(c=columns[asked], k=key))
    question = wording.format(c=_spoken(rng, columns[asked]), k=key)
    tool = _row_tool(rng, key_column, columns)
    call = (tool.name, {tool.parameters[0]: key})
    if kind == "missing":
        result = rng.choice(_NOT_FOUND).format(p=key_column, k=key)
        return Task(kind, _system(tool), question, call, result, "unknown")
    result = _row_text(rng, [(key_column, key)] * (rng.random() < 0.8) + list(zip(columns, values, strict=True)))
    others = tuple(value for number, value in enumerate(values) if number != asked and value != values[asked])
    wrong_call = (tool.name, {tool.parameters[0]: _sample_key(rng)})
    return Task(kind, _system(tool), question, call, result, values[asked], others, wrong_call)


def _cell(
    rng: random.Random, key_column: str, key: str, columns: list[str], values: list[str], asked: int, question: str
) -> Task:
    field = rng.choice(["column", "field", "what"])
    where = key_column if key_column != field else "name"
    parameters = (where, field) if rng.random() < 0.6 else (field, where)
    read = rng.choice(["Read one {f} of a {k}.", "Get the {f} for the {k}.", "Returns a {f} of one {k}."])
    tool = _Tool(_tool_name(rng, key_column), parameters, read.format(f=field, k=where) + _join_listed(rng, columns))
    arguments = {name: key if name == where else columns[asked] for name in parameters}
    wrong = {name: key if name == where else rng.choice(columns) for name in parameters}
    return Task(
        "cell", _system(tool), question, (tool.name, arguments), values[asked], values[asked], (), (tool.name, wrong)
    )


def _choice(rng: random.Random) -> Task:
    """Tools for a column each; the document says which."""
    columns, key, value = _columns(rng, rng.randint(2, 3)), _sample_key(rng), random_value(rng)
    key_column = rng.choice(["name", "id", "key", random_column(rng)])
    style = rng.choice([0, 0, 0, 1, 2])
    tools = [_column_tool(rng, style, column, key_column) for column in columns]
    asked = rng.randrange(len(columns))
    question = rng.choice(_QUESTIONS).format(c=_spoken(rng, columns[asked]), k=key)
    call = (tools[asked].name, {tools[asked].parameters[0]: key})
    other = tools[asked - 1]
    text = value if rng.random() < 0.6 else _row_text(rng, [(key_column, key), (columns[asked], value)])
    return Task("choice", _system(*tools), question, call, text, value, (), (other.name, {other.parameters[0]: key}))


def _column_tool(rng: random.Random, style: int, column: str, key_column: str) -> _Tool:
    description = rng.choice(["The {c} of one {k}.", "Get the {c} of a {k}.", "Returns the {c} for a {k}."])
    name = [f"get_{column}", f"{random_word(rng)}", f"{column}_of"][style]
    return _Tool(name, (key_column,), description.format(c=column, k=key_column))


def _row_tool(rng: random.Random, key_column: str, columns: list[str]) -> _Tool:
    parameter = key_column if rng.random() < 0.6 else rng.choice(["name", "key", "query", "id", random_word(rng)])
    table = rng.choice(TABLES) if rng.random() < 0.5 else random_word(rng)
    description = rng.choice(
        [
            "Look up one {k}.",
            "Find a row of {t} by {k}.",
            "Get the row of one {k} in {t}.",
            "Show {t} data for a {k}.",
            "Returns one of the {t}.",
            f"{random_word(rng)} {random_word(rng)} {random_word(rng)}.",
        ]
    ).format(k=key_column, t=table)
    return _Tool(_tool_name(rng, table), (parameter,), description + _join_listed(rng, columns))


def _tool_name(rng: random.Random, noun: str) -> str:
    verb = rng.choice(["find", "get", "look_up", "show", "read", random_word(rng)])
    return rng.choice([verb, f"{verb}_{noun}", f"{noun}_{random_word(rng)}", "look_up"])


def _join_listed(rng: random.Random, columns: list[str]) -> str:
    """At times the document lists the columns."""
    if rng.random() < 0.5:
        return ""
    return rng.choice([" Columns: {}.", " Gives {}.", " Fields: {}."]).format(", ".join(columns))


def _row_text(rng: random.Random, cells: list[tuple[str, str]]) -> str:
    style = rng.random()
    if style < 0.45:
        return ", ".join(f"{column}: {value}" for column, value in cells)
    if style < 0.6:
        return "\n".join(f"{column}: {value}" for column, value in cells)
    return json.dumps({column: _typed(rng, value) for column, value in cells}, ensure_ascii=False)


def _typed(rng: random.Random, value: str) -> str | int:
    return int(value) if value.isdigit() and str(int(value)) == value and rng.random() < 0.7 else value


def _columns(rng: random.Random, number: int) -> list[str]:
    columns: list[str] = []
    while len(columns) < number:
        column = random_column(rng)
        if column not in columns:
            columns.append(column)
    return columns


def _sample_key(rng: random.Random) -> str:
    return random_code(rng) if rng.random() < 0.25 else random_name(rng)


def _spoken(rng: random.Random, column: str) -> str:
    """A column as a question writes it: at times with spaces for `_`."""
    return column.replace("_", " ") if rng.random() < 0.5 else column


def _system(*tools: _Tool) -> str:
    return "\n".join(["Tools:", *(tool.document for tool in tools)])
