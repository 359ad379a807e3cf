"""What `rlf chaos` starts, forked from what has imported torch, and a group of processes as it asks for."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, ClassVar

from rlf.apps.chaos import chaos

from ...processes import Process, call_rlf


class Fork(Process):
    """Takes the place of `subprocess.Popen` there; Ctrl-C is heard."""

    marks: ClassVar[dict[int, str]] = {}
    """By process id: the variable that `/proc` shows of a process that was started plainly."""

    def __init__(
        self, arguments: Sequence[str], *, env: dict[str, str], start_new_session: bool, preexec_fn: Any, **_: Any
    ) -> None:
        assert [*arguments[:3]] == [sys.executable, "-m", "rlf"]
        assert start_new_session and preexec_fn.func is chaos._heed
        super().__init__(_call_in_session, *arguments[3:], env=env)
        self.marks[self.pid] = env[chaos._MARK]

    def wait(self, timeout: float | None = None) -> int:
        code = super().wait(timeout)
        self.stderr.close()
        return code


def _call_in_session(*arguments: str) -> None:
    os.setsid()
    call_rlf(*arguments)
