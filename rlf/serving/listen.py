"""A server on its port."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web

from rlf.core.servers import server_context
from rlf.serving.agent import Agent
from rlf.serving.app import Server
from rlf.serving.settings import ServeSettings
from rlf.types.policy import Host

if TYPE_CHECKING:
    import socket

    from transformers import PreTrainedTokenizerBase


@asynccontextmanager
async def serving(
    host: Host,
    tokenizer: PreTrainedTokenizerBase,
    settings: ServeSettings,
    listener: socket.socket,
    chat_format: str = "auto",
    thinking_tag: str | None = None,
    agent: Agent | None = None,
) -> AsyncIterator[str]:
    """Answers what comes to a socket for as long as the context is open; gives the base URL of the endpoint."""
    server = Server(host, tokenizer, settings, chat_format, thinking_tag, agent)
    runner = web.AppRunner(server.app(), access_log=None, handler_cancellation=True, shutdown_timeout=2)
    await runner.setup()
    try:
        context = server_context(settings.certificate)
        await web.SockSite(runner, listener, ssl_context=context).start()
        address, port = runner.addresses[0][:2]
        scheme = "http" if context is None else "https"
        yield f"{scheme}://{f'[{address}]' if ':' in address else address}:{port}/v1"
    finally:
        await runner.cleanup()
