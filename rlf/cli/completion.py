"""Completion for shells: spec files, override keys and their values, runs, tools. Quick, and loads no torch."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import typer

_MAX_RUNS = 50
_TOOL_NAME = re.compile(r"""^name:\s*["']?([A-Za-z_][\w-]*)""", re.MULTILINE)


def complete_spec(incomplete: str) -> list[str]:
    """Spec files and folders on the way to one; keys and values of overrides."""
    if "=" in incomplete:
        from rlf.runs.completion import override_values

        return override_values(incomplete)
    files = _list_files(incomplete, Path("specs"))
    sign = incomplete[:1] if incomplete[:1] in "+~" else ""
    if sign or not files:
        from rlf.runs.completion import override_keys

        end = "" if sign == "~" else "="
        return [f"{sign}{key}{end}" for key in override_keys() if key.startswith(incomplete[len(sign) :])]
    return files


def complete_tool_file(incomplete: str) -> list[str]:
    """Tool files and specs."""
    return _list_declared(incomplete, "tool_specs")


def complete_reward_file(incomplete: str) -> list[str]:
    """Reward files and specs."""
    return _list_declared(incomplete, "reward_specs")


def complete_tool(incomplete: str) -> list[str]:
    """Names of the tools in the folder `tool_specs`."""
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in sorted(Path("tool_specs").glob("*.yaml"))]
    names = dict.fromkeys(found[1] for text in texts if (found := _TOOL_NAME.search(text)))
    return [name for name in names if name.startswith(incomplete)]


def complete_run(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids of runs, newest first, with their names; `latest` and `latest~1` too."""
    database = Path(ctx.params.get("runs_folder") or "runs") / "rlf.db"
    found = [("latest", "the newest run"), ("latest~1", "the one before"), *_list_runs(database)]
    return [(run, name) for run, name in found if run.startswith(incomplete)]


def _list_declared(incomplete: str, folder: str) -> list[str]:
    return list(dict.fromkeys([*_list_files(incomplete, Path(folder)), *_list_files(incomplete, Path("specs"))]))


def _list_runs(database: Path) -> list[tuple[str, str]]:
    """Read without the lineage's own packages, which take longer to load than a shell waits."""
    if not database.is_file():
        return []
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as db:
        rows = db.execute("SELECT id, name FROM runs ORDER BY started DESC, id DESC LIMIT ?", (_MAX_RUNS,))
        return [(str(run), str(name)) for run, name in rows]
    return []


def _list_files(incomplete: str, folder: Path) -> list[str]:
    """YAML files that a text begins, and folders; of a spec's own folder when nothing is typed yet."""
    if not incomplete and folder.is_dir():
        return sorted(str(path) for path in folder.glob("*.yaml"))
    head, _, tail = incomplete.rpartition("/")
    parent = Path(head or ("/" if incomplete.startswith("/") else "."))
    with suppress(OSError):
        found = [path for path in sorted(parent.iterdir()) if path.name.startswith(tail) and path.name[0] != "."]
        kept = [path for path in found if path.suffix in (".yaml", ".yml") or path.is_dir()]
        return [_complete_typed(path, incomplete) for path in kept]
    return []


def _complete_typed(path: Path, incomplete: str) -> str:
    """The path as it was begun; a folder ends in `/`."""
    prefix = "./" if incomplete.startswith("./") else ""
    return f"{prefix}{path}{'/' if path.is_dir() else ''}"
