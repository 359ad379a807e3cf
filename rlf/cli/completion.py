"""What the shell completes: spec files, override keys and their values, runs, tools. Quick, and loads no torch."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import typer

_MAX_RUNS = 50
_TOOL_NAME = re.compile(r"""^name:\s*["']?([A-Za-z_][\w-]*)""", re.MULTILINE)


def complete_spec(incomplete: str) -> list[str]:
    """Spec files and folders on the way to one; keys and values of overrides."""
    if "=" in incomplete:
        return _values(incomplete)
    files = _files(incomplete, Path("specs"))
    sign = incomplete[:1] if incomplete[:1] in "+~" else ""
    if sign or not files:
        end = "" if sign == "~" else "="
        return [f"{sign}{key}{end}" for key in _keys() if key.startswith(incomplete[len(sign) :])]
    return files


def complete_tool_file(incomplete: str) -> list[str]:
    """Tool files and specs."""
    found = [*_files(incomplete, Path("tool_specs")), *_files(incomplete, Path("specs"))]
    return list(dict.fromkeys(found))


def complete_reward_file(incomplete: str) -> list[str]:
    """Reward files and specs."""
    found = [*_files(incomplete, Path("reward_specs")), *_files(incomplete, Path("specs"))]
    return list(dict.fromkeys(found))


def complete_tool(incomplete: str) -> list[str]:
    """Names of the tools in the folder `tool_specs`."""
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in sorted(Path("tool_specs").glob("*.yaml"))]
    names = dict.fromkeys(found[1] for text in texts if (found := _TOOL_NAME.search(text)))
    return [name for name in names if name.startswith(incomplete)]


def complete_run(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids of runs, newest first, with their names; `latest` too."""
    database = Path(ctx.params.get("runs_folder") or "runs") / "rlf.db"
    found = [("latest", "the newest run"), *_runs(database)]
    return [(run, name) for run, name in found if run.startswith(incomplete)]


def complete_template(incomplete: str) -> list[str]:
    """Names of project templates."""
    from rlf.api.projects import templates

    return [name for name in templates() if name.startswith(incomplete)]


def _runs(database: Path) -> list[tuple[str, str]]:
    """Read without the lineage's own packages, which take longer to load than a shell waits."""
    if not database.is_file():
        return []
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as db:
        rows = db.execute("SELECT id, name FROM runs ORDER BY started DESC, id DESC LIMIT ?", (_MAX_RUNS,))
        return [(str(run), str(name)) for run, name in rows]
    return []


def _files(incomplete: str, folder: Path) -> list[str]:
    """YAML files that a text begins, and folders; of a spec's own folder when nothing is typed yet."""
    if not incomplete and folder.is_dir():
        return sorted(str(path) for path in folder.glob("*.yaml"))
    head, _, tail = incomplete.rpartition("/")
    parent = Path(head or ("/" if incomplete.startswith("/") else "."))
    with suppress(OSError):
        found = [path for path in sorted(parent.iterdir()) if path.name.startswith(tail) and path.name[0] != "."]
        kept = [path for path in found if path.suffix in (".yaml", ".yml") or path.is_dir()]
        return [_typed(path, incomplete) for path in kept]
    return []


def _typed(path: Path, incomplete: str) -> str:
    """The path as it was begun; a folder ends in `/`."""
    prefix = "./" if incomplete.startswith("./") else ""
    return f"{prefix}{path}{'/' if path.is_dir() else ''}"


def _keys() -> list[str]:
    """Dotted keys of a spec, kinds' own left out."""
    from rlf.spec.models import RunSpec

    return list(_keys_of(RunSpec, ""))


def _keys_of(model: Any, prefix: str) -> Iterator[str]:
    from rlf.spec.meaning.facts import submodels

    below = {name: found for name, found in submodels(model) if found.model_fields}
    lists = {"tools", "rewards", "report_to"}
    for name, info in model.model_fields.items():
        key = info.alias or name
        if key in below and key not in lists and not _is_kind(below[key]):
            yield from _keys_of(below[key], f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def _is_kind(model: Any) -> bool:
    from rlf.algo import Estimator
    from rlf.spec.engine import EngineSpec

    return model in (Estimator, EngineSpec)


def _values(incomplete: str) -> list[str]:
    """Values of an override that has a few: names of kinds and of choices, `true` and `false`."""
    from rlf.spec.meaning.facts import key_facts
    from rlf.spec.models import RunSpec

    text, _, begun = incomplete.partition("=")
    *path, last = text.lstrip("+~").split(".")
    model: Any = RunSpec
    for name in path:
        model = _below(model, name)
    if model is None:
        return []
    fact = next((fact for fact in key_facts(model) if fact.name == last), None)
    known = _kinds(".".join([*path, last])) or ([] if fact is None else re.findall(r"`(\w+)`", fact.type))
    return [f"{text}={value}" for value in known if value.startswith(begun)]


def _below(model: Any, name: str) -> Any:
    from rlf.spec.meaning.facts import submodels

    return None if model is None else dict(submodels(model)).get(name)


def _kinds(path: str) -> list[str]:
    from rlf.algo import ESTIMATORS
    from rlf.chat import FORMATS
    from rlf.spec.engine import ENGINES
    from rlf.trackers import TRACKERS

    registries: dict[str, Any] = {
        "train.algorithm": ESTIMATORS,
        "engine": ENGINES,
        "chat.format": FORMATS,
        "report_to": TRACKERS,
    }
    names: list[str] = registries[path].names() if path in registries else []
    return ["auto", *names] if path == "chat.format" else names
