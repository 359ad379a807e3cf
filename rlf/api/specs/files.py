"""The files of a project that people edit: listed, read and written, and nothing beside them."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from rlf.core.errors import NotFoundError, RlfError
from rlf.core.redact import Redactor

FOLDERS = ("specs", "tool_specs", "reward_specs")
_SUFFIXES = frozenset({".yaml", ".yml", ".json", ".jsonl"})
_MAX_BYTES = 1_000_000


class StaleError(RlfError):
    """A file is no longer what its writer read."""


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """One file."""

    path: str
    """From the project's folder."""
    size_bytes: int
    changed: float
    """Unix time."""


@dataclass(frozen=True, slots=True)
class FileText:
    """A file's text."""

    path: str
    text: str
    etag: str
    """Of the bytes; what a writer sends back, so that nobody's change is lost."""


class ProjectFiles:
    """The declared files of one project."""

    def __init__(self, project: Path) -> None:
        self._root = project.resolve()

    def list(self) -> tuple[ProjectFile, ...]:
        """Every file, by path."""
        found = []
        for folder in FOLDERS:
            for path in sorted((self._root / folder).rglob("*")):
                name = path.relative_to(self._root).as_posix()
                if self._is_open(name) and path.is_file():
                    about = path.stat()
                    found.append(ProjectFile(name, about.st_size, about.st_mtime))
        return tuple(found)

    def path(self, name: str) -> Path:
        """The path of a file that may be shown. Raises NotFoundError for any other."""
        if not self._is_open(name):
            raise NotFoundError(
                f"{name[:200]!r}: not a file that the page shows; expected YAML or JSON in {', '.join(FOLDERS)}."
            )
        return self._root / name

    def read(self, name: str) -> FileText:
        """A file. Raises NotFoundError where there is none."""
        path = self.path(name)
        try:
            content = path.read_bytes() if path.stat().st_size <= _MAX_BYTES else b""
            text = content.decode()
        except (OSError, UnicodeDecodeError) as error:
            raise NotFoundError(f"{name}: no text file to read there.") from error
        return FileText(name, Redactor(os.environ).text(text), _etag(content))

    def write(self, name: str, text: str, etag: str) -> FileText:
        """Replaces a file, or makes a new one.

        Args:
            etag: of what was read; empty for a file that is new.

        Raises:
            StaleError: the file is another by now.
        """
        path, content = self.path(name), text.encode()
        if len(content) > _MAX_BYTES:
            raise RlfError(f"{name}: has {len(content):,} bytes; expected at most {_MAX_BYTES:,}.")
        known = _etag(path.read_bytes()) if path.is_file() else ""
        if known != etag:
            raise StaleError(f"{name}: was changed since you read it. Read it again and merge your change.")
        if Redactor(os.environ).text(text) != text:
            raise RlfError(f"{name}: holds the value of a secret. Write `${{oc.env:NAME}}` in its place.")
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            Path(temporary).chmod(path.stat().st_mode & 0o777 if path.is_file() else 0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        return FileText(name, text, _etag(content))

    def _is_open(self, name: str) -> bool:
        """Whether a name is that of a declared file: in its folders, with links followed, not hidden."""
        parts = Path(name).parts
        if not parts or parts[0] not in FOLDERS or any(part.startswith(".") for part in parts) or "\0" in name:
            return False
        resolved = (self._root / name).resolve()
        return (
            resolved.suffix in _SUFFIXES
            and (self._root / parts[0]).resolve() in resolved.parents
            and self._root in resolved.parents
        )


def _etag(content: bytes) -> str:
    return sha256(content).hexdigest()[:32]
