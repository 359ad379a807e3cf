"""The beginning and the end of every server of rlf's: a port, its address, and signals that stop it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rlf.core.errors import RunError

if TYPE_CHECKING:
    from aiohttp import web

_BACKLOG = 1024


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises RunError with the fix where it cannot be opened."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            fix = "Stop the program that listens there, or give another --port; 0 takes any that is free."
            raise RunError(f"port {port} of {host} is in use. {fix}") from error
        raise RunError(
            f"cannot listen on {host} port {port}: {error.strerror}. Give another --host or --port."
        ) from error
    return listener


@contextlib.contextmanager
def stopping(stop: Callable[[], None]) -> Iterator[None]:
    """Calls `stop` at SIGINT and SIGTERM while the loop runs what is within; then both have their handlers back."""
    loop = asyncio.get_running_loop()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in handlers:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            loop.remove_signal_handler(number)
            if handler is not None:  # None: it was set outside Python, which cannot set it back
                signal.signal(number, handler)


def url_of(listener: socket.socket) -> str:
    """The address of a server on a socket, as clients write it."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


async def serve_app(app: web.Application, listener: socket.socket, tell: Callable[[str], None]) -> None:
    """Serves an application until SIGINT or SIGTERM; a second one does not cut off its end.

    Args:
        tell: called with the address once it is served.
    """
    from aiohttp import web

    stopped = asyncio.Event()
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=2)
    await runner.setup()
    with stopping(stopped.set):
        try:
            await web.SockSite(runner, listener).start()
            tell(url_of(listener))
            await stopped.wait()
        finally:
            await runner.cleanup()
