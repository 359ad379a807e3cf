"""Worlds built from a file, and tasks of them as graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rlf.apps.build import load_build
from rlf.apps.build.folder import BuildCertificate, BuildTally, build_world, read_world
from rlf.apps.build.ftrl import write_ftrl
from rlf.apps.build.task import BuildTask, CallStep
from rlf.core import RlfError
from rlf.core.plain_json import Jsonable
from rlf.core.yaml_text import load_document

Told = Callable[[int, int, int, Mapping[str, int]], None]
"""Takes the parts that are done, all there are, the tasks so far, and those dropped by stage and reason."""


@dataclass(frozen=True, slots=True)
class BuildEstimate(Jsonable):
    """Size and cost of a build."""

    out: Path
    counts: Mapping[str, float]
    """Tasks in all and by part of the split, worlds or requests, tools, `cost_usd`; by name."""


@dataclass(frozen=True, slots=True)
class Built(Jsonable):
    """A world that was written."""

    out: Path
    num_tasks: int
    certificate: BuildCertificate
    ftrl: tuple[Path, ...] = ()
    """Files of FTRL rows, where they were asked for."""


@dataclass(frozen=True, slots=True)
class ShownTask(Jsonable):
    """One task as a graph."""

    number: int
    id: str
    scenario: str
    question: str
    answer: str
    join: str
    steps: tuple[CallStep, ...]
    tools: Mapping[str, str]
    """What each tool that the model is shown says of itself."""


@dataclass(frozen=True, slots=True)
class ShownWorld(Jsonable):
    """A world's certificate, and a task if one was requested."""

    folder: Path
    certificate: BuildCertificate
    task: ShownTask | None


def estimate_build(file: Path, overrides: Sequence[str]) -> BuildEstimate:
    """Counts and cost of a build. Raises RlfError."""
    settings = load_build(file, overrides)
    return BuildEstimate(Path(settings.out), settings.build.estimate(settings))


def build_env(file: Path, overrides: Sequence[str], tell: Told, *, ftrl: bool = False, fresh: bool = False) -> Built:
    """Builds a world from a file, or completes one. Raises RlfError."""
    settings = load_build(file, overrides)

    def tell_tally(done: int, total: int, tally: BuildTally) -> None:
        tell(done, total, tally.num_tasks, tally.dropped)

    certificate = build_world(settings, tell_tally, fresh=fresh)
    num_tasks = sum(number for counts in certificate.tasks.values() for number in counts.values())
    built = Built(Path(settings.out), num_tasks, certificate)
    return replace(built, ftrl=tuple(write_ftrl(built.out))) if ftrl else built


def show_world(folder: Path, number: int | None) -> ShownWorld:
    """A world and one of its tasks, by its place among all of them. Raises RlfError."""
    certificate, tasks = read_world(folder)
    if number is not None and not 0 <= number < len(tasks):
        raise RlfError(f"--task: got {number}; {folder} has the tasks 0 to {len(tasks) - 1}. Name one of these.")
    return ShownWorld(folder, certificate, None if number is None else _show_task(folder, number, tasks[number]))


def _show_task(folder: Path, number: int, task: BuildTask) -> ShownTask:
    texts = {name: (folder / "tools" / f"{name}.yaml").read_text(encoding="utf-8") for name in task.tools}
    tools = {name: str(load_document(text)["description"]) for name, text in texts.items()}
    return ShownTask(number, task.id, task.scenario, task.question, task.answer, task.join, task.steps, tools)
