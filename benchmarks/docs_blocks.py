"""Runs the commands of pages in order, as they stand, each page in a new folder: `-m benchmarks.docs_blocks PAGE`.

A page's named blocks become files. Pages about the shipped specs get these; so does one that names `latest` before any
command of it made a run get one. What needs another machine (a cluster, a GPU, a key) is named in `_ELSEWHERE`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
_FILE = re.compile(r"^ *```\w+ (?P<name>[\w./-]+)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)
_COMMANDS = re.compile(r"^```(?:console|sh|bash)\n(.*?)^```$|^((?:    \S.*\n)+)", re.MULTILINE | re.DOTALL)
_PROGRAMS = ("rlf", "cd", "python", "cat", "mkdir", "export")
_ELSEWHERE = re.compile(
    r"\b[A-Z]{3,}\b|--endpoint|--vllm|rlf web|rlf serve|rlf chat|env play|--setup|gs://|MODEL|\.\.\."
)
"""Placeholders, servers that do not end, and what asks for another machine: printed, and not run."""
_LIMIT_S = 900.0
_FIRST = "rlf run specs/search.yaml train.steps=2 eval.limit=16"


def commands_of(text: str) -> Iterator[str]:
    """The command lines of a page, in order."""
    bare = _FILE.sub("", text)
    for block, indented in _COMMANDS.findall(bare):
        lines = (block or re.sub("^    ", "", indented, flags=re.MULTILINE)).replace("\\\n", " ").splitlines()
        yield from (line.strip() for line in lines if line.split()[:1] and line.split()[0] in _PROGRAMS)


def write_files_of(text: str, folder: Path) -> None:
    """Writes a page's named blocks, but for tool files that a command of the page writes."""
    writes_tools = any(line.startswith("rlf tools import") for line in commands_of(text))
    for found in _FILE.finditer(text):
        path = folder / found["name"]
        if not (writes_tools and path.parent.name == "tool_specs"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(found["text"], encoding="utf-8")


def try_page(page: Path, folder: Path) -> list[tuple[str, str, float]]:
    """Each command with how it ended and its seconds."""
    text = page.read_text(encoding="utf-8")
    for name in ("specs", "tool_specs", "reward_specs", "benchmarks", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    write_files_of(text, folder)
    lines = list(commands_of(text))
    run = next((at for at, line in enumerate(lines) if line.startswith(("rlf run ", "rlf climb "))), len(lines))
    if any("latest" in line for line in lines[:run]):
        lines = [_FIRST] * (1 + any("latest~1" in line for line in lines[:run])) + lines
    done, at = list[tuple[str, str, float]](), folder
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for line in lines:
        if _ELSEWHERE.search(re.sub(r"'[^']*'", "", line.partition(" #")[0])):
            done.append((line, "not run", 0.0))
            continue
        if line.startswith("cd "):
            at = at / line.split()[1]
            continue
        began = time.monotonic()
        try:
            ended = subprocess.run(
                ["bash", "-c", line], cwd=at, env=environment, capture_output=True, text=True, timeout=_LIMIT_S
            )
            end = "ok" if ended.returncode == 0 else f"exit {ended.returncode}: {(ended.stderr or ended.stdout)[-300:]}"
        except subprocess.TimeoutExpired:
            end = f"not over in {_LIMIT_S:g} s"
        done.append((line, end.strip(), time.monotonic() - began))
    return done


def main(names: list[str]) -> int:
    """Prints a line for each command; 1 where one failed."""
    failed = 0
    for name in names:
        with tempfile.TemporaryDirectory() as place:
            print(f"# {name}", flush=True)
            for line, end, seconds in try_page(ROOT / name, Path(place)):
                failed += end not in ("ok", "not run")
                print(f"  {end:8} {seconds:6.1f} s  {line}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
