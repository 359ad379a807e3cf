"""The process that is forked for each piece of work: it has imported rlf, and never code of the user's.

`python -m rlf.apps.web.zygote FD` reads from a socket; each message on it brings one end of another socket, over which
the fork gets its task as JSON and answers. It ends when its own socket is closed, and so with the process that made it.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import socket
import sys
import threading
import traceback
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from rlf.apps.web import tasks
from rlf.core.errors import NotFoundError, RlfError, SpecError
from rlf.core.files import scratch
from rlf.core.plain_json import as_json
from rlf.core.process import import_from
from rlf.core.redact import Redactor
from rlf.core.text import describe
from rlf.processes.forking import fork
from rlf.sandbox.guest.wire import set_apart

_SPEC = """name: warm
model: {path: "builtin:tiny"}
data: {train: {path: "builtin:encyclopedia/train", prompt: question, answer: answer}}
rewards: [{kind: rule, name: match, rule: exact_match}]
train: {steps: 1, algorithm: grpo}
"""
_HEAVY = ("torch", "transformers.models.auto.tokenization_auto", "rlf.training.harness", "rlf.training.batch")
"""Modules for prompts and advantages, which take seconds: they are imported while there is no request."""
_IDLE_S = 2.0


def main() -> None:
    """Serves until the socket is closed."""
    control = socket.socket(fileno=int(sys.argv[1]))
    for name in _modules_of_a_check():
        with suppress(ImportError):
            importlib.import_module(name)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    heavy = list(_HEAVY)
    while True:
        if heavy and not select.select([control], [], [], _IDLE_S)[0]:
            with suppress(ImportError):
                importlib.import_module(heavy.pop(0))
            continue
        message, files, _, _ = socket.recv_fds(control, 1, 1)
        if not message:
            return
        with socket.socket(fileno=files[0]) as connection:
            fork(partial(_work, control, connection))


def _modules_of_a_check() -> list[str]:
    """The modules that a check imports, found in a fork: a check starts threads, which no fork inherits."""
    reading, writing = os.pipe()

    def check() -> None:
        with suppress(BaseException), scratch("rlf-spec") as folder:
            spec = folder / "spec.yaml"
            spec.write_text(_SPEC, encoding="utf-8")
            tasks.check_text(str(spec), None, ())
        with os.fdopen(writing, "w") as file:
            json.dump(list(sys.modules), file)

    process = fork(check)
    os.close(writing)
    with os.fdopen(reading) as file:
        names = file.read()
    os.waitpid(process, 0)
    return [name for name in json.loads(names or "[]") if name not in sys.modules and name != "__main__"]


def _work(control: socket.socket, connection: socket.socket) -> None:
    """Does one task, in a fork."""
    control.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    connection = socket.socket(fileno=set_apart(connection.detach()))
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what user code prints is no answer
    with connection.makefile("rb") as file:
        asked = json.load(file)
    signal.alarm(asked["deadline_s"])
    threading.Thread(target=_end_unasked, args=[connection], daemon=True).start()
    os.chdir(asked["folder"])
    import_from(Path.cwd())
    answer = _answer_task(asked["task"], asked["arguments"])
    with suppress(OSError):  # nobody waits any more
        connection.sendall(Redactor(os.environ).json(answer).encode())  # `.env` files brought secrets in too
    connection.close()


def _end_unasked(connection: socket.socket) -> None:
    """Ends this fork and what it started once nobody waits for its answer."""
    waiting = select.poll()
    waiting.register(connection, 0)  # the other side has gone: that it sends no more is no sign of it
    waiting.poll()
    os.killpg(0, signal.SIGTERM)


def _answer_task(task: str, arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        if task not in tasks.TASKS:
            raise NotFoundError(f"{task}: the app that does this is not installed.")
        return {"data": as_json(tasks.TASKS[task](**arguments))}
    except RlfError as error:
        faults = as_json(error.faults) if isinstance(error, SpecError) else []
        return {"error": str(error), "kind": type(error).__name__, "faults": faults}
    except Exception as error:  # noqa: BLE001 - a defect is reported by the process that asked
        return {"error": describe(error), "kind": "", "trace": traceback.format_exc()}


if __name__ == "__main__":
    main()
