"""Five beginnings: what each is for, and what it was seen to teach. docs/tutorials/which-spec.md has the same."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Recipe:
    """A spec to start from."""

    name: str
    have: str
    """What one has who takes it."""
    teaches: str
    measured: str
    """With a built-in model, on a CPU."""
    template: str
    """Of `rlf init`."""
    spec: str
    """The shipped spec that it is."""
    page: str
    """Where its figures are."""


RECIPES = (
    Recipe(
        "search",
        "questions with known answers, and a tool that finds them",
        "exact match, no demonstrations",
        "27 to 29 % -> 99 % of 512 held-out questions, three seeds",
        "search",
        "specs/search.yaml",
        "docs/embedded.md",
    ),
    Recipe(
        "own table",
        "a table and a function of your own: `--template python --data FILE`",
        "exact match, no demonstrations",
        "the same model and reward as search; depends on your table",
        "python",
        "specs/search.yaml",
        "docs/tutorials/your-own.md",
    ),
    Recipe(
        "world",
        "a world with a state, judged by how it ends",
        "the world's own score",
        "10 % -> 96 % of 256 held-out tasks in 16 steps",
        "shop",
        "specs/shop.yaml",
        "docs/guides/worlds.md",
    ),
    Recipe(
        "cold start",
        "a model that cannot call a tool yet",
        "demonstrations, then rewards, in one run",
        "0 % -> 92 % of 256 held-out tasks, two seeds; rewards alone stay at 0 %",
        "cold-start",
        "specs/cold_start.yaml",
        "docs/guides/cold-start.md",
    ),
    Recipe(
        "judge",
        "answers that only a reader can judge",
        "a judge's verdict",
        "nothing: it depends on your judge, which `rlf rewards calibrate` measures first",
        "judge",
        "specs/writing_judge.yaml",
        "docs/guides/judges.md",
    ),
)
