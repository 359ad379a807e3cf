"""The settings of a server of the page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
MAX_BODY_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class WebSettings:
    """A project, and who may see it."""

    project: Path
    """The folder with `specs/`, `tool_specs/` and `reward_specs/`; files outside it are not shown."""
    runs_folder: Path
    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = None
    """What a visitor must bring; None lets everybody in who reaches the port."""
    read_only: bool = False
    """Whether the routes that change or start something are left out."""

    @property
    def cookie(self) -> str:
        """The name of the cookie with the token: browsers share cookies between the ports of a host."""
        return f"rlf_{self.port}"
