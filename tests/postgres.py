"""A real PostgreSQL server of the tests' own, one for all tests of a process, on a socket in a temporary folder."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

_BIN = [Path(found).resolve().parent for found in [shutil.which("initdb")] if found]
_FOLDERS = [*_BIN, *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
_BOUND_S = 30


class Server:
    """A server with its data and its socket in a folder of its own; nothing of it outlives this process."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self.place = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
        user = {"user": "nobody", "group": "nogroup"} if os.geteuid() == 0 else {}  # it refuses root
        if user:
            shutil.chown(self.place, "nobody", "nogroup")
        self._options = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": self.place, **user}
        atexit.register(self._remove)
        made = [programs / "initdb", "-D", self.place / "data", "-U", "rlf", "-A", "trust", "--no-sync"]
        subprocess.run(made, check=True, timeout=_BOUND_S, **self._options)
        self._process = self._start()

    def restart(self) -> None:
        """Ends every connection, as an administrator does."""
        self._stop()
        self._process = self._start()

    def empty(self) -> None:
        """Leaves one database, without a table."""
        engine = create_engine(self.url("template1"), isolation_level="AUTOCOMMIT", poolclass=NullPool)
        with engine.connect() as connection:
            names = connection.execute(text("SELECT datname FROM pg_database WHERE datname NOT LIKE 'template_'"))
            for name in names.scalars().all():
                connection.execute(text(f'DROP DATABASE "{name}" WITH (FORCE)'))
            connection.execute(text("CREATE DATABASE postgres"))

    def url(self, database: str = "postgres") -> str:
        """For SQLAlchemy."""
        return f"postgresql+psycopg://rlf@/{database}?host={self.place}"

    def _start(self) -> subprocess.Popen[bytes]:
        options = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={self.place}", "-c", "fsync=off"]
        process = subprocess.Popen([self._programs / "postgres", "-D", self.place / "data", *options], **self._options)
        _await(self._programs, self.place)
        return process

    def _stop(self) -> None:
        self._process.send_signal(signal.SIGINT)  # ends connections, where SIGTERM waits for them
        self._process.wait(_BOUND_S)

    def _remove(self) -> None:
        if hasattr(self, "_process"):
            self._stop()
        shutil.rmtree(self.place, ignore_errors=True)


_idle: list[Server] = []


@contextmanager
def lent_server() -> Iterator[Server]:
    """A server without databases of others, kept for the next test; skips, and says so, where there is none."""
    programs = next((folder for folder in _FOLDERS if (folder / "postgres").exists()), None)
    if programs is None:
        pytest.skip("PostgreSQL is not installed: its part of the lineage is NOT tested (apt-get install postgresql)")
    server = _idle.pop() if _idle else Server(programs)
    try:
        server.empty()
        yield server
    finally:
        _idle.append(server)


@contextmanager
def postgres_server() -> Iterator[str]:
    """The SQLAlchemy URL of a server."""
    with lent_server() as server:
        yield server.url()


def _await(folder: Path, place: Path) -> None:
    deadline = time.monotonic() + _BOUND_S
    while subprocess.run([folder / "pg_isready", "-q", "-h", place], check=False).returncode:
        assert time.monotonic() < deadline, "PostgreSQL did not start"
        time.sleep(0.05)
