"""A second model judges what a task means, and is judged itself: by tasks with a planted fault of meaning.

A planted task is one that was kept, with one change that no call shows: who reads it must see it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from rlf.apps.build.calls import KnownTool
from rlf.apps.build.client import Client, ModelAnswer
from rlf.apps.build.task import BuildTask, Join, ProofFailure, answer_of

MOST_PLANTED = 50
"""Tasks of a build that are given a planted twin, from the first on."""


class Review(ModelAnswer):
    """Verdicts on what a task means."""

    asks: Annotated[int, Field(ge=0, le=1)]
    calls: Annotated[int, Field(ge=0, le=1)]
    alone: Annotated[int, Field(ge=0, le=1)]
    clear: Annotated[int, Field(ge=0, le=1)]


_REASONS = {
    "asks": "the final answer is not what the question asks for",
    "calls": "a call does not give what its sub-question asks for",
    "alone": "a tool that no gold call needs answers a sub-question",
    "clear": "the question is not clear",
}
Documents = Sequence[Mapping[str, Any]]
Planted = tuple[BuildTask, Documents]


async def review_task(client: Client, task: BuildTask, tools: Sequence[KnownTool], number: int) -> dict[str, float]:
    """Has a task judged, and one with a planted fault; returns what was judged, planted and caught.

    Raises:
        ProofFailure: the task is not what it says, by the model's verdict.
    """
    documents = [{"name": tool.name, "description": tool.description, "parameters": tool.schema} for tool in tools]
    if failed := await _failed_verdicts(client, task, documents):
        raise ProofFailure(f"review: {_REASONS[failed[0]]}")
    counts = Counter[str](judged=1)
    rng = random.Random(f"planted:{number}:{task.question}")
    found = [(name, made) for name, plant in PLANTS.items() if (made := plant(task, documents)) is not None]
    if found and number < MOST_PLANTED:
        name, (planted, shown) = rng.choice(found)
        is_caught = bool(await _failed_verdicts(client, planted, shown))
        counts.update({"planted": 1, f"planted/{name}": 1, "caught": is_caught, f"caught/{name}": is_caught})
    return dict(counts)


async def _failed_verdicts(client: Client, task: BuildTask, documents: Documents) -> list[str]:
    steps = [
        {"question": step.question, "tool": step.tool, "arguments": step.arguments, "gold": step.gold}
        for step in task.steps
    ]
    values = {"question": task.question, "steps": steps, "join": task.join.value, "answer": task.answer}
    review = await client.ask("review", Review, {**values, "tools": documents})
    return [name for name, verdict in review.model_dump().items() if not verdict]


def _plant_join(task: BuildTask, documents: Documents) -> Planted | None:
    """The values are combined in another way."""
    values = [step.gold for step in task.steps]
    if len(task.ends) < 2:
        return None
    if task.join is Join.LIST:
        return replace(task, answer=str(values[task.ends[0]]), join=Join.VALUE), documents
    other = replace(task, join=Join.LARGEST if task.join in (Join.SUM, Join.DIFFERENCE) else Join.SUM)
    return replace(other, answer=answer_of(other, values)), documents


def _plant_subject(task: BuildTask, documents: Documents) -> Planted | None:
    """The question names another thing than the calls."""
    name = next((name for name in task.names if name.isalpha() and name in task.question), None)
    if name is None:
        return None
    return replace(task, question=task.question.replace(name, name[::-1].capitalize())), documents


def _plant_end(task: BuildTask, documents: Documents) -> Planted | None:
    """The answer is what a call on the way finds."""
    if len(task.ends) > 1 or len(task.steps) < 2:
        return None
    return replace(task, answer=str(task.steps[0].gold)), documents


def _plant_description(task: BuildTask, documents: Documents) -> Planted | None:
    """A called tool and another one have each other's descriptions."""
    called = task.steps[0].tool
    other = next((each for each in documents if each["name"] != called), None)
    own = next(each for each in documents if each["name"] == called)
    if other is None:
        return None
    words = {called: other["description"], other["name"]: own["description"]}
    return task, [{**each, "description": words.get(each["name"], each["description"])} for each in documents]


def _plant_twin(task: BuildTask, documents: Documents) -> Planted | None:
    """Another tool says that it does what a called one does."""
    own = next(each for each in documents if each["name"] == task.steps[0].tool)
    return task, [*documents, {**own, "name": f"{own['name']}_record"}]


PLANTS: Mapping[str, Callable[[BuildTask, Documents], Planted | None]] = {
    "another join": _plant_join,
    "another subject": _plant_subject,
    "a value on the way": _plant_end,
    "another description": _plant_description,
    "a second tool": _plant_twin,
}
