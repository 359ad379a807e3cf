"""PinnedPackages of benchmarks, each in a folder of its own that comes before this environment's own packages.

Only a benchmark's own processes see it, so that a version that it pins meets nothing of rlf's.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from rlf.core.errors import RlfError, RunError
from rlf.core.identity import hash_json
from rlf.core.process import cache_folder, locked
from rlf.processes.child import run_to_end

_LIMIT_S = 900.0
_TAIL_LINES = 8
USER_FAULT = 2
"""Exit code of a program whose last line is a fault of the user's, as JSON."""


@dataclass(frozen=True, slots=True)
class PinnedPackages:
    """What a benchmark needs installed."""

    pins: str
    """As pip takes them, with spaces: the benchmark's own package first, and nothing that they depend on."""

    @property
    def name(self) -> str:
        """Of the benchmark's own package."""
        return self.pins.partition("==")[0]

    @property
    def folder(self) -> Path:
        """Where `install` puts them; one per list of pins and per Python."""
        key = hash_json([self.pins.split(), sys.version_info[:2], sys.prefix])[:12]
        return cache_folder().absolute() / "bench" / f"{self.name}-{key}"

    @property
    def path(self) -> str | None:
        """The folder, where it is needed: None where this environment has the package itself."""
        return str(self.folder) if self.folder.is_dir() else None

    @property
    def version(self) -> str | None:
        """Of the benchmark's own package; None where it is not installed."""
        if self.path is not None:
            found = next(iter(metadata.distributions(name=self.name, path=[self.path])), None)
            return None if found is None else found.version
        try:  # by its own name: others on the index have modules of the same one
            return metadata.version(self.name)
        except metadata.PackageNotFoundError:
            return None

    def install(self) -> None:
        """Installs them, where they are missing. Raises RunError with pip's last words."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.folder.with_suffix(".lock")):
            if self.folder.is_dir():
                return
            made = self.folder.with_suffix(".new")
            shutil.rmtree(made, ignore_errors=True)
            command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
            done = run_to_end([*command, "--target", str(made), *self.pins.split()], _LIMIT_S)
            if done.returncode != 0:
                tail = "\n".join(done.stderr.splitlines()[-_TAIL_LINES:])
                raise RunError(f"{self.pins} cannot be installed; pip's last words:\n{tail}")
            made.rename(self.folder)  # whole or not there: a kill leaves no half of it

    def run(self, code: str, arguments: Sequence[str], env: Mapping[str, str] | None = None) -> str:
        """What a program prints that is run with them. Raises RlfError with its last words."""
        first = "import sys; " + ("" if self.path is None else f"sys.path.insert(0, {self.path!r}); ")
        try:
            done = run_to_end(
                [sys.executable, "-c", first + code, *arguments], _LIMIT_S, env={**os.environ, **(env or {})}
            )
        except subprocess.TimeoutExpired as late:
            raise RlfError(f"{self.name}: its rows were not read within {_LIMIT_S:g} s.") from late
        if done.returncode == USER_FAULT and done.stdout:
            raise RlfError(json.loads(done.stdout.splitlines()[-1]))
        if done.returncode != 0:
            tail = "\n".join(done.stderr.strip().splitlines()[-_TAIL_LINES:])
            raise RlfError(f"{self.name}: its rows cannot be read; the last words:\n{tail}")
        return done.stdout
