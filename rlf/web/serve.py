"""The page on its port, until Ctrl-C."""

from __future__ import annotations

import dataclasses
import gc
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from rlf.core.errors import RunError
from rlf.web.app import create_app
from rlf.web.settings import WebSettings
from rlf.web.site import Site


class _Server(uvicorn.Server):
    """Ends streams and calls of user code at the first signal: it would wait for them, and cancel them with traces."""

    def __init__(self, config: uvicorn.Config, site: Site) -> None:
        super().__init__(config)
        self._site = site

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handles SIGINT and SIGTERM."""
        self._site.end()
        super().handle_exit(sig, frame)


def serve_page(settings: WebSettings, announce: Callable[[str], None]) -> None:
    """Listens and serves; `announce` gets the address to open, with the token where there is one."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((settings.host, settings.port))
            listener.listen()  # of two that are bound one may listen
        except OSError as error:
            raise RunError(
                f"--port: {settings.host} port {settings.port} cannot be used: {error.strerror}. Name another one."
            ) from error
        settings = dataclasses.replace(settings, port=listener.getsockname()[1])
        guarded = create_app(settings)
        config = uvicorn.Config(guarded, log_level="warning", server_header=False, timeout_graceful_shutdown=2)
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        token = f"/?token={settings.token}" if settings.token else "/"
        announce(f"http://{host}:{settings.port}{token}")
        gc.collect()
        gc.freeze()  # what is imported stays: to look through it again takes as long as an answer
        _Server(config, guarded.state.site).run(sockets=[listener])
