"""Runs the commands of pages in order, as they stand, each page in a new folder: `-m benchmarks.docs_blocks [PAGE]`.

A page's named blocks become files. Pages about the shipped specs get these; one that names `latest` before a command
of it made a run gets one. A comment `(needs ...)` behind a command, or above the rest of its block, says why it is not
run here; so do words in CAPITALS, which a reader fills in. One that is `(stays open)` is open until the next of these.
`--list` prints what would be done.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
_FILE = re.compile(r"^ *```\w+ (?P<name>[\w./-]+)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)
_PROGRAMS = ("rlf", "cd", "python", "cat", "mkdir", "export", "createdb", "curl", "echo", "vllm", "pip")
_OPEN = "stays open"
_MARK = re.compile(rf"\((needs [^)]+|{_OPEN})\)")
_BLANK = re.compile(r"(?<![\w$/{-])[A-Z]{3,}\b")
_LIMIT_S = 600.0
_FIRST = "rlf run specs/search.yaml train.steps=2 eval.limit=16"


def _shell_blocks(text: str) -> Iterator[list[str]]:
    """The lines of each block of commands: fenced as console, sh or bash, or indented and begun by a program."""
    fence, block = "", list[str]()
    for line in [*_FILE.sub("", text).replace("\\\n", " ").splitlines(), ""]:
        if line.lstrip().startswith("```"):
            fence = "" if fence else line.strip()
        elif fence in ("```console", "```sh", "```bash") or (not fence and line.startswith("    ")):
            block.append(line.strip())
            continue
        if block:
            yield block
            block = []


def commands_of(text: str) -> Iterator[str]:
    """The command lines of a page, in order, each with its mark."""
    for block in _shell_blocks(text):
        above = ""
        for line in block:
            mark = _MARK.search(line)
            if line.startswith("#") and mark:
                above = f"  # {mark.group()}"
            elif line.split()[:1] and line.split()[0] in _PROGRAMS:
                yield line + (above if not mark else "")


def why_not(line: str) -> str:
    """Why a command of a page does not run on a machine without a GPU, a network and a reader's files; or nothing."""
    command, _, comment = line.partition(" #")
    mark = _MARK.search(comment)
    blank = _BLANK.search(re.sub(r"'[^']*'|\"[^\"]*\"", "", command))
    return mark.group(1) if mark else f"fill in {blank.group()}" if blank else ""


def write_files_of(text: str, folder: Path) -> None:
    """Writes a page's named blocks, but for tool files that a command of the page writes."""
    writes_tools = any(line.startswith("rlf tools import") for line in commands_of(text))
    for found in _FILE.finditer(text):
        path = folder / found["name"]
        if not (writes_tools and path.parent.name == "tool_specs"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(found["text"], encoding="utf-8")


def try_page(page: Path, folder: Path) -> Iterator[tuple[str, str, float]]:
    """Each command with how it ended and its seconds; folder and variables are kept from one to the next."""
    text = page.read_text(encoding="utf-8")
    for name in ("specs", "tool_specs", "reward_specs", "benchmarks", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    write_files_of(text, folder)
    lines = list(commands_of(text))
    run = next((at for at, line in enumerate(lines) if line.startswith(("rlf run ", "rlf climb "))), len(lines))
    if any("latest" in line for line in lines[:run]):
        lines = [_FIRST] * (1 + any("latest~1" in line for line in lines[:run])) + lines
    state = folder / ".state"
    state.write_text(f"export PATH={Path(sys.executable).parent}:$PATH\n")
    groups = list[int]()
    try:
        for line in lines:
            if (why := why_not(line)) and why != _OPEN:
                yield line, f"not run: {why}", 0.0
            else:
                yield line, *_try_line(line, folder, state, groups)
    finally:
        _end(groups)


def _try_line(line: str, folder: Path, state: Path, groups: list[int]) -> tuple[str, float]:
    """How a command ended; one that stays open has to print something and to be there still, and ends with the next."""
    stays = why_not(line) == _OPEN
    if stays:
        _end(groups)
    output = folder / ".output"
    script = f"source {state}\n{line}\nended=$?; {{ export -p; echo cd $PWD; }} > {state}; exit $ended"
    began = time.monotonic()
    with output.open("w") as written:
        shell = subprocess.Popen(
            ["bash", "-c", script],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=written,
            start_new_session=True,
        )
    groups.append(shell.pid)
    while shell.poll() is None and time.monotonic() - began < _LIMIT_S:
        if stays and output.stat().st_size:
            time.sleep(5)
            break
        time.sleep(0.2)
    seconds = time.monotonic() - began
    if shell.poll() is None:
        return ("ok, open" if stays else f"not over in {_LIMIT_S:g} s"), seconds
    return ("ok" if shell.returncode == 0 else f"exit {shell.returncode}: {output.read_text()[-300:]}".strip()), seconds


def _end(groups: list[int]) -> None:
    while groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(groups.pop(), signal.SIGKILL)


def main(names: list[str]) -> int:
    """Prints a line for each command; 1 where one failed."""
    failed = 0
    paths = [ROOT / name for name in names if name != "--list"] or [
        path
        for path in [ROOT / "AGENTS.md", *sorted((ROOT / "docs").rglob("*.md"))]
        if path.parent.name != "reference" and any(commands_of(path.read_text(encoding="utf-8")))
    ]
    for path in paths:
        print(f"# {path.relative_to(ROOT)}", flush=True)
        if "--list" in names:
            for line in commands_of(path.read_text(encoding="utf-8")):
                print(f"  {why_not(line) or 'run':24} {line}")
            continue
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
            for line, end, seconds in try_page(path, Path(place)):
                failed += not end.startswith(("ok", "not run"))
                print(f"  {end:8} {seconds:6.1f} s  {line}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
