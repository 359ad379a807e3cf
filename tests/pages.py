"""The commands of pages, run in order and as they stand, each page in a folder of its own with real processes.

A page's named blocks become files. A page gets the shipped specs, and a run if it names `latest` before a command of
it has made one. What else a command needs is said beside it, `(needs ...)`, and is in `GIVEN` or in `MISSING`; words
in CAPITALS are the reader's to fill in, and are in `FILLED` or in `MISSING` too. One that is `(stays open)` is open
until the next of these.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rlf.apps.openrlhf.rehearsal_place import rehearsal_environment

ROOT = Path(__file__).parents[1]
PAGES = [
    path
    for path in [ROOT / "AGENTS.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if path.parent != ROOT / "docs/reference"
]
MISSING = {
    "needs a GPU": "no machine of the tests has one",
    "needs a GPU and the Hub": "neither is there",
    "needs a GPU and your files": "neither is there",
    "needs a network": "tests leave this machine by no address",
    "needs the Hub": "tests download nothing",
    "needs the Hub's rows": "tests download nothing",
    "needs a clone of Search-R1": "tests download nothing",
    "needs a clone of RL-Factory": "tests download nothing",
    "needs its rows": "tests download nothing; tests/apps/bench has rows of its own",
    "needs bfcl": "an environment of its own from PyPI; tests/apps/bench/test_bfcl.py has a stand-in",
    "needs tau2": "an environment of its own from PyPI; benchmarks/bench_tau2.py",
    "needs bfcl, tau2 and an agent of yours": "as for bfcl and tau2",
    "needs agentdojo": "an environment of its own from PyPI",
    "needs openai": "not in rlf's environment; tests/apps/serve/agents has it in one of its own",
    "needs langgraph": "not in rlf's environment; `make foreign` has it",
    "needs vLLM": "4 GB; `python benchmarks/rehearsals.py` has it",
    "needs a server": "of a real model",
    "needs a Ray cluster": "other machines; tests/apps/openrlhf/test_cluster.py has a stand-in for its job server",
    "needs a Ray cluster, and a certificate that names your host": "as above; test_ingest.py makes certificates",
    "needs your judge": "a real model",
    "needs a judge and your labels": "a real model, and a person",
    "needs the page": "its address is printed, and its token; tests/apps/web asks the same",
    "needs PostgreSQL": "with a database of the reader's; tests/lineage has a server of its own",
    "needs a run that succeeded": "takes minutes of training; benchmarks/cold_start.py",
    "needs the file that the search wrote": "by a model that writes prompts; tests/apps/prompt has a stand-in",
    "fill in NAME": "of a real model",
    "fill in URL": "of a real model",
    "fill in RUN": "seeds of an arm; tests/reports compares some",
    "fill in SWEEP": "tests/apps/sweep/test_sweep.py",
}
"""What no test runs, and why, by what the pages say. `test_what_is_not_run_has_a_reason` holds it against them."""
REHEARSALS = ("needs a network the first time", "needs the line above")
"""Of commands for the environment of rehearsals, which `make test` makes where it can be had."""
_FILE = re.compile(r"^ *```\w+ (?P<name>[\w./-]+)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)
_PROGRAMS = ("rlf", "cd", "python", "cat", "mkdir", "export", "createdb", "curl", "echo", "vllm", "pip", "openssl")
_REHEARSING = "~/.cache/rlf/rehearse/KEY/bin/"
_OPEN = "stays open"
_MARK = re.compile(rf"\((needs [^)]+|{_OPEN})\)")
_BLANK = re.compile(r"(?<![\w$/{-])[A-Z]{3,}\b(?!:)")
_LIMIT_S = 3000.0
_OPEN_S = 5.0
"""For how long one that stays open is watched after its first words."""
_SERVER = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("lights")

@server.tool()
def switch(name: str) -> str:
    \"\"\"Switch a light.\"\"\"
    return "on"

@server.tool()
def score() -> float:
    \"\"\"The score of the state.\"\"\"
    return 1.0

server.run()
"""
_FIRST = "rlf run specs/search.yaml train.steps=2 eval.limit=16"


def _give_table(folder: Path) -> None:
    rows = (f"ann{n},{('rome', 'oslo', 'kiel')[n % 3]},{1900 + n}\n" for n in range(40))
    (folder / "people.csv").write_text("name,town,year\n" + "".join(rows))


def _give_server(folder: Path) -> None:
    (folder / "server.py").write_text(_SERVER)


GIVEN: dict[str, Callable[[Path], None]] = {"needs your table": _give_table, "needs your server": _give_server}
"""What a page's folder gets where the page needs it."""


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
            elif line.split()[:1] and line.split()[0].removeprefix(_REHEARSING) in _PROGRAMS:
                yield line + (above if not mark else "")


def why_not(line: str) -> str:
    """What a command needs that no clone has, or that it stays open; or nothing."""
    command, _, comment = line.partition(" #")
    mark = _MARK.search(comment)
    blank = _BLANK.search(re.sub(r"'[^']*'|\"[^\"]*\"", "", command))
    return mark.group(1) if mark else f"fill in {blank.group()}" if blank else ""


def fill_in(line: str) -> str:
    """A command of the environment of rehearsals with the folder of this one."""
    return line.replace(_REHEARSING, f"{rehearsal_environment().folder}/bin/")


def what_lacks(line: str) -> str | None:
    """Why a command is not run by any test; None: it is run."""
    why = why_not(line)
    if why in REHEARSALS:
        return None if rehearsal_environment().is_ready(vllm=False) else "the environment could not be made"
    return MISSING[why] if why and why != _OPEN and why not in GIVEN else None


def write_files_of(text: str, folder: Path) -> None:
    """Writes a page's named blocks, but for tool files that a command of the page writes."""
    writes_tools = any(line.startswith("rlf tools import") for line in commands_of(text))
    for found in _FILE.finditer(text):
        path = folder / found["name"]
        if not (writes_tools and path.parent.name == "tool_specs"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(found["text"], encoding="utf-8")


def run_page(page: Path, folder: Path) -> Iterator[tuple[str, str]]:
    """Each command that can be run with how it failed, or nothing; folder and variables are kept for the next."""
    text = page.read_text(encoding="utf-8")
    for name in ("specs", "tool_specs", "reward_specs", "benchmarks", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    write_files_of(text, folder)
    lines = [line for line in commands_of(text) if what_lacks(line) is None]
    for need in {why_not(line) for line in lines} & GIVEN.keys():
        GIVEN[need](folder)
    run = next((at for at, line in enumerate(lines) if line.startswith(("rlf run ", "rlf climb "))), len(lines))
    if any("latest" in line for line in lines[:run]):
        lines = [_FIRST] * (1 + any("latest~1" in line for line in lines[:run])) + lines
    state = folder / ".state"
    state.write_text(f"export PATH={Path(sys.executable).parent}:$PATH\n")
    opened = list[subprocess.Popen[bytes]]()
    try:
        for line in lines:
            yield line, _run_line(fill_in(line), folder, state, opened)
    finally:
        _end(opened)


def _run_line(line: str, folder: Path, state: Path, opened: list[subprocess.Popen[bytes]]) -> str:
    """How a command failed; one that stays open prints something and is there still, and ends with the next."""
    stays = why_not(line) == _OPEN
    if stays:
        _end(opened)
    output = folder / ".output"
    script = f"source {state}\n{line}\nended=$?; {{ export -p; echo cd $PWD; }} > {state}; exit $ended"
    with output.open("w") as written:
        place = {"cwd": folder, "stdin": subprocess.DEVNULL, "stdout": written, "stderr": written}
        shell = subprocess.Popen(["bash", "-c", script], start_new_session=True, **place)
    opened.append(shell)
    until = time.monotonic() + _LIMIT_S
    while shell.poll() is None and time.monotonic() < until:
        if stays and output.stat().st_size:
            until, stays = time.monotonic() + _OPEN_S, False
        time.sleep(0.05)
    if shell.returncode == 0 or (shell.returncode is None and why_not(line) == _OPEN):
        return ""
    return f"exit {shell.returncode}: {output.read_text()[-2000:]}"


def _end(opened: list[subprocess.Popen[bytes]]) -> None:
    while opened:
        shell = opened.pop()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
