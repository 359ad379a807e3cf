"""The program as a process: what it loads, how it ends."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

import pytest

from rlf.cli.arguments import activation_hint

HEAVY = ("torch", "numpy", "sqlalchemy", "transformers", "ray", "vllm", "openrlhf", "aiohttp", "datasets")
SPEC = Path(__file__).parents[2] / "specs" / "search.yaml"


def python(code: str, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=240)


@functools.cache
def loaded_by(*arguments: str, cwd: Path | None = None) -> frozenset[str]:
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
    result = python(code, *arguments, cwd=cwd)
    assert "exit 0" in result.stdout, result.stdout + result.stderr
    return frozenset(result.stdout.splitlines()[-1].split()[1:])


def test_help_loads_nothing_heavy() -> None:
    assert "Train a model as a spec says." in python("from rlf.cli import main; main()", "--help").stdout
    lasting = {"hashlib", "html", "json", "sqlite3", "tempfile"}  # each takes a tenth of the help's time
    assert not loaded_by("--help") & {*HEAVY, *lasting, "rich", "pydantic", "asyncio", "rlf.types"}
    assert not loaded_by("run", "--help") & set(HEAVY)


def test_check_never_loads_torch() -> None:
    assert not {"torch", "numpy"} & loaded_by("check", str(SPEC))


def test_check_loads_nothing_that_runs_a_plan_also_where_runs_were_made(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "rlf.db").write_bytes(b"no database: whoever opens it fails")
    running = {"rlf.training.harness", "rlf.rollout", "rlf.rewards.function", "rlf.tools.execution.executor"}
    loaded = loaded_by("check", str(SPEC), cwd=tmp_path)
    assert not loaded & (running | {"rlf.lineage", "rlf.reports", "omegaconf", "rich"})


def test_where_rlf_is_no_command_of_the_shell_the_next_commands_say_how_it_becomes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", "/nowhere")
    assert activation_hint() == ""  # no environment that could be activated
    (tmp_path / "bin" / "activate").touch()
    assert activation_hint() == f"\n  (to type `rlf` in this shell: source {tmp_path}/bin/activate)"
    (tmp_path / "bin" / "rlf").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    assert activation_hint() == ""


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


@pytest.mark.parametrize("words", [["--help"], ["check", "--help"], ["schema", "spec"], ["check", str(SPEC)]])
def test_an_output_that_cannot_be_written_is_named_as_such(words: list[str]) -> None:
    start = [sys.executable, "-c", "from rlf.cli.start import main; main()", *words]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(start, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert subprocess.run([*start[:3], "check", "no"], stderr=full, check=False).returncode == 2
    words_of_disk = "the output cannot be written: No space left on device. Make room, or send it elsewhere (`> FILE`)."
    assert (done.returncode, done.stderr) == (1, f"{words_of_disk}\n")


@pytest.mark.parametrize("closes", ["os.close(1)", "sys.stdout.close()", "os.closerange(1, 3)"])
def test_what_closes_the_output_ends_no_command(closes: str) -> None:
    code = f"""
import os, sys
from rlf.cli import main, app

@app.command()
def close() -> None:
    {closes}
    print("all the same")

sys.argv[1:] = ["close"]
main()
"""
    done = python(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "all the same\n", "")


def test_a_command_that_is_started_without_streams_opens_them_elsewhere() -> None:
    code = f"""
import os, sys
os.closerange(0, 3)
sys.stdin = sys.stdout = sys.stderr = None
from rlf.cli import main
sys.argv[1:] = ["check", {str(SPEC)!r}]
try:
    main()
except SystemExit as end:
    null = os.stat(os.devnull)
    os._exit(end.code or 7 * any(not os.path.samestat(os.fstat(number), null) for number in range(3)))
"""
    assert python(code).returncode == 0


def test_output_that_the_terminal_cannot_show_does_not_fail() -> None:
    result = subprocess.run(
        [sys.executable, "-c", "from rlf.cli import main; main()", "--help"],
        capture_output=True,
        env={"PYTHONIOENCODING": "ascii", "PATH": ""},
        timeout=60,
    )
    assert result.returncode == 0
