"""Members of a sweep: their overrides, from values with commas or a file with grid and sets, and their check."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path

from rlf.core import Fault, RlfError, SpecError
from rlf.core import process as stops
from rlf.core.errors import Place
from rlf.engines.engine import Engine
from rlf.plan import Plan
from rlf.processes.child import start_apart
from rlf.runs.plans import CheckedSpec, check_spec
from rlf.spec.inputs import Datasets
from rlf.spec.layers import absolute
from rlf.spec.mistaken import unknown
from rlf.spec.nodes import Node, plain, show
from rlf.spec.overrides import Overrides
from rlf.spec.reader import read_file

MAX_MEMBERS = 1000
_OPENING, _CLOSING, _QUOTES = "[{(", "]})", "'\""


def members_of(overrides: Sequence[str], file: Path | None, *, commas: bool) -> tuple[list[str], list[Overrides]]:
    """Overrides that all members of a sweep share, and those of each; the last axis varies fastest.

    Args:
        overrides: `key=value`, and where `commas` is true `key=a,b` for one member each.
        file: YAML with `grid` (key: list of values), `sets` (list of mappings), or both.

    Raises:
        SpecError: the file is no such file.
        RlfError: there is nothing to sweep over, or too much.
    """
    choices = [alternatives(text) if commas else [text] for text in overrides]
    fixed = [texts[0] for texts in choices if len(texts) == 1]
    axes: list[list[Overrides]] = [[(text,) for text in texts] for texts in choices if len(texts) > 1]
    if file is not None:
        axes = [*_read_axes(file), *axes]
    if not axes:
        from rlf.core.mistakes import in_our_words

        for text in overrides:
            if commas and (meant := in_our_words("sweep", text)) != text:
                raise RlfError(f"got -m {text}, which is one value. Values have commas between them. Write -m {meant}.")
        raise RlfError("got -m and no value with a comma; there is nothing to sweep over. Write e.g. -m seed=0,1,2.")
    num_members = 1
    for axis in axes:
        num_members *= len(axis)
    if num_members > MAX_MEMBERS:
        raise RlfError(f"the sweep has {num_members} members; at most {MAX_MEMBERS} are allowed. Remove some values.")
    return fixed, [tuple(text for part in parts for text in part) for parts in product(*axes)]


def check_members(
    files: Sequence[Path], overrides: Sequence[str], members: Sequence[Overrides]
) -> list[tuple[Overrides, CheckedSpec]]:
    """Every member of a sweep. Raises SpecError with the faults of all, those that every member has once."""
    read: Datasets = {}
    checked: list[tuple[Overrides, CheckedSpec]] = []
    faulty: list[tuple[Overrides, tuple[Fault, ...]]] = []
    for own in members:
        try:
            checked.append((own, check_spec(files, [*overrides, *own], read)))
        except SpecError as error:
            faulty.append((own, error.faults))
    if faulty:
        raise SpecError(_gather_faults(faulty, len(members)))
    own_by_hash: dict[str, Overrides] = {}
    for own, found in checked:
        same = own_by_hash.setdefault(found.plan.plan_hash, own)
        if same is not own:
            message = f"{' '.join(same)} and {' '.join(own)} give the same results. Remove one of them."
            raise SpecError([Fault(Place("sweep"), "", message)])
    return checked


def _gather_faults(faulty: Sequence[tuple[Overrides, tuple[Fault, ...]]], num_members: int) -> list[Fault]:
    counts = Counter(fault for _, faults in faulty for fault in set(faults))
    common = [fault for fault, count in counts.items() if count == num_members]
    own = [
        Fault(fault.place, fault.path, f"with {' '.join(overrides)}: {fault.message}")
        for overrides, faults in faulty
        for fault in faults
        if counts[fault] < num_members
    ]
    return [*common, *own]


def name_axes(error: SpecError, overrides: Sequence[str]) -> SpecError:
    """The same faults, with `-m` named where an override was given values with commas, as a sweep is."""
    swept = {text.partition("=")[0]: text for text in overrides if len(alternatives(text)) > 1}
    return SpecError(
        Fault(fault.place, fault.path, f"{fault.message} To run once with each value: -m {swept[fault.path]}")
        if fault.place.file == "override" and fault.path in swept
        else fault
        for fault in error.faults
    )


def alternatives(override: str) -> list[str]:
    """`key=a` and `key=b` for `key=a,b`; commas in brackets and quotes are part of a value."""
    key, equals, value = override.partition("=")
    return [f"{key}={text}" for text in _split_values(value)] if equals else [override]


def _split_values(value: str) -> list[str]:
    parts, depth, quote = [""], 0, ""
    for character in value:
        if quote:
            quote = "" if character == quote else quote
        elif character in _QUOTES and not parts[-1].strip():
            quote = character
        else:
            depth += (character in _OPENING) - (character in _CLOSING)
        if character == "," and depth <= 0 and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts] if len(parts) > 1 else parts


def _read_axes(file: Path) -> list[list[Overrides]]:
    """A file's axes: its sets as one, then each key of its grid."""
    faults: list[Fault] = []
    found = read_file(absolute(file, Path.cwd()), None, faults)
    root = found[0] if found is not None else None
    axes: list[list[Overrides]] = []
    for key, child in (root.mapping if root is not None else {}).items():
        if key == "sets":
            axes.insert(0, _read_sets(child, faults))
        elif key == "grid":
            axes += _read_grid(child, faults)
        else:
            message = unknown(key, ["grid", "sets"])
            if child.items:
                message = f"got a list of values outside `grid`. Write `grid: {{{key}: [...]}}`."
            faults.append(child.fault(message, at_key=True))
    if root is not None and not root.mapping:
        faults.append(
            root.fault("the sweep is empty; expected `grid`, `sets` or both. Write e.g. `grid: {seed: [0]}`.")
        )
    if faults:
        raise SpecError(faults)
    return axes


def _read_sets(node: Node, faults: list[Fault]) -> list[Overrides]:
    wrong = [node] if not node.items else [item for item in node.items if not item.mapping]
    for item in wrong:
        message = f"got {show(plain(item))}; expected a list of mappings of overrides. "
        faults.append(item.fault(f"{message}Write e.g. `sets: [{{train.algorithm: rloo, seed: 1}}]`."))
    return [tuple(_to_overrides(item.mapping.items())) for item in node.items if item.mapping]


def _read_grid(node: Node, faults: list[Fault]) -> list[list[Overrides]]:
    if not node.mapping:
        message = f"got {show(plain(node))}; expected a mapping of keys to lists of values. "
        faults.append(node.fault(f"{message}Write e.g. `grid: {{seed: [0, 1]}}`."))
    for key, values in node.mapping.items():
        if not values.items:
            message = f"got {show(plain(values))}; expected a list of values. Write e.g. `{key}: [...]`."
            faults.append(values.fault(message))
    return [[tuple(_to_overrides([(key, item)])) for item in values.items] for key, values in node.mapping.items()]


def _to_overrides(values: Iterable[tuple[str, Node]]) -> list[str]:
    return [f"{key}={_to_yaml(plain(value))}" for key, value in values]


def _to_yaml(value: object) -> str:
    """A value as the YAML of an override: plain where text stays what it is, else JSON, which YAML takes."""
    simple = isinstance(value, str) and value.replace("_", "").replace("-", "").isalnum() and value[:1].isalpha()
    is_word = simple and str(value).lower() not in ("true", "false", "null")
    return str(value) if is_word else json.dumps(value, ensure_ascii=False)


# Each has cores, and where there are GPUs a GPU, of its own. Its numbers are those of a sweep that runs one after the
# other: it reads its plan from the lineage, as a sweep that is resumed does.

INTERRUPTED = 130
"""Exit code of a member that was stopped."""
_LOOK_S = 0.1

logger = logging.getLogger(__name__)


def find_gpus(plans: Sequence[Plan]) -> list[str]:
    """Names of the GPUs that this process may use, for CUDA_VISIBLE_DEVICES; none where no plan takes one."""
    if all(getattr(plan.spec.engine, "device", "auto") == "cpu" for plan in plans):
        return []
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip()]
    import torch

    return list(map(str, range(torch.cuda.device_count())))


def refuse_too_many(at_once: int, plans: Sequence[Plan]) -> None:
    """Raises RlfError for more members at once than this machine has places for."""
    if at_once > 1 and not all(isinstance(plan.spec.engine, Engine) and plan.spec.engine.SERVES for plan in plans):
        raise RlfError("--at-once: this engine starts processes of its own on every GPU. Leave the option out.")
    gpus, cores = find_gpus(plans), stops.usable_cores()
    most, of = (len(gpus), "GPU") if gpus else (cores, "core")
    if at_once > most:
        each = "each run takes one" if gpus else "each run takes one or more"
        raise RlfError(f"--at-once: got {at_once}; expected at most {most}: {most} {of}s are here, and {each}.")


def run_members(
    sweep_id: str, numbers: Sequence[int], at_once: int, gpus: Sequence[str], runs_folder: Path
) -> Iterator[tuple[int, int | None]]:
    """Runs members side by side: the number of each with None as it starts, and with its exit code as it ends.

    Those that run when the caller leaves are interrupted as by Ctrl-C, and waited for.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    waiting, free = list(reversed(numbers)), list(reversed(range(at_once)))
    running: dict[int, tuple[int, subprocess.Popen[bytes]]] = {}
    try:
        while waiting or running:
            while waiting and free:
                number, place = waiting.pop(), free.pop()
                shown = {"CUDA_VISIBLE_DEVICES": gpus[place]} if gpus else {}
                words = (str(runs_folder), sweep_id, str(number), str(os.getpid()), *map(str, cores[place::at_once]))
                command = [sys.executable, "-m", "rlf.apps.sweep.sweep", *words]
                child = start_apart(command, stdout=subprocess.DEVNULL, env=os.environ | shown)
                running[number] = (place, child)
                yield number, None
            for number, (place, child) in list(running.items()):
                if (code := child.poll()) is not None:
                    del running[number]
                    free.append(place)
                    yield number, code
            time.sleep(_LOOK_S)
    finally:
        for _, child in running.values():
            child.send_signal(signal.SIGINT)
        for _, child in running.values():
            child.wait()
