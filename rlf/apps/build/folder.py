"""A world as a folder: tasks, tools, their code and database, a spec over them, and the certificate.

world.db  tools.py  tools/NAME.yaml  train.jsonl  validation.jsonl  heldout.jsonl
spec.yaml  build.yaml  certificate.json
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from rlf.apps.build.kind import BuildPart, BuildSettings, Maker, read_part
from rlf.apps.build.pack import Register
from rlf.apps.build.task import POLICIES, BuildTask, read_task
from rlf.core import RlfError, hash_json, hash_path
from rlf.core.files import lock_file, remove_lock, write_whole
from rlf.core.identity import is_sealed
from rlf.core.plain_json import Jsonable
from rlf.core.text import describe
from rlf.core.yaml_text import dump_yaml

logger = logging.getLogger(__name__)

# The certificate of a world: the checks of its tasks and their results, beside the data, in `certificate.json`.
#
# It holds no time and no path, so that the same build gives the same bytes.

ALL = "all"
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class GateResult(Jsonable):
    """One bound on a policy's score over all tasks."""

    name: str
    measured: float
    bound: float
    holds: bool


@dataclass(frozen=True, slots=True)
class BuildCertificate(Jsonable):
    """Results of a build."""

    JSON_PROPERTIES: ClassVar[tuple[str, ...]] = ("sha256",)

    build_sha256: str
    """Of the settings, without the folder."""
    tasks: Mapping[str, Mapping[str, int]]
    """Tasks by part of the split and scenario."""
    figures: Mapping[str, Mapping[str, float]]
    """By scenario, and for all: tasks, mean gold calls, the chance of a guess, and P, R, F1 of each policy."""
    gates: tuple[GateResult, ...]
    dropped: Mapping[str, int]
    """Tasks that were made and not kept, by stage and reason."""
    spent: Mapping[str, float] = field(default_factory=dict)
    meaning: Mapping[str, float] = field(default_factory=dict)
    """Of a second model: tasks that it judged and refused, planted bad ones that it was given and caught, and the share
    of these, also by their kind; empty where none has judged what the tasks mean."""
    files: Mapping[str, str] = field(default_factory=dict)
    """sha256 of each file of the world."""
    proven_again: tuple[str, ...] = ()
    """Files that were edited after the build, over which every task was proven again; the figures are the build's."""

    @property
    def holds(self) -> bool:
        """Whether every gate holds."""
        return all(gate.holds for gate in self.gates)

    @property
    def sha256(self) -> str:
        """Of all else that it holds, by which an edit of it is found."""
        return hash_json(asdict(self))


class BuildTally:
    """Sums over parts."""

    def __init__(self) -> None:
        self._figures: dict[str, Counter[str]] = {}
        self._tasks: dict[str, Counter[str]] = {}
        self._dropped: Counter[str] = Counter()
        self._spent: Counter[str] = Counter()
        self._meaning: dict[str, float] = {}

    def add(self, part: BuildPart) -> None:
        """Counts a part."""
        for scenario, sums in part.figures.items():
            for name in (scenario, ALL):
                self._figures.setdefault(name, Counter()).update(sums)
        for task in part.tasks:
            self._tasks.setdefault(task.split, Counter())[task.scenario.value] += 1
        self._dropped.update(part.dropped)
        self._spent.update(part.spent)
        for name, number in part.meaning.items():
            self._meaning[name] = self._meaning.get(name, 0) + number

    @property
    def num_tasks(self) -> int:
        """Tasks counted."""
        return sum(counter.total() for counter in self._tasks.values())

    @property
    def dropped(self) -> Mapping[str, int]:
        """Tasks that were not kept, by reason, most first."""
        return dict(sorted(self._dropped.items(), key=lambda item: (-item[1], item[0])))

    def certificate(self, settings: BuildSettings, files: Mapping[str, str]) -> BuildCertificate:
        """The certificate of all parts."""
        figures = {name: _mean_scores(self._figures[name]) for name in sorted(self._figures)}
        meaning = dict(sorted(self._meaning.items()))
        for name, number in self._meaning.items():
            if name.startswith("planted"):
                share = self._meaning.get(name.replace("planted", "caught"), 0) / number
                meaning[name.replace("planted", "share")] = round(share, _DIGITS)
        return BuildCertificate(
            build_sha256=settings.sha256,
            tasks={split: dict(sorted(counts.items())) for split, counts in self._tasks.items()},
            figures=figures,
            gates=tuple(_check_gates(settings, figures[ALL], meaning.get("share"))) if figures else (),
            dropped=self.dropped,
            meaning=meaning,
            spent={name: round(value, _DIGITS) for name, value in sorted(self._spent.items())},
            files=files,
        )


def _mean_scores(sums: Mapping[str, float]) -> dict[str, float]:
    """The means over the tasks, and their number."""
    num_tasks = sums["tasks"]
    means = {name: round(value / num_tasks, _DIGITS) for name, value in sums.items() if name != "tasks"}
    return {"tasks": num_tasks, **means}


def _check_gates(
    settings: BuildSettings, means: Mapping[str, float], share_caught: float | None
) -> Iterable[GateResult]:
    bounds = settings.gates
    yield GateResult("gold", means["gold/f1"], bounds.gold, means["gold/f1"] >= bounds.gold)
    for name in ("null", "random", "spam"):
        assert name in POLICIES
        bound: float = getattr(bounds, name)
        yield GateResult(name, means[f"{name}/f1"], bound, means[f"{name}/f1"] <= bound)
    yield GateResult("no_tool", means["no_tool"], bounds.no_tool, means["no_tool"] <= bounds.no_tool)
    if share_caught is not None:
        yield GateResult("meaning", share_caught, bounds.meaning, share_caught >= bounds.meaning)


def read_certificate(value: Mapping[str, Any]) -> BuildCertificate:
    """The certificate of a JSON value that `to_json` made. Raises ValueError for one that was edited since."""
    if not is_sealed(value):
        raise ValueError(f"{CERTIFICATE} was edited: it has not the hash that it names as its own")
    value = {name: each for name, each in value.items() if name != "sha256"}
    gates = tuple(GateResult(**gate) for gate in value["gates"])
    return BuildCertificate(**{**value, "gates": gates, "proven_again": tuple(value.get("proven_again", ()))})


WORK = ".build"
"""Folder within a world where work is kept: parts until it is whole, and a model's answers."""
PARTS = "parts"
CERTIFICATE, DATABASE, SPEC, BUILD = "certificate.json", "world.db", "spec.yaml", "build.yaml"
SPLITS = ("train", "validation", "heldout")
_VERSIONS_AT = slice(92, 100)
"""Bytes of a database's header that hold the version of SQLite and a count of changes that goes with it."""

Tell = Callable[[int, int, BuildTally], None]
"""Takes the parts that are done, all there are, and the sums so far."""


def build_world(settings: BuildSettings, tell: Tell, *, fresh: bool = False) -> BuildCertificate:
    """Builds a world, or completes one that was cut off, and writes it.

    Args:
        fresh: whether parts that an earlier build has left are made again.

    Raises:
        RlfError: nothing can be built, or something else is in the folder.
    """
    out = Path(settings.out)
    if out.exists() and not out.is_dir():
        raise RlfError(f"{out}: this is a file; a world is a folder. Name another one with `out`.")
    found = {path.name for path in out.iterdir()} if out.is_dir() else set()
    if found and not found & {CERTIFICATE, WORK}:
        raise RlfError(f"{out}: the folder holds other files. Name another one with `out`, or empty it.")
    with _alone(out):
        return _build_parts(out, settings, tell, fresh=fresh)


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Makes a world's folder, and keeps other builds from it. Raises RlfError where one is at work there."""
    try:
        (out / WORK).mkdir(parents=True, exist_ok=True)
        file = lock_file(out / WORK / "lock")
    except BlockingIOError as error:
        raise RlfError(
            f"{out}: another build is at work there. Wait for it, or name another folder with `out`."
        ) from error
    except FileNotFoundError as error:  # /proc, for one, takes no folder and says that it does not exist
        raise RlfError(f"{out}: no folder can be made there. Name another one with `out`.") from error
    try:
        yield
    finally:
        if file is not None:
            remove_lock(out / WORK / "lock")
            os.close(file)


def _build_parts(out: Path, settings: BuildSettings, tell: Tell, *, fresh: bool) -> BuildCertificate:
    work = out / WORK / PARTS / settings.sha256[:16]
    if fresh:
        shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)
    tally = BuildTally()
    with settings.build.open(settings, out / WORK) as maker:
        for number, part in enumerate(_iterate_parts(maker, work, Register(apart="tools" in settings.split.by))):
            tally.add(part)
            tell(number + 1, len(maker.names), tally)
        if not tally.num_tasks:
            reasons = "; ".join(f"{number} for {reason!r}" for reason, number in tally.dropped.items())
            raise RlfError(f"{out}: every task was dropped: {reasons}. Correct the build file, or build with --fresh.")
        _write_world(out, settings, [_read_saved(work, name) for name in maker.names])
    certificate = tally.certificate(settings, hash_files(out))
    write_json_file(out / CERTIFICATE, certificate.to_json())
    for finished in (out / WORK / PARTS).iterdir():  # earlier settings' among them
        shutil.rmtree(finished)
    return certificate


def _iterate_parts(maker: Maker, work: Path, register: Register) -> Iterator[BuildPart]:
    """The parts, those that were saved from there; each with names that no earlier one has, and no task of one."""
    for name in maker.names:
        path = work / f"{name}.json"
        try:
            part = _read_saved(work, name)
        except FileNotFoundError:
            part = None
        except (ValueError, TypeError, KeyError, AttributeError) as fault:
            logger.warning("%s: the part is damaged and is made again: %s", path, describe(fault))
            part = None
        if part is None:
            write_json_file(path, register.admitted(maker.make(name)).to_json())
            part = _read_saved(work, name)
        register.add(part)
        yield part


def _read_saved(work: Path, name: str) -> BuildPart:
    return read_part(json.loads((work / f"{name}.json").read_text(encoding="utf-8")))


def _write_world(out: Path, settings: BuildSettings, parts: Sequence[BuildPart]) -> None:
    (out / CERTIFICATE).unlink(missing_ok=True)  # of what stood here before
    tools = {tool["name"]: tool for part in parts for tool in part.tools}
    tasks = [task for part in parts for task in part.tasks]
    for split in SPLITS:
        rows = [json.dumps(task.row(), ensure_ascii=False) + "\n" for task in tasks if task.split == split]
        write_file(out / f"{split}.jsonl", "".join(rows))
    shutil.rmtree(out / "tools", ignore_errors=True)
    (out / "tools").mkdir()
    for name, text in settings.build.code_files(
        {name: part.codes[name] for part in parts for name in part.codes}
    ).items():
        write_file(out / name, text)
    data = [part.data for part in parts if part.data]
    (out / DATABASE).unlink(missing_ok=True)
    if data:
        _write_database(out / DATABASE, data)
    env = settings.build.env
    for name, tool in tools.items() if env is None else ():
        files = [f"../{file}" for file in ([DATABASE] if data else []) + [CERTIFICATE]]
        write_file(out / "tools" / f"{name}.yaml", dump_yaml({**tool, "files": files}))
    write_file(out / SPEC, _spec_text(out.resolve().name, [] if env else sorted(tools), tasks, env))
    write_file(out / BUILD, dump_yaml(settings.model_dump(mode="json", exclude={"out"})))


def _write_database(path: Path, data: Sequence[str]) -> None:
    """A database file of SQL; without the version of SQLite that wrote it, so that its bytes are the data's alone."""
    temporary = path.with_suffix(".part")
    temporary.unlink(missing_ok=True)
    with closing(sqlite3.connect(temporary)) as connection:
        connection.executescript("BEGIN;\n" + "".join(dict.fromkeys(data)) + "COMMIT;\nVACUUM;\n")
    content = bytearray(temporary.read_bytes())
    content[_VERSIONS_AT] = bytes(8)
    temporary.write_bytes(content)
    temporary.replace(path)


def _spec_text(name: str, tools: Sequence[str], tasks: Sequence[BuildTask], env: Mapping[str, str] | None) -> str:
    """A spec that trains on the world's tasks."""
    columns = {"prompt": "question", "answer": "answer", "kind": "scenario", "tools": "tools"}
    splits = {task.split for task in tasks}
    train = next(split for split in SPLITS if split in splits)
    evaluation = next((split for split in ("validation", "heldout") if split in splits), train)
    is_clustered = len({task.world for task in tasks if task.split == evaluation}) > 1
    most = max(len(task.steps) for task in tasks)
    spec = {
        "name": name,
        "model": {"path": "builtin:reader"},
        "data": {
            "train": {"path": f"{train}.jsonl", **columns},
            "eval": {"path": f"{evaluation}.jsonl", **columns, **({"cluster": "world"} if is_clustered else {})},
        },
        "tools": [f"tools/{tool}.yaml" for tool in tools],
        **({} if env is None else {"env": {**env, "files": [DATABASE, CERTIFICATE]}}),
        "rewards": [
            {"kind": "rule", "name": "solve", "rule": "ftrl", "variant": "solve_f1", "match": "value", "weight": 1.0},
            {"kind": "rule", "name": "answer", "rule": "exact_match", "weight": 0.0},
        ],
        "rollout": {"num_generations": 8, "max_turns": most + 2, "max_total_tokens": 1024},
        "train": {"algorithm": "grpo", "learning_rate": 3e-4, "steps": 40, "prompts_per_step": 16},
        "eval": {"every": 10, "limit": 256},
        "seed": 0,
    }
    return "# Made by `rlf env build`; lay your own file over it: `rlf run spec.yaml mine.yaml`.\n" + dump_yaml(spec)


def hash_files(out: Path) -> dict[str, str]:
    """sha256 of the files of a world, without its certificate."""
    here = sorted(path for path in out.iterdir() if path.is_file() and path.name != CERTIFICATE)
    tools = sorted(path for path in (out / "tools").iterdir() if path.is_file())
    return {path.relative_to(out).as_posix(): hash_path(path) for path in (*here, *tools)}


def write_json_file(path: Path, value: Any) -> None:
    """Writes a JSON value as a whole."""
    write_file(path, json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def write_file(path: Path, text: str) -> None:
    """Writes a file as a whole, so that one that is cut off is not taken for one."""
    write_whole(path, text)


def read_world(folder: Path) -> tuple[BuildCertificate, list[BuildTask]]:
    """The certificate and the tasks of a world. Raises RlfError where a folder is none."""
    try:
        certificate = read_certificate(json.loads((folder / CERTIFICATE).read_text(encoding="utf-8")))
        tasks = []
        for split in SPLITS:
            with (folder / f"{split}.jsonl").open(encoding="utf-8") as lines:
                tasks += [read_task(json.loads(line)) for line in lines]
    except FileNotFoundError as fault:
        name = Path(fault.filename).name
        raise RlfError(f"{folder}: it has no {name}; `rlf env build` writes one. Name a built world.") from None
    except (ValueError, TypeError, KeyError) as fault:
        raise RlfError(f"{folder}: a file of the world is damaged: {fault!r}. Build it again.") from fault
    return certificate, tasks
