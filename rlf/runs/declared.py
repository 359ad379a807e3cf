"""Tools and reward terms outside of a run: of specs, of files of their own, or of the folders for these."""

from __future__ import annotations

import logging
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from rlf.core.callables import forget_edited
from rlf.core.errors import Fault, RlfError, SpecError
from rlf.core.identity import derive_seed
from rlf.core.registry import nearest
from rlf.plan.compiler import compile as compile_plan
from rlf.rewards.answers import gold_key, gold_text, read_answer_text
from rlf.rewards.normalization import Normalization, destroyed, golds
from rlf.rewards.term import Term
from rlf.spec import load_spec
from rlf.spec.aliases import with_variables
from rlf.spec.code import literal_keys_of
from rlf.spec.faults import faults_of
from rlf.spec.layers import Reading, absolute, interpolate
from rlf.spec.models import DataSource, RunSpec
from rlf.spec.nodes import UNREADABLE, Node, plain
from rlf.spec.paths import resolve_callables, resolve_tool_files
from rlf.spec.validate import names_server, tools_of, validate_item
from rlf.tools import ToolDeclaration
from rlf.types import Scored, Task

logger = logging.getLogger(__name__)
T = TypeVar("T")

FOLDER = Path("reward_specs")
_FOLDER = Path("tool_specs")
TOOL_KEYS = ("inputSchema", "target")
"""Keys that a tool has, and no spec."""


def load_tools(
    files: Sequence[Path], overrides: Sequence[str] = (), texts: Mapping[Path, str] | None = None
) -> list[ToolDeclaration]:
    """The tools of specs and tool files, each once; of every file in `tool_specs` when none is named.

    Args:
        overrides: of the specs.
        texts: what is read in place of files, by absolute path.

    Raises:
        SpecError: with every fault of every file.
        RlfError: no tool is found.
    """
    return [tool for _, tool in tools_of_files(files, overrides, texts)]


def tools_of_files(
    files: Sequence[Path], overrides: Sequence[str] = (), texts: Mapping[Path, str] | None = None
) -> list[tuple[Path, ToolDeclaration]]:
    """The same, each with the file that was named for it."""
    found = list[tuple[Path, ToolDeclaration]]()
    for file, tools in _load_each(files, _FOLDER, lambda file: _load_tool_file(file, texts or {}, overrides)):
        known = [tool for _, tool in found]
        found += [(file, tool) for tool in tools if tool not in known]
    if not found:
        where = ", ".join(str(file) for file in files) or f"{_FOLDER}/"
        raise RlfError(f"{where}: no tool is declared there. Name a spec with tools, or a tool file.")
    return found


def _load_each(files: Sequence[Path], folder: Path, load: Callable[[Path], T]) -> list[tuple[Path, T]]:
    """What each file, or each of a folder, declares. What imported modules print goes to stderr."""
    forget_edited()
    found, faults = list[tuple[Path, T]](), list[Fault]()
    for file in files or sorted(folder.glob("*.yaml")):
        try:
            with redirect_stdout(sys.stderr):
                found.append((file, load(file)))
        except SpecError as error:
            faults += error.faults
    if faults:
        raise SpecError(faults)
    return found


def tool_named(tools: Sequence[ToolDeclaration], name: str) -> ToolDeclaration:
    """The one tool of that name. Raises RlfError when there is none, or several."""
    found = [tool for tool in tools if tool.name == name]
    if not found:
        known = list(dict.fromkeys(tool.name for tool in tools))
        raise RlfError(f"no tool {name!r}{nearest(name, known)} (known: {', '.join(known)}).")
    if len(found) > 1:
        raise RlfError(f"{name!r} is declared in several files. Name the file, or a spec.")
    return found[0]


def holds_spec(file: Path) -> bool:
    """Whether a file that `load_tools` has read is a spec, and not one tool or MCP's servers."""
    root = Reading().read(absolute(file, Path.cwd()), "tool", None)
    return root is not None and not any(key in root.mapping for key in TOOL_KEYS) and not names_server(root)


def refuse_overrides(file: Path, overrides: Sequence[str]) -> None:
    """Raises RlfError for overrides of a file that is no spec."""
    if overrides:
        raise RlfError(f"{overrides[0]}: {file} is no spec, and overrides are of specs. Name the spec that uses it.")


def _load_tool_file(file: Path, texts: Mapping[Path, str], overrides: Sequence[str]) -> Sequence[ToolDeclaration]:
    reading = Reading(texts)
    root = reading.read(absolute(file, Path.cwd()), "tool", None)
    if root is None:
        raise SpecError(reading.faults)
    if not any(key in root.mapping for key in TOOL_KEYS) and not names_server(root):
        return load_spec([file], overrides, texts).spec.tools
    refuse_overrides(file, overrides)
    root = reading.with_agents_tools(root, (absolute(file, Path.cwd()),))
    if reading.faults:
        raise SpecError(reading.faults)
    return _declared_tools(root)


def _declared_tools(root: Node) -> list[ToolDeclaration]:
    """The tool that a file declares, or those of the MCP servers that it names."""
    faults: list[Fault] = []
    item = interpolate(with_variables(root), faults)
    faults += literal_keys_of(item)
    nodes = tools_of(item, faults)
    try:
        tools = [_read_tool(node) for node in nodes if node.value is not UNREADABLE]
    except SpecError as error:
        raise SpecError([*faults, *error.faults]) from error
    if faults:
        raise SpecError(faults)
    return tools


def _read_tool(root: Node) -> ToolDeclaration:
    """The declaration that a tool file holds, filled in already: a text that it was filled in with is data."""
    root = resolve_tool_files(resolve_callables(root))
    try:
        return ToolDeclaration.model_validate(plain(root), context={"folder": root.folder})
    except ValidationError as error:
        raise SpecError(faults_of(ToolDeclaration, root, error.errors())) from error


@dataclass(frozen=True, slots=True)
class RewardFile:
    """The terms of one file, and the tools that they may call."""

    file: Path
    terms: tuple[Term, ...]
    tools: tuple[ToolDeclaration, ...]
    seed: int
    data: DataSource | None = None
    """The training rows of a spec."""


def load_rewards(
    files: Sequence[Path], overrides: Sequence[str] = (), texts: Mapping[Path, str] | None = None
) -> list[RewardFile]:
    """The terms of specs and reward files; of every file in `reward_specs` when none is named.

    Args:
        overrides: of the specs.
        texts: what is read in place of files, by absolute path.

    Raises:
        SpecError: with every fault of every file.
        RlfError: there is no file.
    """
    found = [one for _, one in _load_each(files, FOLDER, lambda file: _load_reward_file(file, texts or {}, overrides))]
    if not found:
        raise RlfError(f"{FOLDER}/: no reward is declared. Name a spec or a reward file.")
    return found


def _load_reward_file(file: Path, texts: Mapping[Path, str], overrides: Sequence[str]) -> RewardFile:
    reading = Reading(texts)
    root = reading.read(absolute(file, Path.cwd()), "reward", None)
    if root is None:
        raise SpecError(reading.faults)
    if "kind" in root.mapping:
        refuse_overrides(file, overrides)
        faults: list[Fault] = []
        item = interpolate(root, faults)
        faults += literal_keys_of(item)
        term = validate_item(Term, "rewards", item, faults)  # type: ignore[type-abstract]  # validates to its kind
        if term is None or faults:
            raise SpecError(faults)
        return RewardFile(file, (term,), (), 0)
    spec = rescoring_spec([file], overrides, texts)
    return RewardFile(file, spec.rewards, spec.tools, spec.seed, spec.data.train)


def rescoring_spec(files: Sequence[Path], overrides: Sequence[str], texts: Mapping[Path, str] | None = None) -> RunSpec:
    """A spec, checked without its data and model. Raises SpecError."""
    return compile_plan(load_spec(files, overrides, texts or {})).spec


def tell(level: str, text: str) -> None:
    """Logs what a term reports; an alarm as an error."""
    logger.log(logging.getLevelNamesMapping().get(level.upper(), logging.ERROR), "%s", text)


def scored_step(name: str, runs_folder: Path, *, phase: str, step: int | None) -> tuple[str, int, list[Scored]]:
    """A run's id, and every trajectory of one of its steps with its scores; of the latest step without `step`.

    Raises:
        RlfError: none is kept.
    """
    from rlf.lineage.records import TrajectoryFilter
    from rlf.runs.place import open_reader

    with open_reader(runs_folder) as reader:
        run_id = reader.get_run(name).record.id
        if step is None:
            step = reader.trajectory(run_id, k=0, phase=phase).summary.step
        heads = reader.trajectories(run_id, TrajectoryFilter(phase=phase, step=step))
        whole = [stored.scored for head in heads if (stored := reader.whole(run_id, head)) is not None]
    if not whole:
        raise RlfError(f"run {run_id}: no trajectory of {phase} step {step} is kept. Name another step.")
    return run_id, step, whole


# Questions drawn over the forms of their golds.


def gold_form(gold: str) -> str:
    """The kind of text that a gold is, numbers with a sign or a point apart: questions are drawn from all kinds."""
    found = read_answer_text(gold)
    if found.quantity is not None:
        return "measure" if found.quantity.unit else f"number{'-' * ('-' in gold)}{'.' * ('.' in gold)}"
    return "marks" if destroyed(gold, Normalization.SQUAD) else found.form


def draw_questions(tasks: Sequence[Task], number: int, seed: int) -> list[Task]:
    """Questions with different golds as long as there are any, and with golds of different forms in turn.

    Tasks without a gold answer are drawn only where no task has one.
    """
    usable = [task for task in tasks if golds(task.answer)] or list(tasks)
    random.Random(derive_seed(seed, "attack", "questions")).shuffle(usable)
    drawn: list[Task] = []
    rounds = _draw_rounds(usable)
    while len(drawn) < min(number, len(usable)):
        drawn.append(next(rounds))
    return drawn


def _draw_rounds(tasks: Sequence[Task]) -> Iterator[Task]:
    """First tasks whose golds were not drawn before, then those that repeat one; of each one of each form in turn."""
    by_rank: dict[int, dict[str, list[Task]]] = {}
    seen = Counter[str]()
    for task in tasks:
        gold = gold_text(task)
        by_rank.setdefault(seen[gold_key(gold)], {}).setdefault(gold_form(gold), []).append(task)
        seen[gold_key(gold)] += 1
    for rank in sorted(by_rank):
        queues = [by_rank[rank][form] for form in sorted(by_rank[rank])]
        for row in zip_longest(*queues):
            yield from (task for task in row if task is not None)
