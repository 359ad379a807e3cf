"""The program as a process: what it loads, how it ends."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "numpy", "sqlalchemy", "transformers", "ray", "vllm", "openrlhf", "aiohttp", "datasets")
SPEC = Path(__file__).parents[2] / "specs" / "search.yaml"


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60)


@functools.cache
def loaded_by(*arguments: str) -> frozenset[str]:
    """The modules that a command loads."""
    code = """
import sys
from rlf.cli import main
try:
    main()
except SystemExit as end:
    print("exit", end.code)
print("loaded", *sys.modules)
"""
    result = python(code, *arguments)
    assert "exit 0" in result.stdout, result.stdout + result.stderr
    return frozenset(result.stdout.splitlines()[-1].split()[1:])


def test_help_loads_nothing_heavy() -> None:
    assert "Train a model as a spec says." in python("from rlf.cli import main; main()", "--help").stdout
    assert not loaded_by("--help") & {*HEAVY, "rich", "pydantic", "asyncio", "rlf.types"}
    assert not loaded_by("run", "--help") & set(HEAVY)


def test_check_never_loads_torch() -> None:
    assert not {"torch", "numpy"} & loaded_by("check", str(SPEC))


def test_check_loads_nothing_that_runs_a_plan() -> None:
    running = {"rlf.training.harness", "rlf.rollout", "rlf.rewards.function", "rlf.tools.execution.executor"}
    assert not loaded_by("check", str(SPEC)) & (running | {"rlf.lineage", "rlf.reports", "omegaconf", "rich"})


def test_version() -> None:
    assert python("from rlf.cli import main; main()", "--version").stdout == "rlf 0.1.0\n"


def test_bad_input_exits_with_2_and_no_traceback() -> None:
    result = python("from rlf.cli import main; main()", "check", "nothing.yaml")
    assert result.returncode == 2
    assert result.stderr == "nothing.yaml: no such file. Check the path.\n"


@pytest.mark.parametrize("prints", ["print", "stdout_console().print"])
def test_a_reader_that_goes_away_ends_the_program_quietly(prints: str) -> None:
    code = f"""
import sys
from rlf.cli import main, app
from rlf.cli.output import stdout_console

@app.command()
def flood() -> None:
    for _ in range(10_000):
        {prints}("x" * 80)

sys.argv[1:] = ["flood"]
main()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=30) == 141


def test_output_that_the_terminal_cannot_show_does_not_fail() -> None:
    result = subprocess.run(
        [sys.executable, "-c", "from rlf.cli import main; main()", "--help"],
        capture_output=True,
        env={"PYTHONIOENCODING": "ascii", "PATH": ""},
        timeout=60,
    )
    assert result.returncode == 0
