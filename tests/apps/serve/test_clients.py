"""Clients that others wrote, as their users have them: each drives the server from an environment of its own.

`make .venv/clients/ready` installs them beside rlf's environment; `RLF_CLIENTS` names another place. What they ask is
tested without them in `test_protocol.py` and `test_dialects.py`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from .served import serving_model

PYTHON = Path(os.environ.get("RLF_CLIENTS", Path(sys.prefix) / "clients")) / "bin" / "python"
CLIENTS = sorted((Path(__file__).parent / "clients").glob("with_*.py"))


@pytest.mark.skipif(not PYTHON.exists(), reason=f"no clients at {PYTHON}; run `make .venv/clients/ready`")
@pytest.mark.parametrize("client", CLIENTS, ids=lambda path: path.stem.removeprefix("with_"))
def test_a_client_of_others_gets_what_its_users_expect(client: Path) -> None:
    async def main() -> tuple[int | None, bytes]:
        async with serving_model() as url:
            process = await asyncio.create_subprocess_exec(
                PYTHON, client, url, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
            )
            said, _ = await process.communicate()
            return process.returncode, said

    code, said = asyncio.run(main())
    assert code == 0, said.decode()
