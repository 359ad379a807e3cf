"""The page on its port, until Ctrl-C."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Callable

import uvicorn

from rlf.core.errors import RunError
from rlf.web.app import create_app
from rlf.web.settings import WebSettings


def serve_page(settings: WebSettings, announce: Callable[[str], None]) -> None:
    """Listens and serves; `announce` gets the address to open, with the token where there is one."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((settings.host, settings.port))
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
        uvicorn.Server(config).run(sockets=[listener])
