"""A world as FTRL's rows: each with its tools' documents and self-contained code.

A row has `messages`, `tools` (JSON in OpenAI's form), `codes` (JSON, source by tool), `unsolved_set` (JSON, golds by
tool), `solve_rate`, `data_source`, `split`, `answer`. A tool's code holds the values of the row's own world that it
may be asked for, so that it runs without the world's database. It is one function: FTRL runs it within a function of
its own, where a tool sees no other name of its code. Golds are texts, of which FTRL looks for the parts.
"""

from __future__ import annotations

import ast
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from rlf.apps.build.folder import CERTIFICATE, DATABASE, SPEC, SPLITS, read_world, write_file, write_json_file
from rlf.apps.build.task import BuildTask
from rlf.apps.build.workshop import CODE
from rlf.core import RlfError, hash_path
from rlf.core.yaml_text import dump_yaml, load_document

_STORED = {"_connection", "_find", "_names", "_kind_of"}
"""Functions of the shared code that read the database, in whose place a table in the code is read."""
_INLINE = """
def _find(kind, columns, key):
    row = next((row for row in _ROWS if _normal(row[0]) == key), None)
    return None if row is None else tuple(row[_COLUMNS.index(column)] for column in columns)
def _names(kind):
    return [row[0] for row in _ROWS]
def _kind_of(key):
    return None
"""


def write_ftrl(folder: Path) -> Iterator[Path]:
    """Writes a file of rows for each part of a world's split into its folder `ftrl`, and a spec that trains on them."""
    certificate, tasks = read_world(folder)
    if "class World" in ((folder / CODE).read_text(encoding="utf-8") if (folder / CODE).is_file() else ""):
        raise RlfError(
            f"{folder}: its tools change the world, but rows of FTRL keep no state. Build with `changes: 0`."
        )
    (folder / "ftrl").mkdir(exist_ok=True)
    files: dict[str, str] = {}
    with closing(sqlite3.connect(folder / DATABASE if (folder / DATABASE).is_file() else ":memory:")) as connection:
        code_of = _code_maker(folder, connection)
        describe = cache(lambda tool: _describe_function(folder / "tools" / f"{tool}.yaml"))
        for split in SPLITS:
            path = folder / "ftrl" / f"{split}.jsonl"
            rows = (
                ftrl_row(task, {tool: describe(tool) for tool in task.tools}, code_of)
                for task in tasks
                if task.split == split
            )
            write_file(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
            files[path.name] = hash_path(path)
            yield path
    write_json_file(folder / "ftrl" / CERTIFICATE, replace(certificate, files=files).to_json())
    spec = _make_spec(load_document((folder / SPEC).read_text(encoding="utf-8")))
    (folder / "ftrl" / SPEC).write_text(dump_yaml(spec), encoding="utf-8")


def _make_spec(world: Mapping[str, Any]) -> dict[str, Any]:
    """The world's spec over the rows, whose tools come with them; it reads none of the world's tool files."""
    columns = {"prompt": "messages", "kind": "data_source", "tools": "tools"}
    files = {part: source["path"] for part, source in world["data"].items()}
    return {
        **world,
        "name": f"{world['name']}-ftrl",
        "data": {part: {"path": file, **columns} for part, file in files.items()},
        "tools": [],
        "env": {"kind": "ftrl", "rows": list(dict.fromkeys(files.values())), "files": [CERTIFICATE]},
    }


def ftrl_row(
    task: BuildTask, documents: Mapping[str, Mapping[str, Any]], code_of: Callable[[str, str], str]
) -> dict[str, Any]:
    """One row; `code_of` gives a tool's source for a world."""
    tools = [{"type": "function", "function": document} for document in documents.values()]
    golds = {tool: list(map(_write_gold, golds)) for tool, golds in task.unsolved_set.items()}
    return {
        "id": task.id,
        "messages": [{"role": "user", "content": task.question}],
        "tools": json.dumps(tools, ensure_ascii=False),
        "codes": json.dumps({tool: code_of(tool, task.world) for tool in task.tools}, ensure_ascii=False),
        "unsolved_set": json.dumps(golds, ensure_ascii=False),
        "solve_rate": 0.0,
        "data_source": task.scenario.value,
        "split": task.split,
        "answer": task.answer,
    }


def _describe_function(file: Path) -> dict[str, Any]:
    tool = load_document(file.read_text(encoding="utf-8"))
    return {"name": tool["name"], "description": tool["description"], "parameters": tool["inputSchema"]}


def _code_maker(folder: Path, connection: sqlite3.Connection) -> Callable[[str, str], str]:
    """Gives a tool's self-contained source for a world: its own file, or its part of the module with its values."""
    if not (folder / CODE).is_file():
        return lambda tool, world: enclose(ast.parse((folder / "tools" / f"{tool}.py").read_text("utf-8")), tool)
    module = ast.parse((folder / CODE).read_text(encoding="utf-8"))
    functions = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    is_tool = {name: not name.startswith("_") for name in functions}
    shared = ast.Module([node for node in module.body if not _is_left_out(node, is_tool)], [])
    for node in ast.walk(shared):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
    shared_source = f"{ast.unparse(ast.fix_missing_locations(shared))}\n{_INLINE}"

    @cache
    def code_of(tool: str, world: str) -> str:
        function = functions[tool]
        columns, rows = _read_table(ast.literal_eval(_settings_of(function)), world, connection)
        source = f"{shared_source}\n_COLUMNS = {columns!r}\n_ROWS = {rows!r}\n{ast.unparse(function)}\n"
        return enclose(ast.parse(source), tool)

    return code_of


def _write_gold(gold: Any) -> str:
    """A gold as FTRL writes what a tool returns."""
    return gold if isinstance(gold, str) else json.dumps(gold, ensure_ascii=False)


def enclose(module: ast.Module, tool: str) -> str:
    """A module's source as one function that holds all that its tool needs. Raises RlfError where that cannot be."""
    shared = sorted({name for node in ast.walk(module) if isinstance(node, ast.Global) for name in node.names})
    is_future = [isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in module.body]
    future = [node for node, found in zip(module.body, is_future, strict=True) if found]
    inner = [_Enclosed().visit(node) for node, found in zip(module.body, is_future, strict=True) if not found]
    outer = ast.parse(f"def {tool}(**arguments):\n    return {tool}(**arguments)").body[0]
    assert isinstance(outer, ast.FunctionDef), tool
    outer.body = [*ast.parse("".join(f"{name} = None\n" for name in shared)).body, *inner, *outer.body]
    source = f"{ast.unparse(ast.fix_missing_locations(ast.Module([*future, outer], [])))}\n"
    try:
        compile(source, f"<{tool}>", "exec")
    except SyntaxError as fault:
        raise RlfError(f"{tool}: its source cannot be one function: {fault.msg}. Change {tool}.py.") from fault
    return source


class _Enclosed(ast.NodeTransformer):
    """What a module's functions call global, as it is within one function."""

    def visit_Global(self, node: ast.Global) -> ast.Nonlocal:
        """Names of the function around."""
        return ast.copy_location(ast.Nonlocal(node.names), node)


def _is_left_out(node: ast.stmt, is_tool: Mapping[str, bool]) -> bool:
    match node:
        case ast.FunctionDef(name=name):
            return is_tool[name] or name in _STORED
        case ast.Import(names=[ast.alias(name="sqlite3")]) | ast.ImportFrom(module="pathlib" | "typing"):
            return True
        case ast.AnnAssign(target=ast.Name(id="_CONNECTIONS")) | ast.Expr():
            return True
    return False


def _settings_of(function: ast.FunctionDef) -> ast.expr:
    """The mapping that a function passes to the shared code."""
    statement = function.body[-1]
    assert isinstance(statement, ast.Return) and isinstance(statement.value, ast.Call), (
        f"{function.name} has other code"
    )
    return statement.value.args[0]


def _read_table(
    settings: Mapping[str, Any], world: str, connection: sqlite3.Connection
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The columns that a function reads in a world, and their rows in the order of their keys."""
    kind, relations = settings["kind"], [*settings["relations"].values()]
    former = [f"{relation}__before" for relation in settings.get("former", ())]
    columns = ["name", *relations, *former]
    chosen = ", ".join(f'"{kind}"."{column}"' for column in columns)
    query = f'SELECT {chosen} FROM "{kind}" JOIN things USING (key) WHERE world = ? ORDER BY key'
    return columns, connection.execute(query, (world,)).fetchall()
