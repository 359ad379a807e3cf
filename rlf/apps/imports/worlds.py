"""`rlf env import`: the YAML of a world from a class, an MCP server, an OpenEnv server or a package of text worlds."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from rlf.core.callables import load_callable
from rlf.core.errors import RlfError
from rlf.core.files import write_whole
from rlf.core.plain_json import Jsonable
from rlf.environments import EnvSpec
from rlf.environments.playing import follow, open_bench
from rlf.spec.mistaken import wrong_value_words
from rlf.spec.nodes import show
from rlf.tools.samples import sample_arguments
from rlf.types import Message, Task, ToolCall

_LIFECYCLE: Mapping[str, Sequence[str]] = {
    "reset": ("reset_state", "reset", "load_scenario", "new_episode", "start_episode"),
    "score": ("get_score", "score", "verify", "evaluate", "get_reward", "compute_score"),
    "save": ("save_state", "save_scenario", "get_state", "dump_state"),
    "end": ("end_world", "close_session", "end_session"),
}
"""Usual names of the tools of a world's life, the most common first."""
_NO_REWARD = (
    "rewards: a call of each tool gave none, so the file has none; the spec that it is laid over needs a term that "
    "reads what was done, such as `{kind: rule, name: right, rule: exact_match}` with answers in its rows"
)
_TASK = Task("import", (Message("user", "Act."),))
_KEYS = ("world", "session_id", "state_key", "episode_id")
_FILL: Mapping[str, str] = {"seed": "{seed}", "task": "{task}", "task_id": "{task}"}


@dataclass(frozen=True, slots=True)
class ImportedWorld(Jsonable):
    """A file that declares a world."""

    file: Path
    kind: str
    text: str
    notes: tuple[str, ...]
    """What is still to be done by hand."""


def import_world(kind: str, source: str, file: Path, *, force: bool = False) -> ImportedWorld:
    """Writes the YAML of a world after its kind has checked it.

    Args:
        kind: python, mcp, openenv or text.
        source: a class `package.module:name` or `path/file.py:name`; an MCP server's command or url; an OpenEnv
            server's url; a text world's `package:id`.

    Raises:
        RlfError: the world cannot be made from it, or the file is there.
    """
    if file.exists() and not force:
        raise RlfError(f"{file} exists already. Name another file with --out, or overwrite it with --force.")
    env, notes = _MAKERS[kind](source)
    try:
        spec = EnvSpec.model_validate(env)
    except ValidationError as error:
        raise RlfError(f"SOURCE: {wrong_value_words(show(source), error.errors()[:1], 'SOURCE', None)}") from error
    if complaints := spec.static_complaints() or spec.complaints():
        raise RlfError(f"{source}: {'; '.join(complaints)}.")
    if not spec.tools and not spec.speaks:
        raise RlfError(f"{source}: it has neither tools nor dialogue. Name another one.")
    names, known = spec.score_names, _scores_of(spec)
    rewards = [{"kind": "env", "name": name, "score": name} for name in (names or known)[:1]]
    if names is None and not known:
        rewards, notes = [{"kind": "env", "name": "score", "score": "score"}], [*notes, "rewards: name the score"]
    if kind == "openenv":
        if not asyncio.run(_gives_reward(spec)):
            rewards, notes = [], [*notes, _NO_REWARD]
        if (most := asyncio.run(_count_sessions(spec))) < spec.limits.max_concurrency:
            env["limits"] = {"max_concurrency": max(1, most)}
    written = {"env": _portable(env, file), **({"rewards": rewards} if rewards else {})}
    body = yaml.safe_dump(written, sort_keys=False, allow_unicode=True)
    text = f"# A world; try it with `rlf env prove {file}`, then lay it over a spec: `rlf run SPEC {file}`.\n{body}"
    write_whole(file, text)
    return ImportedWorld(file, spec.kind, text, tuple(notes))


async def _gives_reward(spec: EnvSpec) -> bool:
    """Whether a world gives a reward for a call of each of its tools, or for words; where it fails it may."""
    calls = [ToolCall(tool.name, one) for tool in spec.tools for one in sample_arguments(tool.input_schema)[:1]]
    async with open_bench(spec, [_TASK], seed=0) as bench:
        played = await bench.play(_TASK, follow(calls or ["."]))
    return bool(played.scores) or played.failure is not None


async def _count_sessions(spec: EnvSpec) -> int:
    """How many worlds a server holds at once, up to those that the spec allows; these where it fails otherwise."""
    most = spec.limits.max_concurrency
    async with AsyncExitStack() as stack:
        make = await stack.enter_async_context(spec.open())
        for number in range(most):
            try:
                world = await make()
                stack.push_async_callback(world.close)
                await world.reset(_TASK, 0)
            except Exception as fault:  # noqa: BLE001 - what else a server does is looked at where it is played
                return number if "CAPACITY_REACHED" in str(fault) else most
    return most


def _portable(env: dict[str, Any], file: Path) -> dict[str, Any]:
    """With the files of a class as the written file sees them."""
    for key in ("callable", "make"):
        place, _, name = str(env.get(key, "")).rpartition(":")
        if place.endswith(".py"):
            env = env | {key: f"{os.path.relpath(Path(place).resolve(), file.parent.resolve())}:{name}"}
    return env


def _scores_of(spec: EnvSpec) -> list[str]:
    """The names that the source of a class gives its scores, as far as it shows them."""
    name = getattr(spec, "callable", None)
    made_by = None if name is None else load_callable(name)
    if made_by is not None and not hasattr(made_by, "score"):
        return ["reward"]
    try:
        source = inspect.getsource(made_by.score) if made_by is not None else ""
    except (OSError, TypeError):
        return []
    return re.findall(r"[{,]\s*[\"'](\w+)[\"']\s*:", source)


def _python(source: str) -> tuple[dict[str, Any], list[str]]:
    place, colon, name = source.rpartition(":")
    place = str(Path(place).resolve()) if place.endswith(".py") else place
    notes = ["data: rows need the columns that its `reset` takes"]
    return {"kind": "python", "callable": f"{place}{colon}{name}"}, notes


def _mcp(source: str) -> tuple[dict[str, Any], list[str]]:
    from rlf.apps.imports.servers import command_words
    from rlf.tools.mcp.listing import fresh_listing
    from rlf.tools.mcp.server import McpServer

    if source.startswith(("http://", "https://")):
        server: dict[str, Any] = {"url": source}
    else:
        command, *words = command_words(source)
        server = {"command": command, "args": words}
    listing = fresh_listing(McpServer.model_validate({**server, "start_timeout_s": 60}))
    life: dict[str, Any] = {}
    notes: list[str] = []
    for part, names in _LIFECYCLE.items():
        entry = next((found for name in names if (found := listing.tool(name)) is not None), None)
        if entry is None:
            continue
        needed = [name for name in entry.input_schema.get("required") or () if name not in _KEYS]
        offered = entry.input_schema.get("properties") or {}
        arguments = {name: _FILL.get(name, f"{{{name}}}") for name in offered if name in needed or name == "seed"}
        life[part] = {"tool": entry.name} | ({"arguments": arguments} if arguments else {})
        columns = [name for name in needed if name not in _FILL]
        notes += [f"data: {part} sends the row's column `{name}`" for name in columns]
    if "score" not in life and "save" in life:
        life["after"] = "gold"
        notes.append("data: the row's column `gold` holds the calls (`name`, `arguments`) that lead to the goal")
    elif "score" not in life:
        raise RlfError(
            f"{source}: by their names none of its tools scores or shows the state (it has: "
            f"{', '.join(listing.tool_names)}). A world needs one; write `env: {{kind: mcp, score: {{tool: NAME}}, "
            "...}` by hand, or `save: {tool: NAME}` with `after: COLUMN`."
        )
    entries = [entry for entry in listing.entries if entry.resource is None]
    keys = [key for key in _KEYS if all(key in (one.input_schema.get("properties") or {}) for one in entries)]
    key = {"key": keys[0]} if keys else {}
    return {"kind": "mcp", "server": server | {"start_timeout_s": 60}, **life, **key}, notes


_MAKERS: Mapping[str, Callable[[str], tuple[dict[str, Any], list[str]]]] = {
    "python": _python,
    "mcp": _mcp,
    "openenv": lambda source: ({"kind": "openenv", "url": source}, []),
    "text": lambda source: ({"kind": "text", "make": source}, []),
}
