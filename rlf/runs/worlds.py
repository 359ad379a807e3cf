"""The world of a spec: read without a model, its tasks and scores, and the page of the last attack on it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

from rlf.core.errors import RlfError
from rlf.core.identity import hash_json, is_sealed
from rlf.rewards.kinds.env import EnvTerm
from rlf.rewards.term import Stage, Term
from rlf.types import Task
from rlf.types.events import Notice

if TYPE_CHECKING:
    from rlf.environments import EnvSpec
    from rlf.environments.playing import Ranges
    from rlf.spec.models import RunSpec

_ALONE = Path(__file__).parents[1] / "builtin" / "seeds" / "world.yaml"
_PAGES = "worlds"
_FAILED = "failed"
"""The sign of a verdict that does not hold."""


def is_spec(path: Path) -> bool:
    """Whether an argument names a spec, and not a folder. Raises RlfError where there is nothing of that name."""
    if not path.exists():
        raise RlfError(f"{path}: there is no such file or folder. Name a spec with a world, or a built world's folder.")
    return path.is_file()


def world_spec(files: Sequence[Path], overrides: Sequence[str]) -> RunSpec:
    """A spec that has a world, checked without its model. A file with a world alone is laid over a small spec.

    Raises:
        RlfError: what is wrong with it.
    """
    from rlf.plan.compiler import compile as compile_plan
    from rlf.spec import load_spec

    is_alone = not any({"model", "extends"} & own_keys(file).keys() for file in files)
    spec = compile_plan(load_spec([_ALONE, *files] if is_alone else files, overrides)).spec
    if spec.env is None:
        raise RlfError(f"{files[0]}: it declares no world (`env`). Write one; `rlf env list` shows the kinds.")
    if complaints := spec.env.static_complaints() or spec.env.complaints():
        raise RlfError(f"{files[0]}: env: {'; '.join(complaints)}.")
    return spec


def own_keys(path: Path) -> dict[str, Any]:
    """The keys that a spec's file itself has; none where it cannot be read."""
    try:
        keys = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    return keys if isinstance(keys, dict) else {}


def world_of(spec: RunSpec) -> EnvSpec:
    """The world of a spec that has one."""
    assert spec.env is not None, "a spec without a world"
    return spec.env


def tasks_of(spec: RunSpec) -> Sequence[Task]:
    """Tasks of the training data. Raises RlfError where there are none."""
    from rlf.data import load_tasks

    tasks = load_tasks(**spec.data.train.model_dump(), declared=tuple(tool.name for tool in spec.shown_tools))
    if not tasks:
        raise RlfError("data.train: there is no task to try. Name a dataset with rows.")
    return tasks


def score_ranges(spec: RunSpec) -> Ranges:
    """The scores that count, with their bounds."""
    from rlf.environments.playing import Ranges

    terms = [term for term in spec.rewards if isinstance(term, EnvTerm)]
    scored = {term.score: term for term in terms if term.score is not None}
    steps = [term.bounds for term in terms if term.stage is Stage.TURN]
    weights = {name: term.weight for name, term in scored.items() if isinstance(term.weight, int | float)}
    bounds = {name: term.bounds for name, term in scored.items()}
    for term in judged_terms(spec):
        # A term without bounds counts as one from 0 to 1: what the maximum is nobody can know.
        is_bounded = all(map(math.isfinite, term.bounds))
        bounds[f"rewards.{term.name}"] = term.bounds if is_bounded else (0.0, 1.0)
        if isinstance(term.weight, int | float):
            weights[f"rewards.{term.name}"] = term.weight
    return Ranges(bounds, weights, steps[0] if steps else None)


def judged_terms(spec: RunSpec) -> list[Term]:
    """The terms that look at what was done, beside those that read the world: functions, checks and right answers."""
    return [
        term
        for term in spec.rewards
        if term.stage is not Stage.TURN
        and not term.reads
        and (term.kind in ("python", "verify") or (term.kind == "rule" and term.needs_answer))
    ]


def page_notices(spec: RunSpec, runs_folder: Path) -> list[Notice]:
    """The page of the last attack on a spec's present world, as a notice of a run; none without a page."""
    if not (runs_folder / _PAGES).is_dir():
        return []
    file = page_file(spec, runs_folder)
    try:
        page = json.loads(file.read_text(encoding="utf-8"))
        failed = [verdict["name"] for verdict in page["verdicts"] if verdict["sign"] == _FAILED]
        world, sha256 = page["world"], page["sha256"][:16]
        if not is_sealed(page):
            raise ValueError("it was edited; attack the world again")
    except FileNotFoundError:
        return []
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        return [Notice("warning", f"{file}: the page of the last attack cannot be read: {error!r}", {})]
    found = f"fails on {', '.join(failed)}" if failed else "no point failed"
    level: Literal["info", "warning"] = "warning" if failed else "info"
    words = f"world {world}: attacked, {found}; page {sha256}"
    return [Notice(level, words, {"world_page": page})]


def page_file(spec: RunSpec, runs_folder: Path) -> Path:
    """Where the page of an attack on a spec's present world is kept."""
    env = world_of(spec)
    terms = [term.model_dump(mode="json") for term in spec.rewards if isinstance(term, EnvTerm)]
    return runs_folder / _PAGES / f"{hash_json([env.model_dump(mode='json'), env.source_hash(), terms])}.json"
