"""Pythons that have imported already what takes seconds: `warm_python(...)` is a program to start in place of `python`.

What it starts, a file, a module or a text, is forked from a process that has the modules, with the streams,
descriptors, environment and folder of the one that asks; it dies with it, and its exit code comes back. Its process id
is not that of the program: processes whose id or start is the point are started plainly.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import hashlib
import marshal
import os
import runpy
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import weakref
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

COMMON = (
    "rlf.cli.main",
    "rlf.cli.run",
    "rlf.runs.start",
    "rlf.engines.local.engine",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.qwen3.modeling_qwen3",
    *("fastapi.openapi.models", "mcp.server.mcpserver", "peft", "scipy.stats"),
)
"""What a run and much of what tests use import."""
MCP = ("rlf.cli.main", "rlf.apps.offer.tools", "mcp.server.mcpserver")
"""What servers on the SDK import, ours among them."""
_MAX_BYTES = 1 << 17
_FREE = 400
"""Descriptors from here on are nobody's."""
_PROGRAM = """\
#!{python} -IS
import _signal as signal, _socket as socket, marshal, posix as os, sys
passed = [number for number in map(int, os.listdir("/proc/self/fd")) if number > 2]
def is_passed(number):
    try:
        return os.get_inheritable(number)
    except OSError:
        return False
passed = [0, 1, 2, *filter(is_passed, passed)]
asked = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
asked.connect({address!r})
place = dict(argv=sys.argv[1:], environ=os.environ, folder=os.getcwd(), parent=os.getppid(), passed=passed)
numbers = b"".join(number.to_bytes(4, sys.byteorder) for number in passed)
asked.sendmsg([marshal.dumps(place)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)])
pid = int(asked.recv(64))
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, _: os.kill(pid, number))
null = os.open("/dev/null", os.O_RDWR)
for number in passed:
    os.dup2(null, number)
code = int(asked.recv(64) or -9)
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if code != -9 else None
    os.kill(os.getpid(), -code)
os._exit(code)
"""
"""With what the interpreter has inside: what it would import takes more than the rest of its life."""

_SESSION = "RLF_TEST_SESSION"
_ENVIRON: dict[str, str] = {}
"""That of this process before any test."""


def share_session() -> None:
    """Makes this process the one with which all that is warm ends; those that it starts share what is warm."""
    if _SESSION not in os.environ:
        folder = tempfile.mkdtemp(prefix="rlf-warm-")
        os.environ[_SESSION] = f"{os.getpid()}:{folder}"
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _ENVIRON.update(os.environ)


def warm_python(*modules: str, python: str = sys.executable) -> str:
    """The program; what it forks from is started once, by the first process that asks. Linux alone has such a one."""
    if sys.platform != "linux":
        return python
    owner, _, shared = _ENVIRON[_SESSION].partition(":")
    folder = Path(shared) / hashlib.sha256(repr((python, modules)).encode()).hexdigest()[:12]
    program = folder / "python"
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            folder.mkdir()
            _start_server(folder / "asked", [python, __file__, owner, str(folder / "asked"), *modules])
            program.write_text(_PROGRAM.format(python=sys.executable, address=str(folder / "asked")))
            program.chmod(0o755)
    return str(program)


def _start_server(address: Path, command: list[str]) -> None:
    """Returns when it listens; it ends with the process that owns the session. Ctrl-C is not ignored, as it is where
    that process was started in the background.
    """
    environ = _ENVIRON | {"PYTHONPATH": str(Path(__file__).parents[1])}
    nothing = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1)]
    heard = [signal.SIGINT]
    pid = os.posix_spawnp(command[0], command, environ, file_actions=nothing, setsid=True, setsigdef=heard)
    while not address.exists():
        assert os.waitpid(pid, os.WNOHANG) == (0, 0), command
        time.sleep(0.02)


def _serve(owner: int, address: str, modules: list[str]) -> dict[str, Any]:
    """Forks for each that asks, until the owner has ended. Returns in a fork: what it is to run."""
    ends = os.pidfd_open(owner)
    for module in modules:
        import_module(module)
    gc.freeze()
    for finalizer in [*weakref.finalize._registry]:  # of libraries of torch alone: each fork would close them all
        finalizer.atexit = False
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(f"{address}.new")
    listener.listen(64)
    Path(f"{address}.new").rename(address)
    selector = selectors.DefaultSelector()
    selector.register(ends, selectors.EVENT_READ)
    selector.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fd == ends:
                shutil.rmtree(Path(address).parents[1], ignore_errors=True)
                os._exit(0)
            if key.fileobj is listener:
                asked, _ = listener.accept()
                body, passed, _, _ = socket.recv_fds(asked, _MAX_BYTES, 64)
                place = marshal.loads(body)
                if (pid := os.fork()) == 0:
                    for one in [asked, *(other.fileobj for other in selector.get_map().values())]:
                        if isinstance(one, socket.socket):
                            one.close()
                    selector.close()
                    _take_over(place, passed)
                    return place
                asked.send(str(pid).encode())
                for number in passed:
                    os.close(number)
                handle = os.pidfd_open(pid)
                selector.register(handle, selectors.EVENT_READ, (pid, handle, asked))
                selector.register(asked, selectors.EVENT_READ, (pid, handle, asked))
            elif key.data is not None:
                _attend(selector, key, *key.data)


def _attend(selector: selectors.BaseSelector, key: selectors.SelectorKey, pid: int, handle: int, asked: Any) -> None:
    """Kills a fork whose program is gone; tells the program of one that ended how it did."""
    if key.fileobj is asked:
        if asked.fileno() < 0:  # both ended in one moment, and the fork was heard of first
            return
        for kill in (os.killpg, os.kill):
            with suppress(ProcessLookupError):
                kill(pid, signal.SIGKILL)
        selector.unregister(asked)
        return
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with suppress(OSError):
        asked.send(str(code).encode())
    selector.unregister(handle)
    os.close(handle)
    if asked in selector.get_map():
        selector.unregister(asked)
    asked.close()


def _take_over(place: dict[str, Any], passed: list[int]) -> None:
    """This fork has the descriptors, environment and folder of the program, and a group of its own."""
    os.setsid()
    kept = [fcntl.fcntl(number, fcntl.F_DUPFD, _FREE) for number in passed]
    os.closerange(3, _FREE)
    for number, target in zip(kept, place["passed"], strict=True):
        os.dup2(number, target)
    os.closerange(_FREE, _FREE + 100)
    os.chdir(place["folder"])
    os.environ.clear()
    os.environ.update((os.fsdecode(name), os.fsdecode(value)) for name, value in place["environ"].items())
    fork, find_parent = os.getpid(), os.getppid
    os.getppid = lambda: place["parent"] if os.getpid() == fork else find_parent()


def _run(argv: list[str]) -> None:
    """As `python ARGV` would: options but -m and -c are ignored."""
    while argv[0].startswith("-") and argv[0] not in ("-m", "-c"):
        argv = argv[1:]
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", 1, "utf-8", closefd=False) for number in (1, 2))
    if argv[0] == "-m":
        sys.path[0], sys.argv = str(Path.cwd()), argv[1:]
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    elif argv[0] == "-c":
        sys.path[0], sys.argv, sys.modules["__main__"] = "", ["-c", *argv[2:]], ModuleType("__main__")
        exec(argv[1], vars(sys.modules["__main__"]))
    else:
        sys.path[0], sys.argv = str(Path(argv[0]).parent), argv
        runpy.run_path(argv[0], run_name="__main__")


def _leave(code: Any) -> None:
    """Ends as Python does, but for taking apart what was imported: that copies the memory shared with the server."""
    if isinstance(code, str):
        print(code, file=sys.stderr)
    threading._shutdown()  # waits for threads, then what is to be done at exit: Python's own order
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    asked_for = _serve(int(sys.argv[1]), sys.argv[2], sys.argv[3:])["argv"]
    ended: object = None
    try:
        _run(asked_for)
    except SystemExit as end:
        ended = end.code
    _leave(ended)
