"""Worlds built from a file, shown as graphs, proven again, and written as the rows of FTRL."""

from __future__ import annotations

import ast
import asyncio
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rlf.apps.build import load_build
from rlf.apps.build.calls import BuiltTools, gold_calls
from rlf.apps.build.folder import (
    BUILD,
    CERTIFICATE,
    DATABASE,
    SPEC,
    SPLITS,
    BuildCertificate,
    BuildTally,
    build_world,
    hash_files,
    read_world,
    write_file,
    write_json_file,
)
from rlf.apps.build.probe import check_arguments, check_code, check_distractor, check_tool, check_ways
from rlf.apps.build.task import BuildTask, CallStep, ProofBench, ProofFailure, prove_task
from rlf.apps.build.workshop import CODE
from rlf.core import RlfError, hash_path
from rlf.core.leaks import SearchedText
from rlf.core.plain_json import Jsonable
from rlf.core.yaml_text import dump_yaml, load_document

# A row has `messages`, `tools` (JSON in OpenAI's form), `codes` (JSON, source by tool), `unsolved_set` (JSON, golds by
# tool), `solve_rate`, `data_source`, `split`, `answer`. A tool's code holds the values of the row's own world that it
# may be asked for, so that it runs without the world's database. It is one function: FTRL runs it within a function of
# its own, where a tool sees no other name of its code. Golds are texts, of which FTRL looks for the parts.

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
    if number is None:
        return ShownWorld(folder, certificate, None)
    task = tasks[number]
    texts = {name: (folder / "tools" / f"{name}.yaml").read_text(encoding="utf-8") for name in task.tools}
    tools = {name: str(load_document(text)["description"]) for name, text in texts.items()}
    shown = ShownTask(number, task.id, task.scenario, task.question, task.answer, task.join, task.steps, tools)
    return ShownWorld(folder, certificate, shown)


OpenTools = Callable[[Path], AbstractAsyncContextManager[BuiltTools]]


@dataclass(frozen=True, slots=True)
class TaskFault(Jsonable):
    """A task that does not hold."""

    id: str
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class FolderProof(Jsonable):
    """Results of proving a folder."""

    folder: Path
    num_tasks: int
    edited: tuple[str, ...]
    """Files that are not those of the certificate as it was."""
    faults: tuple[TaskFault, ...]
    certificate: BuildCertificate
    """Written again where every task holds and files had been edited."""

    @property
    def holds(self) -> bool:
        """Whether every task does, and every gate."""
        return not self.faults and self.certificate.holds


def prove_folder(folder: Path, tell: Callable[[int, int], None]) -> FolderProof:
    """Proves each task, and writes the certificate again where files were edited and every task holds.

    Args:
        tell: takes the tasks that are done, and all there are.

    Raises:
        RlfError: the folder is no built world.
    """
    certificate, tasks = read_world(folder)
    files = hash_files(folder)
    edited = tuple(name for name in {**certificate.files, **files} if certificate.files.get(name) != files.get(name))
    faults = [*_check_rows(folder, tasks), *asyncio.run(_prove_tasks(_read_kind(folder), folder, tasks, tell))]
    if edited and not faults:
        again = tuple(sorted({*certificate.proven_again, *edited}))
        certificate = replace(certificate, files=files, proven_again=again)
        write_json_file(folder / CERTIFICATE, certificate.to_json())
    return FolderProof(folder, len(tasks), edited, tuple(faults), certificate)


def _read_kind(folder: Path) -> OpenTools:
    from rlf.apps.build.kind import BuildSettings

    try:
        text = (folder / BUILD).read_text(encoding="utf-8")
        settings = BuildSettings.model_validate({**load_document(text), "out": str(folder)})
    except (OSError, ValueError, ValidationError) as fault:
        raise RlfError(f"{folder / BUILD}: it cannot be read: {fault}. Build the folder again.") from fault
    return settings.build.open_tools


def _check_rows(folder: Path, tasks: Sequence[BuildTask]) -> Iterator[TaskFault]:
    """Rows that say something else than the task that is proven, which rewards and splits rest on, or stand twice."""
    lines = [(split, line) for split in SPLITS for line in (folder / f"{split}.jsonl").read_bytes().splitlines()]
    asked = set[str]()
    for (split, line), task in zip(lines, tasks, strict=True):
        row = json.loads(line)
        if others := [name for name, value in task.row().items() if row.get(name) != value]:
            yield TaskFault(task.id, "row: keys differ from what its steps make", ", ".join(others))
        if task.split != split:
            yield TaskFault(task.id, "row: it is of another part of the split", f"{split}.jsonl has {task.split}'s")
        if task.question in asked:
            yield TaskFault(task.id, "duplicate: the question is there already", task.question)
        asked.add(task.question)


async def _prove_tasks(
    open_tools: OpenTools, folder: Path, tasks: Sequence[BuildTask], tell: Callable[[int, int], None]
) -> list[TaskFault]:
    faults: list[TaskFault] = []
    async with open_tools(folder) as tools:
        for number, task in enumerate(tasks):
            try:
                await _prove_task(task, tools)
            except ProofFailure as fault:
                faults.append(TaskFault(task.id, str(fault), fault.detail))
            tell(number + 1, len(tasks))
    return faults


async def _prove_task(task: BuildTask, tools: BuiltTools) -> None:
    """Every check of a build without its model. Raises ProofFailure."""
    known = {name: tools.known(task, name) for name in dict.fromkeys([*task.tools, *(s.tool for s in task.steps)])}
    if unseen := sorted({step.tool for step in task.steps} - set(task.tools)):
        raise ProofFailure("toolset: a gold call is of a tool that the task does not show", ", ".join(unseen))
    question, play, calls = SearchedText(task.question), tools.play, gold_calls(task.steps)
    for step in task.steps:
        check_arguments(question, step.arguments, known[step.tool])
    made = await play([(call.tool, call.arguments) for call in calls], None)
    results = {(each.tool, repr(each.arguments)): result for each, result in zip(calls, made, strict=True)}

    def invoke(tool: str, arguments: Mapping[str, Any]) -> Any:
        result = results[tool, repr(arguments)]
        if not result.has_result:
            raise ValueError(result.text)
        return result.text

    documents = (json.dumps([one.name, one.description, one.schema], ensure_ascii=False) for one in known.values())
    prove_task(task, ProofBench(invoke), SearchedText("\n".join(documents)))
    needed = dict.fromkeys(step.tool for step in task.steps)
    for name in () if tools.keeps_state else needed:
        own, hidden = [each for each in calls if each.tool == name], [e.gold for e in calls if e.tool != name]
        await check_tool(known[name], own, question, task.answer, play, hidden=hidden)
        if (code := tools.code(name)) is not None:
            check_code(code, known[name], own)
    if not any(each.is_dealt for each in known.values()):
        await check_ways(task, known, play)
        for name in known.keys() - needed:
            await check_distractor(known[name], task, play)
