"""`python -m rlf.api.judges.worker FOLDER NAME HOST PORT`: one model behind the OpenAI protocol, by transformers."""

from __future__ import annotations

import asyncio
import sys

from rlf.api.judges.model_server import serving
from rlf.api.serving import stopping


async def _serve(path: str, name: str, host: str, port: int) -> None:
    stopped = asyncio.Event()
    with stopping(stopped.set):
        async with serving(path, name, address=host, port=port):
            await stopped.wait()


if __name__ == "__main__":
    path, name, host, port = sys.argv[1:]
    asyncio.run(_serve(path, name, host, int(port)))
