"""The settings of a server of the page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
MAX_BODY_BYTES = 1_000_000


def apps_with_page() -> frozenset[str]:
    """Names of the apps whose `page.py` has parts of the page."""
    return frozenset(path.parent.name for path in Path(__file__).parents[1].glob("*/page.py"))


@dataclass(frozen=True, slots=True)
class OpenedPage:
    """A page that is served."""

    address: str
    """With its token."""


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
    def apps(self) -> frozenset[str]:
        """Apps that have parts of the page; what belongs to others is not offered."""
        return apps_with_page()

    @property
    def cookie(self) -> str:
        """The name of the cookie with the token: browsers share cookies between the ports of a host."""
        return f"rlf_{self.port}"
