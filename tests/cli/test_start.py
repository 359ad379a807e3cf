"""The program's entry, and errors of the system that are the user's to fix."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ENV = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
LATE = """
import signal, sys, types
module = types.ModuleType("rlf.cli.main")
def load(name):
    signal.raise_signal(signal.SIGINT)
    raise AttributeError(name)
module.__getattr__ = load
sys.modules["rlf.cli.main"] = module
from rlf.cli.start import main
main()
"""


def test_ctrl_c_while_the_commands_are_loaded_is_one_word_and_no_traceback():
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


DROPPED = """
import signal, sys, time, weakref
from rlf.cli.main import app
class Finalized:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
class Watched:
    pass
@app.command()
def drop(how: str):
    if how == "finalized":
        Finalized()
    else:
        watched = Watched()
        reference = weakref.ref(watched, lambda _: signal.raise_signal(signal.SIGINT))
        del watched
    time.sleep(600)
sys.argv[1:] = ["drop", sys.argv[1]]
from rlf.cli.start import main
main()
"""


@pytest.mark.parametrize("how", ["finalized", "watched"])
def test_ctrl_c_that_python_drops_comes_again(how):
    done = subprocess.run([sys.executable, "-c", DROPPED, how], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


NTH_CALL = """
import gc, signal, sys
left = int(sys.argv.pop(1))
def count(frame, event, argument):
    global left
    left -= 1
    if left == 0:
        signal.raise_signal(signal.SIGINT)
from rlf.cli.start import main
sys.setprofile(count)
try:
    main()
finally:
    sys.setprofile(None)
    assert gc.callbacks == []
"""


@pytest.mark.parametrize("number", [100, 1_000, 30_000, 100_000, 200_000, 300_000])
def test_ctrl_c_ends_a_check_at_whatever_call_it_comes(number):
    spec = Path(__file__).parents[2] / "specs" / "search.yaml"
    command = [sys.executable, "-c", NTH_CALL, str(number), "check", str(spec)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_the_program_starts_there():
    assert 'rlf = "rlf.cli.start:main"' in (Path(__file__).parents[2] / "pyproject.toml").read_text()


@pytest.mark.parametrize("command", [["runs", "list"], ["doctor"]])
def test_a_runs_folder_whose_name_is_too_long_is_named(command, rlf):
    result = rlf(*command, "--runs", "x" * 300)
    assert result.exit_code == 2
    assert "the name has 300 bytes; file systems take 255" in result.output


def test_a_current_folder_that_was_removed_is_said_in_one_line(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    start = "import os; os.rmdir(os.getcwd()); from rlf.cli.start import main; main()"
    command = [sys.executable, "-c", start, "doctor"]
    done = subprocess.run(command, cwd=gone, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "the current folder was removed" in done.stderr


@pytest.mark.parametrize("command", [["init"], ["schema", "--write"], ["tools", "import", "python", "json", "--out"]])
def test_a_folder_that_is_a_file_is_named_without_a_traceback(command, rlf, tmp_path):
    file = tmp_path / "notes.txt"
    file.touch()
    result = rlf(*command, str(file / "x"))
    assert result.exit_code == 2
    assert f"{file}/x: Not a directory. Name a file or folder that you may use." in result.output


def test_nothing_slow_is_loaded_before_ctrl_c_is_answered():
    look = "import sys; import rlf.cli.start; print('typing' in sys.modules, 'typer' in sys.modules)"
    done = subprocess.run([sys.executable, "-S", "-c", look], capture_output=True, text=True, check=True, env=ENV)
    assert done.stdout == "False False\n"


def test_the_help_loads_neither_an_event_loop_nor_a_web_server_nor_the_types_of_runs():
    look = """
import sys
from typer.testing import CliRunner
from rlf.cli import app
assert "trains the built-in example" in CliRunner().invoke(app, ["--help"]).output
late = ("asyncio", "fastapi", "rlf.types", "rlf.runs", "rlf.spec")
print([name for name in sys.modules if name in late or name.startswith(("rlf.types.", "rlf.runs.", "rlf.spec."))])
"""
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True, env=ENV)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("words", [("runs", "show", b"caf\xe9"), ("check", b"caf\xe9=1")])
def test_an_argument_that_is_not_utf_8_is_refused_in_words_whatever_lies_in_the_folder(words, tmp_path):
    for name in ("typing", "typer", "code"):  # as what a command starts by `python -m rlf` may find
        (tmp_path / f"{name}.py").write_text("raise SystemExit('mine')")
    command = [sys.executable, "-m", "rlf", *words]
    done = subprocess.run(command, capture_output=True, check=False, env=ENV, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.decode().startswith("'caf\ufffd")


def test_bytes_that_are_not_utf_8_are_read_as_replaced_characters():
    code = "import sys; from rlf.core.process import keep_streams; keep_streams(); print(ascii(sys.stdin.read()))"
    environment = os.environ | {"PYTHONUTF8": "0", "LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "utf-8:strict"}
    found = subprocess.run([sys.executable, "-c", code], input=b"a\xffb", capture_output=True, env=environment)
    assert found.stdout == b"'a\\ufffdb'\n", found.stderr


def test_a_limit_of_memory_that_holds_no_model_is_named_before_one_is_loaded(tmp_path):
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (300_000_000,) * 2); "
        "from rlf.cli.start import main; main()"
    )
    run = ["run", str(Path(__file__).parents[2] / "specs/search.yaml"), "--runs", str(tmp_path)]
    found = subprocess.run([sys.executable, "-c", code, *run], capture_output=True, text=True, timeout=300)
    assert (found.returncode, found.stdout) == (2, ""), found.stderr
    words = (
        "the limit of memory addresses (`ulimit -v`) is 0.3 GB; a model needs 2.1 GB. Raise it: `ulimit -v unlimited`."
    )
    assert found.stderr == words + "\n"
