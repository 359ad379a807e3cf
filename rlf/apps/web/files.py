"""The files of a project that people edit: listed, read and written, and nothing beside them."""

from __future__ import annotations

import builtins
import os
import threading
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from rlf.core.errors import NotFoundError, RlfError
from rlf.core.files import write_whole
from rlf.core.redact import REDACTED, Redactor
from rlf.spec.reader import read_env_files

FOLDERS = ("specs", "tool_specs", "reward_specs")
_SUFFIXES = frozenset({".yaml", ".yml", ".json", ".jsonl"})
_MAX_BYTES = 1_000_000
_MAX_NAME_BYTES = 255


class StaleError(RlfError):
    """A file changed after its writer read it."""


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
        self._saving = threading.Lock()

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

    def names(self, folder: str) -> builtins.list[str]:
        """The declarations of one of the folders, by path: what is YAML."""
        names = (file.path for file in self.list())
        return [name for name in names if name.startswith(f"{folder}/") and name.endswith((".yaml", ".yml"))]

    def path(self, name: str) -> Path:
        """The path of a file that may be shown. Raises NotFoundError for any other."""
        if not self._is_open(name):
            raise NotFoundError(
                f"{name[:200]!r}: the page does not show this file; expected YAML or JSON in {', '.join(FOLDERS)}."
            )
        return self._root / name

    def read(self, name: str) -> FileText:
        """A file. Raises NotFoundError where there is none, RlfError where it is too large."""
        path = self.path(name)
        if not path.is_file():
            raise NotFoundError(f"{name}: no readable text file is there.")
        _check_size(name, path.stat().st_size)
        try:
            content = path.read_bytes()
            text = content.decode()
        except (OSError, UnicodeDecodeError) as error:
            raise NotFoundError(f"{name}: no readable text file is there.") from error
        return FileText(name, self.make_redactor().text(text), _make_etag(content))

    def write(self, name: str, text: str, etag: str) -> FileText:
        """Replaces a file, or makes a new one.

        Args:
            etag: of what was read; empty for a file that is new.

        Raises:
            StaleError: the file is another by now.
        """
        path, content = self.path(name).resolve(), text.encode()
        _check_size(name, len(content))
        redactor = self.make_redactor()
        if redactor.text(text) != text:
            raise RlfError(f"{name}: holds the value of a secret. Write `${{oc.env:NAME}}` in its place.")
        with self._saving:
            before = path.read_bytes() if path.is_file() else None
            if etag != ("" if before is None else _make_etag(before)):
                raise StaleError(f"{name}: was changed since you read it. Read it again and merge your change.")
            if before is not None and REDACTED in text and REDACTED in redactor.text(before.decode(errors="replace")):
                raise RlfError(f"{name}: {REDACTED} stands for a secret, which saving would overwrite. Edit it there.")
            write_whole(path, content)
        return FileText(name, text, _make_etag(content))

    def make_redactor(self) -> Redactor:
        """Knows the secrets of the environment and of the `.env` files beside specs."""
        folders = {file.parent for folder in FOLDERS for file in (self._root / folder).rglob(".env")}
        return Redactor(os.environ | read_env_files({self._root, *folders}))

    def _is_open(self, name: str) -> bool:
        """Whether a name is that of a declared file: in its folders, with links followed, not hidden."""
        parts = name.split("/")
        if parts[0] not in FOLDERS or any(part.startswith(".") or not part for part in parts) or "\0" in name:
            return False
        if len(name.encode(errors="replace")) > _MAX_NAME_BYTES:
            return False
        try:
            resolved = (self._root / name).resolve()
        except (OSError, RuntimeError):  # a link to itself
            return False
        return (
            resolved.suffix in _SUFFIXES
            and (self._root / parts[0]).resolve() in resolved.parents
            and self._root in resolved.parents
        )


def _check_size(name: str, num_bytes: int) -> None:
    if num_bytes > _MAX_BYTES:
        raise RlfError(
            f"{name}: has {num_bytes:,} bytes; expected at most {_MAX_BYTES:,}. Edit it with another program."
        )


def _make_etag(content: bytes) -> str:
    return sha256(content).hexdigest()[:32]
