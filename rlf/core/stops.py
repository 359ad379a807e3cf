"""Signals that end a command as Ctrl-C does, and which of them came."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_SIGNALS = ("SIGTERM", "SIGHUP")
_WORDS = {
    "SIGTERM": "stopped by SIGTERM (`kill`, a scheduler, or the system's shutdown)",
    "SIGHUP": "stopped by SIGHUP (its terminal closed)",
}
_received: list[str] = []


def heed_signals() -> None:
    """Lets SIGTERM and SIGHUP end the program as Ctrl-C does; one that is ignored, as under `nohup`, stays so."""
    for name in _SIGNALS:
        number = getattr(signal, name)
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _raise_interrupt)


@contextmanager
def heeded() -> Iterator[None]:
    """Heeds the signals within a block, as a command does. A program's own handlers stay; all come back after it."""
    if threading.current_thread() is not threading.main_thread():  # Python takes signals there alone
        yield
        return
    _received.clear()
    numbers = [getattr(signal, name) for name in _SIGNALS]
    kept = {number: signal.getsignal(number) for number in numbers}
    unset = [number for number in numbers if kept[number] is signal.SIG_DFL]
    for number in unset:
        signal.signal(number, _raise_interrupt)
    try:
        yield
    finally:
        for number in unset:
            signal.signal(number, kept[number])


def reason() -> str:
    """Why a KeyboardInterrupt came."""
    return _WORDS[_received[-1]] if _received else "stopped by Ctrl-C"


def _raise_interrupt(number: int, _frame: object) -> None:
    """Ends as Ctrl-C does, also where a shell has it ignored for a background job."""
    _received.append(signal.Signals(number).name)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.raise_signal(signal.SIGINT)
