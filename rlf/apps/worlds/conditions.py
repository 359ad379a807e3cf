"""Episodes of a trial again under other conditions: many at once, in another process, and what they leave behind."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import pickle
import resource
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rlf.apps.worlds import clock
from rlf.apps.worlds.trial import ONE_WORLD, Sign, TrialWorld, first_difference
from rlf.core import derive_seed
from rlf.core.files import scratch
from rlf.environments.kind import EnvSpec
from rlf.environments.playing import Action, Played, Policy, follow, open_bench
from rlf.processes.child import supervised
from rlf.types import Task

if TYPE_CHECKING:
    from rlf.tools import ToolDeclaration

Script = tuple[int, tuple[Action, ...]]
"""Position of a task, and the actions played in it."""
_MEMORY_BYTES = 4 << 30
_SETTLE_S = 0.5
_ROUNDS = 6
_MEMORY_MIB = 2
"""What an episode may leave of memory: allocators give it back late."""
_NUM_AT_ONCE = 16
SEED_CURE = (
    "Draw from `random.Random(seed)` of `reset(task, seed)`, and not from random numbers that all worlds share, from "
    "clocks, ids or addresses"
)


def limit_memory() -> None:
    """Bounds what this process may take beyond what it has: a world that eats memory fails, and not the machine."""
    with suppress(ValueError, OSError):
        kilobytes = int(_status("VmData").split()[0])
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (kilobytes * 1024 + _MEMORY_BYTES, hard))


def _status(key: str) -> str:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next((line.split(":", 1)[1] for line in lines if line.startswith(f"{key}:")), "0")


def seed_of(subject: TrialWorld) -> int:
    """The seed of the first task's world."""
    return derive_seed(subject.bench.seed, "world", subject.tasks[0].id)


async def check_isolation(subject: TrialWorld) -> tuple[Sign, str]:
    """Episodes at once are what each is alone: two action by action in turn, then many side by side."""
    if {"reset", "determinism"} & subject.failed:
        return Sign.UNKNOWN, "worlds differ even one after the other"
    if subject.bench.num_worlds < 2:
        return Sign.UNKNOWN, ONE_WORLD
    last = len(subject.tasks) - 1
    pairs = [(0, last), (0, 0)]
    for one, other in dict.fromkeys(pairs):
        for names in ((_probe(subject, one), _probe(subject, other)), (_probe(subject, one), "no-op")):
            places = list(zip((one, other), names, strict=True))
            alone = [await subject.reference(*place) for place in places]
            together = await subject.bench.play_together([_part(subject, place) for place in places])
            for a, b in zip(alone, map(subject.take, together), strict=True):
                if a != b:
                    words = f"when a second one ran beside it: {first_difference(a, b)}"
                    return Sign.FAILED, f"an episode gave another result {words}"
    every = [(at, name) for at in range(len(subject.tasks)) for name in subject.scripts(at)]
    # Solutions first: it is they that a world of a neighbour spoils.
    every.sort(key=lambda place: (place[1] != "gold", place[1] == "no-op"))
    num = min(_NUM_AT_ONCE, subject.bench.num_worlds)
    chosen = [every[at % len(every)] for at in range(num)]
    alone = [await subject.reference(*place) for place in chosen]
    for _ in range(2):
        together = await asyncio.gather(*(subject.bench.play(*_part(subject, place)) for place in chosen))
        for place, a, b in zip(chosen, alone, map(subject.take, together), strict=True):
            if a != b:
                words = f"when {num} ran at once: {first_difference(a, b)}"
                return Sign.FAILED, f"an episode ({place[1]}) gave another result {words}"
    return Sign.OK, f"two and {num} episodes at once give the same results as one after the other"


def _probe(subject: TrialWorld, at: int) -> str:
    return "gold" if subject.golds[at] else "spam" if "spam" in subject.scripts(at) else "no-op"


def _part(subject: TrialWorld, place: tuple[int, str]) -> tuple[Task, Policy]:
    return subject.tasks[place[0]], follow(subject.scripts(place[0])[place[1]])


async def check_elsewhere(subject: TrialWorld) -> tuple[Sign, str]:
    """Another process, with other hashes of texts and another date, plays the same episodes."""
    if subject.failed:
        return Sign.UNKNOWN, "not looked at: other points failed"
    places = [(at, name) for at in reversed(range(len(subject.tasks))) for name in subject.scripts(at)]
    alone = [without_terms(await subject.reference(*place)) for place in places]
    scripts = [(at, subject.scripts(at)[name]) for at, name in places]
    bench = subject.bench
    try:
        found = await play_elsewhere(bench.spec, bench.tasks, bench.tools, bench.seed, scripts)
    except (OSError, ValueError, TypeError, AttributeError, pickle.PicklingError) as fault:
        return Sign.UNKNOWN, f"it cannot be played in another process: {fault}"
    for (_, name), a, b in zip(places, alone, found, strict=True):
        if a != b:
            words = f"an episode ({name}) gave another result in another process: {first_difference(a, b)}"
            cure = "Sort what has no order, as sets, and take dates from the task"
            return Sign.FAILED, f"{words}. There hashes of texts, ids and the date are others. {cure}"
    return Sign.OK, f"{len(places)} episodes are the same with other hashes of texts, ids and another date"


async def check_leftovers(subject: TrialWorld) -> tuple[Sign, str]:
    """A world that was closed leaves no process, thread, descriptor, file or memory."""
    if "close" in subject.failed or "reset" in subject.failed:
        return Sign.UNKNOWN, "worlds do not begin, or do not close"
    if faults := subject.bench.worlds.close_faults:
        return Sign.FAILED, f"{faults.total()} episodes did not close: {next(iter(faults))}"
    places = [(0, _probe(subject, 0)), (0, "no-op")]
    async with own_temporary_folder() as folder:
        for _ in range(2):
            for place in places:
                await subject.bench.play(*_part(subject, place))
        before = count_held(folder)
        for at in range(_ROUNDS):
            subject.take(await subject.bench.play(*_part(subject, places[at % 2])))
        held = count_held(folder)
        for _ in range(5):
            if not _left(before, held):
                break
            await asyncio.sleep(_SETTLE_S / 5)
            held = count_held(folder)
    if left := _left(before, held):
        return Sign.FAILED, f"{_ROUNDS} episodes left {', '.join(left)}, after they were closed"
    return Sign.OK, "no process, thread, descriptor, file or memory is left"


def _left(before: Mapping[str, int], held: Mapping[str, int]) -> list[str]:
    grown = {name: held[name] - before[name] for name in before}
    return [
        f"{more} {name}"
        for name, more in grown.items()
        if more >= _ROUNDS // 2 * (_MEMORY_MIB * 2 if name == "MiB of memory" else 1)
    ]


# Another process: other hashes of texts, another id, another date.


async def play_elsewhere(
    env: EnvSpec, tasks: Sequence[Task], tools: Sequence[ToolDeclaration], seed: int, scripts: Sequence[Script]
) -> list[Played]:
    """The scripts played in a new process with another hash seed and its clock moved. Raises OSError, ValueError."""
    order = pickle.dumps((sys.path, env.model_dump(mode="json"), list(tasks), list(tools), seed, list(scripts)))
    with scratch("rlf-trial") as folder:
        asked, answered = _write_order(folder, order)
        path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
        command = [sys.executable, "-m", "rlf.apps.worlds.conditions", str(asked), str(answered)]
        environment = os.environ | {"PYTHONPATH": path, "PYTHONHASHSEED": "4242"}
        async with supervised(command, stdout=asyncio.subprocess.DEVNULL, stderr=None, env=environment) as process:
            await process.wait()
        if not answered.exists():
            raise ValueError("the process that played it again ended before")
        found: list[Played] = pickle.loads(answered.read_bytes())
        return found


def _write_order(folder: Path, order: bytes) -> tuple[Path, Path]:
    (folder / "sitecustomize.py").write_text(Path(clock.__file__).read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "asked").write_bytes(order)
    return folder / "asked", folder / "answered"


def _serve_scripts(asked: Path, answered: Path) -> None:
    path, dumped, tasks, tools, seed, scripts = pickle.loads(asked.read_bytes())
    sys.path[:] = path
    os.dup2(2, 1)
    limit_memory()

    async def play() -> list[Played]:
        async with open_bench(EnvSpec.model_validate(dumped), tasks, seed=seed, tools=tools, max_actions=1000) as bench:
            return [await bench.play(tasks[at], follow(actions)) for at, actions in scripts]

    written = pickle.dumps(asyncio.run(play()))
    answered.with_suffix(".new").write_bytes(written)
    answered.with_suffix(".new").rename(answered)
    os._exit(0)


def without_terms(played: Played) -> Played:
    """An episode without the scores of reward terms, which a process that plays the world alone does not have."""
    return replace(played, scores=tuple(pair for pair in played.scores if not pair[0].startswith("rewards.")))


# What is left behind.


@asynccontextmanager
async def own_temporary_folder() -> AsyncIterator[Path]:
    """Files that a world makes in the folder for temporary ones are in one of its own meanwhile."""
    before = os.environ.get("TMPDIR"), tempfile.tempdir
    with scratch("rlf-trial") as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
        try:
            yield folder
        finally:
            tempfile.tempdir = before[1]
            os.environ.pop("TMPDIR")
            if before[0] is not None:
                os.environ["TMPDIR"] = before[0]


def count_held(folder: Path) -> Mapping[str, int]:
    """What this process holds now, by its name in the plural."""
    gc.collect()
    with suppress(AttributeError):  # what is free goes back, or what is left would grow into it unseen
        ctypes.CDLL(None).malloc_trim(0)
    own = Path("/proc/self")
    with suppress(OSError):  # what ended is no child that is left
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return {
        "child processes": sum(len(one.read_text().split()) for one in own.glob("task/*/children")),
        "threads": len(list((own / "task").iterdir())),
        "file descriptors": len(list((own / "fd").iterdir())),
        "files": sum(len(names) + len(folders) for _, folders, names in os.walk(folder))
        + len(list(Path.cwd().iterdir())),
        "asyncio tasks": len(asyncio.all_tasks()),
        # Its own: pages of files come and go as the machine needs its memory.
        "MiB of memory": sum(int(_status(key).split()[0]) for key in ("RssAnon", "VmSwap")) // 1024,
    }


if __name__ == "__main__":
    _serve_scripts(Path(sys.argv[1]), Path(sys.argv[2]))
