"""How a fork server is started at each level: the command, and its first message."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple

from pydantic import FiniteFloat, ValidationError

from rlf.core.errors import RlfError
from rlf.core.kinds import StrictModel
from rlf.core.redact import clean
from rlf.sandbox.guest import confine as landlock
from rlf.sandbox.guest import seccomp
from rlf.sandbox.guest.confine import WORK
from rlf.sandbox.guest.wire import BadFrame, Bounds, Frame
from rlf.sandbox.spec import Level, Request, SandboxLimits, SandboxOutcome, SqlRequest

# Which files of site-packages a sandbox shows: those of the allowed distributions and of what they require.


@dataclass(frozen=True, slots=True)
class Packages:
    """Packages that calls may import beside the standard library."""

    entries: tuple[Path, ...]
    """Top-level files and folders of site-packages."""
    imports: tuple[str, ...]
    """Modules that are imported once, before the first call."""


def find_packages(names: Sequence[str]) -> Packages:
    """Looks allowed distributions up in this environment. Raises RlfError for one that is not installed."""
    from packaging.requirements import Requirement

    found: dict[str, Distribution] = {}
    wanted = [(name, True) for name in names]
    imports: list[str] = []
    for name, asked_for in wanted:
        if _normalize_name(name) in found:
            continue
        package = _find_distribution(name)
        found[_normalize_name(name)] = package
        if asked_for:
            imports.extend(_list_modules(package))
        required = [Requirement(text) for text in package.requires or ()]
        wanted += [(one.name, False) for one in required if one.marker is None or one.marker.evaluate({"extra": ""})]
    entries = {entry for package in found.values() for entry in _list_entries(package)}
    return Packages(tuple(sorted(entries)), tuple(imports))


def _find_distribution(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError as fault:
        raise RlfError(f"sandbox: package {name!r} is not installed; `pip install {name}`, or leave it out") from fault


def _normalize_name(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _list_entries(package: Distribution) -> set[Path]:
    """A package's files in site-packages; scripts and data outside of site-packages are left out."""
    tops = {file.parts[0] for file in package.files or () if file.parts[0] not in ("..", "__pycache__")}
    paths = {Path(str(package.locate_file(top))) for top in tops}
    return {path for path in paths if path.exists()}


def _list_modules(package: Distribution) -> list[str]:
    own = _normalize_name(package.name).replace("-", "_")
    return sorted(
        entry.stem
        for entry in _list_entries(package)
        if (entry / "__init__.py").is_file() or (entry.suffix == ".py" and entry.stem == own)
    )


BUBBLEWRAP = "bwrap"
INSTALL_BUBBLEWRAP = "apt-get install bubblewrap"
_SANDBOX = Path(__file__).parent
_FIRST_USER, _NUM_USERS = 1_900_000_000, 4096
"""Users that calls have where rlf runs as root; no distribution gives them to anyone."""
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MPLBACKEND": "Agg",
}
"""The environment of server and calls, beside HOME and TMPDIR. One thread: more cannot fork."""
_HASH_SEED = {"PYTHONHASHSEED": "0"}
"""The whole environment of the server: sets of texts have one order in every run."""
_SYSTEM = ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


class LevelUnavailable(RlfError):
    """The machine does not offer a level; the message says why."""

    def __init__(self, level: Level, why: str, fix: str = "") -> None:
        super().__init__(f"sandbox level {level}: {why}" + (f" {fix}" if fix else ""))
        self.level, self.why, self.fix = level, why, fix


@dataclass(frozen=True, slots=True)
class Launch:
    """The settings of a fork server."""

    level: Level
    packages: Packages
    databases: tuple[Path, ...]
    """Files that calls may read beside the interpreter and the packages."""

    def place(self, database: Path) -> str:
        """Where a call finds a database."""
        if self.level is not Level.NAMESPACES:
            return str(database.resolve())
        return f"/data/{self.databases.index(database)}{database.suffix}"

    def command(self, control: int, scratch: Path) -> list[str]:
        """The command; `control` is the descriptor of the socket that it inherits.

        The scratch folder is its last word and that of every process it starts, by which `ps` distinguishes them.

        Raises LevelUnavailable where the machine plainly lacks what the level is made of.
        """
        _refuse_other_machines(self.level)
        folder, outer = ("/", self._bubblewrap_command()) if self.level is Level.NAMESPACES else (str(_SANDBOX), [])
        # `guest.server` is started by hand, since nothing else of rlf is there; `-S -s -P`: the standard library alone.
        # The interpreter's real file: a virtual environment's link says nothing where the environment is not.
        python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
        start = f"sys.path.insert(0, {folder!r}); import guest.server as s; del sys.path[0]; s.main({control})"
        return [*outer, python, "-S", "-s", "-P", "-B", "-c", f"import sys; {start}", str(scratch)]

    def settings(self, scratch: Path) -> dict[str, Any]:
        """The first packet. `scratch`: the host's folder for calls that have no file system of their own."""
        inside = self.level is Level.NAMESPACES
        home = WORK if inside else str(scratch)
        return {
            "level": self.level,
            "scratch": str(scratch),
            "readable": [] if inside else [str(path) for path in self._readable_paths(scratch)],
            "first_user": _FIRST_USER,
            "num_users": _NUM_USERS,
            "environment": {**_ENVIRONMENT, "HOME": home, "TMPDIR": home},
            "path": ["/packages"] if inside else [str(packages_folder(scratch))],
            "imports": list(self.packages.imports),
        }

    def _readable_paths(self, scratch: Path) -> Iterator[Path]:
        yield from map(Path, (*_SYSTEM, "/etc/ld.so.cache", *_DEVICES))
        yield from (_interpreter_root(), packages_folder(scratch))
        yield from (*self.packages.entries, *self.databases)

    def _bubblewrap_command(self) -> list[str]:
        program = shutil.which(BUBBLEWRAP)
        if program is None:
            raise LevelUnavailable(self.level, "bubblewrap is not installed.", f"Run `{INSTALL_BUBBLEWRAP}`.")
        words = [program, "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
        if os.getuid() != 0:
            words += ["--unshare-user", "--uid", "1000", "--gid", "1000"]
        words += ["--die-with-parent", "--new-session", "--hostname", "sandbox"]
        words += [word for bind in self._mount_options() for word in bind]
        words += ["--proc", "/proc", "--remount-ro", "/", "--chdir", "/", "--clearenv"]
        return words + [word for item in _HASH_SEED.items() for word in ("--setenv", *item)]

    def _mount_options(self) -> Iterator[tuple[str, ...]]:
        """The file system of the server, which only reads."""
        root = _interpreter_root()
        parents = [str(path) for path in reversed(root.parents[:-1])]
        for folder in ("/dev", "/etc", "/packages", "/data", "/empty", *parents):  # else only root may enter
            yield "--dir", folder
        yield from system_options()
        for path in _DEVICES:
            yield "--dev-bind", path, path
        yield "--ro-bind", str(root), str(root)
        for entry in self.packages.entries:
            yield "--ro-bind", str(entry), f"/packages/{entry.name}"
        for database in self.databases:
            yield "--ro-bind", str(database.resolve()), self.place(database)
        yield "--ro-bind", str(_SANDBOX / "guest"), "/guest"
        yield "--tmpfs", WORK  # for what packages write when they are imported; each call covers it with its own
        for name in ("/tmp", "/dev/shm"):
            yield "--symlink", "/work", name


def packages_folder(scratch: Path) -> Path:
    """Where the packages lie together, as links, for levels that see the host's file system."""
    return scratch / "packages"


def link_packages(packages: Packages, scratch: Path) -> None:
    """Makes that folder."""
    packages_folder(scratch).mkdir()
    for entry in packages.entries:
        (packages_folder(scratch) / entry.name).symlink_to(entry)


def environment() -> dict[str, str]:
    """The server's environment, in place of rlf's own, which /proc would show."""
    return dict(_HASH_SEED)


def _refuse_other_machines(level: Level) -> None:
    if level is Level.PROCESS:
        return
    if not sys.platform.startswith("linux"):
        raise LevelUnavailable(level, f"needs Linux; this system is {sys.platform}.")
    if not seccomp.supported():
        raise LevelUnavailable(level, f"has no table of system calls for {os.uname().machine}.")
    if level is Level.LANDLOCK and landlock.abi() == 0:
        raise LevelUnavailable(level, "the kernel has no Landlock (Linux 5.13 or later, and `landlock` among `lsm=`).")


def _interpreter_root() -> Path:
    return Path(os.path.realpath(sys.base_prefix))


def system_options() -> Iterator[tuple[str, ...]]:
    """The system's programs and libraries, to be read."""
    for path in map(Path, _SYSTEM):
        if path.is_symlink():
            yield "--symlink", str(path.readlink()), str(path)
        elif path.is_dir():
            yield "--ro-bind", str(path), str(path)
    for name in ("/etc/ld.so.cache", "/etc/alternatives"):
        yield "--ro-bind-try", name, name


# Requests as the processes of a sandbox read them (`guest.job`), and what their answers may be.

_CHAR_BYTES = 6
"""Most bytes of JSON that a character takes, as `\\u0001` does."""
_BESIDE_BYTES = 1 << 20
"""Of an answer's head beside its values: errors, names of files and columns."""
_ROW_BYTES = 64
_FIGURE_BYTES = 16 << 20
"""Figures of a call, which it may make in memory."""


class ProcessAnswer(StrictModel):
    """What every process answers."""

    outcome: SandboxOutcome
    error: str | None = None


class PythonAnswer(ProcessAnswer):
    """The answer of Python: the word of the code that ran, which may say what it likes of itself."""

    outcome: Literal[SandboxOutcome.OK, SandboxOutcome.ERROR, SandboxOutcome.MEMORY]
    value: str | None = None
    files: tuple[str, ...] = ()
    """Names of the first byte strings; the others are figures."""


class TableAnswer(ProcessAnswer):
    """The answer of SQL, in a process that runs no foreign code."""

    columns: tuple[str, ...] | None = None
    rows: tuple[tuple[str | int | FiniteFloat | bool | None, ...], ...] = ()
    truncated: bool = False


class GuestRequest(NamedTuple):
    """A request and what may answer it."""

    head: Mapping[str, Any]
    blobs: tuple[bytes, ...]
    bounds: Bounds
    schema: type[PythonAnswer] | type[TableAnswer]

    def read(self, frame: Frame) -> PythonAnswer | TableAnswer:
        """The answer in a frame, its texts without lone surrogates. Raises BadFrame for anything else."""
        try:
            answer = self.schema.model_validate_json(clean(frame.head.decode("utf-8", "surrogatepass")), strict=True)
        except (ValidationError, UnicodeDecodeError) as fault:
            raise BadFrame("something else") from fault
        if isinstance(answer, PythonAnswer) and not self._named(answer, frame):
            raise BadFrame("files that it was not asked for")
        return answer

    def _named(self, answer: PythonAnswer, frame: Frame) -> bool:
        """Whether each file that an answer names is there, was asked for and lies within the working folder."""
        names = answer.files
        asked = bool(self.head["fetch"]) or not names
        return asked and len(set(names)) == len(names) <= len(frame.blobs) and all(map(_is_within, names))


def python_question(request: Request, limits: SandboxLimits, part: str = "test") -> GuestRequest:
    """A request to run Python. Raises ValueError for a file's name that leaves the working folder.

    Args:
        part: which side of a test it is, `test` or `program`; without a program of the request it counts for nothing.
    """
    for name in (*request.files, *request.fetch):
        if not _is_within(name):
            raise ValueError(f"got the file name {name!r}; expected one within the working folder")
    file_bytes = limits.disk_mb << 20 if request.fetch else 0
    bounds = Bounds(_CHAR_BYTES * limits.output_bytes + _BESIDE_BYTES, file_bytes + _FIGURE_BYTES)
    head = {
        "job": "python",
        "part": None if request.program is None else part,
        "source": request.source,
        "max_value_chars": limits.output_bytes,
        "files": list(request.files),
        "fetch": list(request.fetch),
        "bounds": bounds,
    }
    return GuestRequest(head, (request.stdin.encode(errors="replace"), *request.files.values()), bounds, PythonAnswer)


def sql_question(job: str, place: str, request: SqlRequest, timeout_s: float) -> GuestRequest:
    """A request to run SQL."""
    bounds = Bounds(_CHAR_BYTES * request.max_bytes + _ROW_BYTES * request.max_rows + _BESIDE_BYTES)
    limits = {"max_rows": request.max_rows, "max_bytes": request.max_bytes, "timeout_s": timeout_s}
    return GuestRequest(
        {"job": job, "place": place, "query": request.query, **limits, "bounds": bounds}, (), bounds, TableAnswer
    )


def _is_within(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and ".." not in parts and parts[0] != "/" and "\0" not in name
