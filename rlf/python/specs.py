"""`rlf.check`, `rlf.plan_run`, and `rlf.load_tools`: declared tools, called through the executor of training."""

from __future__ import annotations

import asyncio
import json
from asyncio import events, tasks
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from rlf.core.callables import foreign_code
from rlf.core.errors import Fault, RlfError, SpecError
from rlf.core.plain_json import Jsonable
from rlf.core.process import import_from
from rlf.core.text import clean_value
from rlf.runs.plans import check_spec
from rlf.spec.layers import absolute
from rlf.tools import ToolDeclaration
from rlf.types import ToolCall, ToolDescription, ToolResult

if TYPE_CHECKING:
    from rlf.runs.planning import PlanReport

DEFAULT_RUNS = "runs"
AnyPath = str | PathLike[str]
Files = AnyPath | Sequence[AnyPath]
"""A file, or several: of specs, later ones are laid over earlier ones."""
Spec = Files | Mapping[str, Any]
"""Files, or the keys of a spec with their values; functions may stand among `tools` and `rewards`."""
Overrides = Mapping[str, Any] | Sequence[str]
"""`{"train.steps": 20}`, or as on the command line: `["train.steps=20", "~eval"]`."""


@contextmanager
def as_command() -> Iterator[None]:
    """Runs its block as a command runs: callables of the current folder are found, and event loops can start."""
    import_from(Path.cwd())
    with own_loop():
        yield


def to_paths(files: Files) -> list[Path]:
    """The paths of files."""
    return [Path(files)] if isinstance(files, str | PathLike) else [Path(file) for file in files]


def to_command(
    spec: Spec, overrides: Overrides, runs_folder: AnyPath, *, in_file: bool = False
) -> tuple[list[Path], list[str]]:
    """Files and overrides as a command line has them; a spec that is a mapping is overrides, of what it `extends`.

    Args:
        in_file: whether a mapping is given a file, for commands that read something else where no file is named.
    """
    texts = to_texts(overrides, runs_folder)
    if not isinstance(spec, Mapping):
        return to_paths(spec), texts
    files = to_paths(spec.get("extends", ()))
    if in_file:
        from rlf.python.mappings import write_base

        files = [write_base(files, Path(runs_folder))]
    return files, to_texts({key: value for key, value in spec.items() if key != "extends"}, runs_folder) + texts


_REST: dict[str, Any] = {
    "name": "mapping",
    "model": {"path": "builtin:tiny"},
    "data": {"train": {"path": "mapping.jsonl"}},
    "rewards": [{"kind": "rule", "rule": "exact_match", "name": "exact_match"}],
    "train": {"algorithm": "grpo"},
}
"""What a spec has to have, for mappings of which only tools or rewards are read."""


def to_parts(
    spec: Spec, part: str, marks: Collection[str], runs_folder: AnyPath
) -> tuple[list[Path], list[str], dict[Path, str]]:
    """Files, overrides and texts in place of files, for what reads the tools or the rewards of a spec and no more.

    A mapping needs nothing else then, and may be the one tool or term itself.

    Args:
        part: `tools` or `rewards`.
        marks: keys that a tool or term has, and no spec.
    """
    if not isinstance(spec, Mapping):
        return to_paths(spec), [], {}
    whole: Mapping[str, Any] = {part: [spec]} if any(key in spec for key in marks) else spec
    bases = to_paths(whole.get("extends", ()))
    rest = {key: value for key, value in _REST.items() if key != part and key not in whole}
    text = json.dumps({"extends": [str(file.absolute()) for file in bases]} if bases else rest)
    file = Path("mapping")
    return [file], to_command(whole, (), runs_folder)[1], {file.absolute(): text}


def to_texts(overrides: Overrides, runs_folder: AnyPath = DEFAULT_RUNS) -> list[str]:
    """Overrides as the command line has them."""
    if isinstance(overrides, Mapping):
        from rlf.python.mappings import to_overrides

        return to_overrides(overrides, Path(runs_folder))
    if isinstance(overrides, str):
        raise RlfError(f'overrides: got a string; expected a mapping or a list of strings. Write e.g. ["{overrides}"].')
    return list(overrides)


@dataclass(frozen=True, slots=True)
class CheckedMember:
    """A sweep's member without faults."""

    name: str
    plan_hash: str
    overrides: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Check(Jsonable):
    """Faults and warnings of a spec, or of every member of a sweep."""

    faults: tuple[Fault, ...]
    """Everything that is wrong, each with its place; empty for a spec that can run."""
    warnings: tuple[Fault, ...] = ()
    """What is legal and unwise."""
    name: str | None = field(default=None, metadata={"optional": True})
    """The spec's own; None where it has faults, as are the facts below."""
    plan_hash: str | None = field(default=None, metadata={"optional": True})
    num_train_rows: int | None = field(default=None, metadata={"json": None})
    num_eval_rows: int | None = field(default=None, metadata={"json": None})
    members: tuple[CheckedMember, ...] | None = field(default=None, metadata={"optional": True})
    """Of a sweep, in place of name and hash."""
    JSON_PROPERTIES: ClassVar = ("ok",)

    @property
    def ok(self) -> bool:
        """Whether there are no faults."""
        return not self.faults

    def raise_for_faults(self) -> None:
        """Raises SpecError with every fault, if there is one."""
        if self.faults:
            raise SpecError(self.faults)

    def __str__(self) -> str:
        lines = [*map(str, self.faults), *(f"warning: {warning}" for warning in self.warnings)]
        return "\n".join([*lines, *([f"{self.name}: ok"] if self.ok else [])])


def check(
    spec: Spec,
    overrides: Overrides = (),
    *,
    texts: Mapping[AnyPath, str] | None = None,
    import_code: bool = True,
    runs_folder: AnyPath = DEFAULT_RUNS,
) -> Check:
    """Looks for every fault of a spec and of what it names. Trains nothing and calls no tool.

    Args:
        texts: texts that are read in place of files, by path: what an editor holds and has not saved.
        import_code: whether Python that the spec names is imported and its MCP servers are started; False for a spec
            that you do not trust.
        runs_folder: where functions of a mapping are written, as `rlf.run` does.
    """
    unsaved = {absolute(Path(path), Path.cwd()): text for path, text in (texts or {}).items()}
    try:
        with as_command(), nullcontext() if import_code else foreign_code(None):
            found = check_spec(*to_command(spec, overrides, runs_folder), texts=unsaved)
    except SpecError as error:
        return Check(error.faults)
    rows = (found.num_train_rows, found.num_eval_rows)
    return Check((), found.warnings, found.plan.spec.name, found.plan.plan_hash, *rows)


def plan_run(
    spec: Spec, overrides: Overrides = (), *, gpu: str | None = None, runs_folder: AnyPath = DEFAULT_RUNS
) -> PlanReport:
    """Plans a run: its values and where each comes from, files, work, memory, time. Loads no torch.

    Args:
        gpu: size of the GPU that the run is meant for, e.g. `24GB`; None for this machine.
        runs_folder: where earlier runs of the same plan are looked for.

    Raises:
        SpecError: the spec has faults.
    """
    from rlf.runs.planning import report_plan

    with as_command():
        return report_plan(*to_command(spec, overrides, runs_folder), gpu=gpu, runs_folder=Path(runs_folder))


@contextmanager
def own_loop() -> Iterator[None]:
    """Lets the block call `asyncio.run`: the thread's running loop, if there is one, stands still meanwhile.

    The block stays in its thread, so that Ctrl-C ends it as it ends a command.
    """
    outer = events._get_running_loop()
    if outer is None:
        yield
        return
    swap = getattr(tasks, "_swap_current_task", lambda loop, task: None)  # from Python 3.12 on
    task = swap(outer, None)
    events._set_running_loop(None)
    try:
        yield
    finally:
        events._set_running_loop(outer)
        swap(outer, task)


@dataclass(frozen=True, slots=True)
class ToolPrompt:
    """One tool in a spec's chat format."""

    format: str
    text: str
    """The prompt of a question with this tool alone, special tokens included."""
    num_tokens: int
    """Of that prompt."""
    num_added: int
    """How many of them the tool adds to the prompt of the same question without tools."""


@dataclass(frozen=True, slots=True)
class Tool(Jsonable):
    """A declared tool. What it calls may hold credentials, and is not shown."""

    name: str
    description: str
    input_schema: Mapping[str, Any] = field(metadata={"json": "inputSchema"})
    kind: str
    timeout_s: float
    num_tests: int
    """Examples under its `tests:`."""
    declaration: ToolDeclaration = field(repr=False, metadata={"json": None})
    file: Path | None = field(default=None, metadata={"optional": True})
    """The file that declares it, of a tool that `rlf tools list` lists."""
    prompts: tuple[ToolPrompt, ...] | None = field(default=None, metadata={"optional": True})
    """How the models of specs read it, of a tool that `rlf tools show` shows."""

    @classmethod
    def of(
        cls, tool: ToolDeclaration, *, file: Path | None = None, prompts: tuple[ToolPrompt, ...] | None = None
    ) -> Self:
        """A declaration without credentials."""
        facts = (tool.name, tool.description, tool.input_schema, tool.target.kind, tool.limits.timeout_s)
        return cls(*facts, len(tool.tests), tool, file, prompts)

    def call(self, arguments: Mapping[str, Any] | None = None, **named: Any) -> ToolResult:
        """One call, as the model would make it: limits hold, and a failure is a result with its outcome.

        Args:
            arguments: the call's arguments; or give them by name.
        """
        with as_command():
            return asyncio.run(self._call(clean_value({**(arguments or {}), **named})))

    async def _call(self, arguments: dict[str, Any]) -> ToolResult:
        from rlf.tools.execution.executor import Executor

        async with Executor([self.declaration]) as executor:
            return await executor.invoke(ToolCall(self.name, arguments), trajectory_id="call")

    def for_model(self) -> ToolDescription:
        """The tool's description as the model sees it."""
        return self.declaration.description_for_model


def load_tools(spec: Spec = (), *, runs_folder: AnyPath = DEFAULT_RUNS) -> list[Tool]:
    """The tools of a spec, or of several and of tool files, each once; without any, of every file in `tool_specs`.

    Raises:
        SpecError: with every fault of every file.
    """
    from rlf.runs import declared as load

    with as_command():
        return [Tool.of(tool) for tool in load.load_tools(*to_parts(spec, "tools", load.TOOL_KEYS, runs_folder))]
