"""`rlf env prove FOLDER`: every task of a built world proven again, as its files are now."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rlf.apps.build.calls import BuiltTools, gold_calls
from rlf.apps.build.folder import BUILD, CERTIFICATE, SPLITS, BuildCertificate, hash_files, read_world, write_json_file
from rlf.apps.build.probe import check_arguments, check_code, check_distractor, check_tool, check_ways
from rlf.apps.build.task import BuildTask, ProofBench, ProofFailure, prove_task
from rlf.core import RlfError
from rlf.core.leaks import SearchedText
from rlf.core.plain_json import Jsonable
from rlf.core.yaml_text import load_document

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
