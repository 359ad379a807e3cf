"""The page on its port, until Ctrl-C."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable
from types import FrameType

import uvicorn

from rlf.apps.web.app import create_app
from rlf.apps.web.settings import WebSettings
from rlf.apps.web.site import Site
from rlf.cli.start import settle
from rlf.core.servers import listening, url_of


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
    with listening(settings.host, settings.port) as listener:
        settings = dataclasses.replace(settings, port=listener.getsockname()[1])
        guarded = create_app(settings)
        config = uvicorn.Config(guarded, log_level="warning", server_header=False, timeout_graceful_shutdown=2)
        token = f"/?token={settings.token}" if settings.token else "/"
        gc.collect()
        settle()  # to look through what is imported takes as long as an answer
        announce(f"{url_of(listener)}{token}")
        _Server(config, guarded.state.site).run(sockets=[listener])
