"""Whether OpenRLHF accepts the options of a plan, by its own parser if it is installed, else by rlf's list."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rlf.core import Fault, nearest
from rlf.core.files import remember, stamp_file
from rlf.engines.openrlhf.compile.argv import OPTIONS, argv
from rlf.engines.openrlhf.compile.options import TAKES
from rlf.engines.openrlhf.compile.refused import EFFECT_KEYS, REFUSED, find_idle
from rlf.engines.openrlhf.job.folder import Job
from rlf.engines.openrlhf.settings import OpenRlhfSettings, openrlhf_settings
from rlf.engines.openrlhf.versions import VERSION, find_python_complaint
from rlf.spec import LoadedSpec
from rlf.spec.load import reads
from rlf.spec.nodes import KeyPath

_SCRIPT = Path(__file__).with_name("parse.py")
_TIMEOUT_S = 60
_NAMED = re.compile(r"argument --(\S+):")


@dataclass(frozen=True, slots=True)
class Parsed:
    """Result of OpenRLHF's parser."""

    error: str
    """Of the parser, or of what it asserts after; empty where there is none."""
    said: tuple[str, ...]
    """What it prints, line by line: what it changes or recommends."""
    arguments: Mapping[str, Any]
    """The arguments that training would get; empty after an error."""
    takes: Mapping[str, str]
    """Every option that it knows, without dashes, with what follows it."""


def is_installed() -> bool:
    """Whether OpenRLHF is on this machine, with or without what it needs to run."""
    return importlib.util.find_spec("openrlhf") is not None


@cache
def installed_version() -> str:
    """E.g. `0.11.2`."""
    return importlib.metadata.version("openrlhf")


def parse_options(options: Sequence[str], python: Path | None = None) -> Parsed:
    """OpenRLHF's own reading of options, where abbreviated ones are errors.

    Args:
        python: an interpreter with the OpenRLHF that rlf is made for; None: this one, which has one.
    """
    asked = list(options)
    if python is None:
        folder = Path(str(importlib.metadata.distribution("openrlhf").locate_file("openrlhf")))
        version, stamp = installed_version(), stamp_file(folder / "cli" / "train_ppo_ray.py")
    else:
        version, stamp = VERSION, stamp_file(python)
    key = ["openrlhf", version, stamp, asked]
    values = _run_parser(asked, python) if stamp is None else remember(key, lambda: _run_parser(asked, python))
    takes = {flag.removeprefix("--"): words.removesuffix(" 1") for flag, words in values["options"].items()}
    return Parsed(values["error"], tuple(values["said"]), values["arguments"] or {}, takes)


def _run_parser(options: list[str], python: Path | None) -> dict[str, Any]:
    """In a process of its own, since the parser's modules are replaced there."""
    command = [sys.executable if python is None else str(python), "-P", str(_SCRIPT)]
    done = subprocess.run(
        command, input=json.dumps(options), capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, f"OpenRLHF's parser cannot run: {done.stderr}"
    values: dict[str, Any] = json.loads(done.stdout)
    return values


@reads("engine.extra_flags", *EFFECT_KEYS)
def find_flag_faults(loaded: LoadedSpec) -> Iterator[Fault]:
    """Faults of `engine.extra_flags` whatever the other options are."""
    emitted = {option.flag: option for option in OPTIONS}
    for flag, path, value in _extra(openrlhf_settings(loaded.spec).extra_flags):
        if flag in emitted:
            keys, note = emitted[flag].keys.split(), emitted[flag].note
            why = f": {note}" if note else ""
            fix = f", from {keys[0]}. Write that instead." if keys else f"{why}. Remove it."
            yield loaded.fault(path, f"rlf writes --{flag} itself{fix}")
        elif flag in REFUSED:
            yield loaded.fault(path, f"--{flag} is not for rlf's jobs: {REFUSED[flag]}.")
        elif flag not in TAKES and (not is_installed() or installed_version() == VERSION):
            yield _unknown_option_fault(loaded, path, flag, TAKES)
        elif flag in TAKES and (complaint := _of_wrong_kind(flag, value)):
            yield loaded.fault(path, complaint)
        elif value not in (None, False) and (idle := find_idle(flag, loaded.spec)):
            yield loaded.fault(path, f"--{flag} would have no effect: {idle}.")


def check_options(loaded: LoadedSpec, python: Path | None = None) -> tuple[list[Fault], list[Fault]]:
    """Faults and warnings of the whole list of options of a spec that has no other fault.

    Args:
        python: an interpreter with the OpenRLHF that rlf is made for, asked where this one has none.
    """
    engine = openrlhf_settings(loaded.spec)
    warnings: list[Fault] = []
    is_here = is_installed()
    if not is_here and python is None:
        message = f"OpenRLHF is not installed: its options were checked only against rlf's list for {VERSION}. "
        complaint = find_python_complaint()
        fix = f"Run `pip install --no-deps openrlhf=={VERSION}` to have its own parser check them."
        if complaint is not None:
            fix = f"{complaint}. Use an older Python to have its own parser check them, and to run the job."
        return [], [loaded.fault(("engine", "kind"), message + fix)]
    parsed = parse_options(argv(loaded.spec, Job(Path("/job"), Path("/job"))), None if is_here else python)
    if is_here and installed_version() != VERSION:
        message = f"OpenRLHF {installed_version()} is installed; rlf is made for {VERSION}. Install that."
        warnings.append(loaded.fault(("engine", "kind"), message))
    stated = [loaded.fault(("engine", "kind"), f"OpenRLHF says: {line}") for line in parsed.said]
    return list(_parser_faults(loaded, engine, parsed)), [*warnings, *stated]


def _parser_faults(loaded: LoadedSpec, engine: OpenRlhfSettings, parsed: Parsed) -> Iterator[Fault]:
    unknown = [(flag, path) for flag, path, _ in _extra(engine.extra_flags) if flag not in parsed.takes]
    for flag, path in unknown:
        yield _unknown_option_fault(loaded, path, flag, parsed.takes)
    if not parsed.error or unknown:
        return
    named = _NAMED.match(parsed.error)
    paths = {flag: path for flag, path, _ in _extra(engine.extra_flags)}
    path = paths.get(named[1], ("engine",)) if named else ("engine",)
    yield loaded.fault(path, f"OpenRLHF's parser refuses the job: {parsed.error}. Change it, or what it names.")


def _extra(flags: Mapping[str, Any], path: KeyPath = ("engine", "extra_flags")) -> Iterator[tuple[str, KeyPath, Any]]:
    """Each option with the place where the spec says it."""
    for key, value in flags.items():
        here = (*path, key)
        if isinstance(value, Mapping):
            yield from _extra(value, here)
        else:
            yield ".".join(map(str, here[2:])), here, value


def _unknown_option_fault(loaded: LoadedSpec, path: KeyPath, flag: str, known: Mapping[str, str]) -> Fault:
    whole = [name for name in known if name.startswith(flag)]
    close = f"; did you mean {whole[0]!r}?" if len(whole) == 1 else nearest(flag, list(known))
    return loaded.fault(path, f"OpenRLHF has no option {flag!r}{close or '.'} Write its whole name, or remove it.")


def _of_wrong_kind(flag: str, value: Any) -> str | None:
    """The fault of a value of the wrong kind; its text is the parser's to judge."""
    takes = TAKES[flag]
    if takes == "switch":
        fix = "is a switch. Write true, or remove it."
        return None if isinstance(value, bool | None) else f"got {value!r}; --{flag} {fix}"
    if isinstance(value, bool):
        return f"got {str(value).lower()}; --{flag} takes a value ({takes}). Write it."
    if isinstance(value, list | tuple) and " " not in takes:
        return f"got a list; --{flag} takes one value ({takes}). Write it alone."
    return None
