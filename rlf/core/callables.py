"""Callables named in a spec: `pkg.module:name` or `path/file.py:name`.

Naming is pure (`CallableName` resolves a file against the spec's folder); `load_callable` alone imports, and
announces it first (`rlf.core.callables`). What the source says without an import is read by `rlf.core.definitions`.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from traceback import walk_tb
from types import FrameType, ModuleType, TracebackType
from typing import Annotated, Any
from urllib.parse import unquote

from pydantic import AfterValidator, ValidationInfo
from pydantic_core import PydanticCustomError

from rlf.core.errors import RlfError, describe_type
from rlf.core.identity import Stamp, hash_bytes, hash_path, stamp_file
from rlf.core.process import OWN, extend_path, library_folders, show_place
from rlf.core.redact import strike_environment
from rlf.core.registry import nearest

# The gate in front of code that is not rlf's own: what a spec names and rlf imports or starts.
#
# Whatever runs such code calls `about_to_run` first. A command that only looks has it announced, or refused.


class NotRun(RlfError):
    """Foreign code was not run, so its result is unknown."""


@dataclass(frozen=True, slots=True)
class _Gate:
    announce: Callable[[str], None] | None
    """Takes what is about to run; None refuses it."""
    announced: set[str] = field(default_factory=set)


_GATE: ContextVar[_Gate | None] = ContextVar("foreign_code", default=None)


@contextmanager
def foreign_code(announce: Callable[[str], None] | None) -> Iterator[None]:
    """Has foreign code announced before it first runs within the block; None: refused with NotRun."""
    token = _GATE.set(_Gate(announce))
    try:
        yield
    finally:
        _GATE.reset(token)


def about_to_run(what: str) -> None:
    """Announces foreign code, e.g. `import tools/search.py`. Raises NotRun where it may not run."""
    gate = _GATE.get()
    if gate is None or what in gate.announced:
        return
    if gate.announce is None:
        raise NotRun(f"this check must {what}, which --no-import forbids. Remove --no-import to run the check.")
    gate.announced.add(what)
    gate.announce(what)


_DOTTED = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"
_NAME = re.compile(rf"(?:{_DOTTED}|.+\.py):{_DOTTED}")


def resolve_callable(name: str, folder: Path | None) -> str:
    """The name with its file made absolute against `folder`; a module's name as it is. Raises ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"got {name!r}; expected `package.module:name` or `path/file.py:name`")
    place, _, attribute = name.rpartition(":")
    if folder is None or not place.endswith(".py"):
        return name
    return f"{os.path.normpath(folder / place)}:{attribute}"


def _resolve_place(name: str, info: ValidationInfo) -> str:
    folder = (info.context or {}).get("folder")
    try:
        return resolve_callable(name, folder)
    except ValueError as fault:
        raise PydanticCustomError("callable_name", "{reason}", {"reason": str(fault)}) from fault


CallableName = Annotated[str, AfterValidator(_resolve_place)]
"""A field that names a callable; validated with `context={"folder": Path}`, files resolve against that folder."""


def load_module(place: str) -> ModuleType:
    """Imports a module or a file. Raises RlfError that says what to fix."""
    return _load_module(place, place)


def load_callable(name: str) -> Callable[..., Any]:
    """Imports what `name` stands for. Raises RlfError that names it and says what to fix."""
    place, _, attribute = name.rpartition(":")
    found: Any = _load_module(place, name)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise RlfError(missing_name(name, part, dir(found)))
        found = getattr(found, part)
    if not callable(found):
        raise RlfError(f"{name!r} is {describe_type(found)}, which cannot be called. Name a function.")
    return found  # type: ignore[no-any-return]  # callable() does not narrow Any


def _load_module(place: str, name: str) -> ModuleType:
    if not place.endswith(".py") and not re.fullmatch(_DOTTED, place):
        raise RlfError(f"cannot import {name!r}: expected `package.module`, or a file that ends in `.py`.")
    if place.partition(".")[0] != "rlf":
        about_to_run(f"import {show_place(place)}")
        extend_path()
        _watch_opens()
    known = set(sys.modules)
    try:
        module = _load_module_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except KeyboardInterrupt:
        raise
    except BaseException as fault:  # a library in Rust panics with one that is no Exception
        from rlf.core.mistakes import import_fault

        raise RlfError(import_fault(name, fault)) from fault
    finally:
        _remember_files(sys.modules.keys() - known)
    _remember_files([module.__name__])
    _FOREIGN.update(_find_folders(module))
    return module


_IMPORTED: dict[str, tuple[Path, Stamp | None, str]] = {}
"""Users' modules that were imported for callables, with what they imported: the file of each, what it is known by since
it was last read, and its hash when it was imported."""


def _remember_files(names: Collection[str]) -> None:
    for name in names:
        file: str | None = getattr(sys.modules.get(name), "__file__", None)
        if file is None or name in _IMPORTED or name.partition(".")[0] in ("rlf", "__main__"):
            continue
        if not file.startswith(library_folders()):
            with suppress(OSError):
                _IMPORTED[name] = Path(file), stamp_file(Path(file)), hash_path(Path(file))


@cache
def _package_folders() -> tuple[str, ...]:
    return tuple({sysconfig.get_path(name) for name in ("purelib", "platlib")})


def forget_edited() -> None:
    """Has users' modules imported again, all of them where one has changed, since any may hold values of another.

    Whatever checks or tries what users wrote begins with this, so that a process that lives on sees their edits.
    """
    importlib.invalidate_caches()
    if not any(_is_edited(name, *known) for name, known in _IMPORTED.items()):
        return
    for name, (file, *_) in _IMPORTED.items():
        sys.modules.pop(name, None)
        with suppress(OSError, NotImplementedError):  # Python takes it for new where the second and the size are equal
            Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)
    _IMPORTED.clear()


def _is_edited(name: str, file: Path, stamp: Stamp | None, sha256: str) -> bool:
    now = stamp_file(file)
    if now is not None and now == stamp:
        return False
    try:
        if hash_path(file) != sha256:
            return True
    except OSError:
        return True
    _IMPORTED[name] = file, now, sha256  # taken before the file was read: an edit since then shows in the next one
    return False


def locate(error: BaseException) -> tuple[str, str]:
    """` (file.py:7)` for the last line of users' modules that an error passed through; empty where it passed none.

    Then what to do where users' code, or an installed package, imports a module that is not there: waiting is in vain.
    Empty for any other error, such as that of an import in a text that a model wrote, which is in no such file.
    """
    # past what the error's class may have in its place
    trace: TracebackType | None = BaseException.__dict__["__traceback__"].__get__(error)
    passed = [(frame.f_code.co_filename, line) for frame, line in reversed([*walk_tb(trace)])]
    own = {str(file): file.parent for file, *_ in _IMPORTED.values()}
    where = next((f" ({Path(file).name}:{line})" for file, line in passed if file in own), "")
    missing = getattr(error, "name", None) if issubclass(type(error), ModuleNotFoundError) else None
    last = next((file for file, _ in passed if not file.startswith("<frozen importlib")), "")
    if not isinstance(missing, str) or not (Path(last).parent in own.values() or last.startswith(_package_folders())):
        return where, ""
    from rlf.core.mistakes import install

    return where, f". {install(strike_environment(missing).partition('.')[0])}".removesuffix(".")


def missing_name(name: str, part: str, known: Sequence[str]) -> str:
    """The message for a callable that its module does not have."""
    close = nearest(part, [each for each in known if not each.startswith("_")]) or "."
    return f"{name!r}: {name.rpartition(':')[0]} has no {part!r}{close} Define it, or correct the name after `:`."


def _load_module_file(path: Path) -> ModuleType:
    path = path.resolve()
    name = f"rlf_file_{hash_bytes(os.fsencode(path))[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, f"no loader for {path}"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


# The files that foreign code reads: what its results depend on beside its own code.
#
# An audit hook sees each opening of a file in this process. It is the foreign code's where the innermost frame that is
# no library's is of a module that is not rlf's, or of an installed package that a callable is in. What a library opens
# on a thread of its own, as it does for code that awaits, is nobody's by its frames.

_MAX_OPENED = 10_000
_OPENED: dict[tuple[str, str], None] = {}
"""Files that were opened for reading, each behind the file of the code that did; behind an empty text by whom is not
known."""
_FOREIGN: set[tuple[str, str]] = set()
"""Installed packages that callables are in: each folder, and the file that stands for its code."""


def note_opened(name: str, paths: Collection[str]) -> None:
    """Takes files that another process opened for a callable, or for the code in a file."""
    place = name.rpartition(":")[0] or name
    file = place if place.endswith(".py") else getattr(sys.modules.get(place), "__file__", None) or ""
    _OPENED.update(dict.fromkeys((file, path) for path in paths))


def opened_files(after: int = 0) -> list[tuple[str, str]]:
    """The files that foreign code has opened in this process, behind the first so many: the opener's and the opened."""
    return list(_OPENED)[after:] if len(_OPENED) > after else []


@cache
def _watch_opens() -> None:
    """Once for this process, since a hook cannot be removed: from the first foreign code on."""
    sys.addaudithook(_see_event)


def _see_event(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in ("open", "sqlite3.connect"):
        return
    with suppress(Exception):  # raised here, it would be the foreign code's
        path = _name_opened(*arguments) if event == "open" else _name_database(arguments[0])
        if path is not None and len(_OPENED) < _MAX_OPENED:
            opener = _find_opener(sys._getframe(1))
            if opener is not None:
                _OPENED.setdefault((opener, path))


def _name_opened(path: Any, mode: str | None, flags: int) -> str | None:
    """The whole path of a file that is opened to be read and is no library's; of an import of one, the package's."""
    is_written = flags & (os.O_WRONLY | os.O_RDWR) if mode is None else set("wax+") & set(mode)
    if is_written or isinstance(path, int):
        return None
    whole = os.path.normpath(Path.cwd() / os.fsdecode(path))
    if not whole.startswith((*library_folders(), OWN)):
        return whole
    # Also what is imported by a name that is only known at run time: importing a module opens its file.
    site = next((root for root in _package_folders() if whole.startswith(root + os.sep)), None)
    if site is None or whole.startswith(OWN) or not whole.endswith((".py", ".pyc")):
        return None
    first, *rest = Path(whole).relative_to(site).parts
    return f"{site}{os.sep}{rest[0].partition('.')[0] if first == '__pycache__' else first}"


def _name_database(database: Any) -> str | None:
    text = os.fsdecode(database)
    if text.startswith("file:"):
        text = unquote(text.removeprefix("file:").partition("?")[0])
    return None if text in ("", ":memory:") else os.path.normpath(Path.cwd() / text)


def _find_opener(frame: FrameType | None) -> str | None:
    """The file of the foreign code that a frame is of or was called by; empty where none but libraries' are there."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(OWN):
            return None
        for folder, code in _FOREIGN:
            if file.startswith(folder):
                return code
        if not file.startswith(("<", *library_folders())):
            return file
        frame = frame.f_back
    return ""


def _find_folders(module: ModuleType) -> Iterator[tuple[str, str]]:
    """The folder of the package that an installed module is in, and the package's own file."""
    top = sys.modules.get(module.__name__.partition(".")[0])
    file = getattr(top, "__file__", None)
    if top is not None and file is not None and file.startswith(library_folders()) and top.__name__ != "rlf":
        yield (str(Path(file).parent) + os.sep if file.endswith("__init__.py") else file), file


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine: `async def`, a partial of one, or an object with `async __call__`."""
    while isinstance(function, partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - the method itself is asked


def source_hash(function: Callable[..., Any]) -> str:
    """sha256 of the file that defines `function`; of its qualified name where no Python file does."""
    while isinstance(function, partial):
        function = function.func
    target = inspect.unwrap(function)
    if not (inspect.isroutine(target) or inspect.isclass(target)):
        target = type(target)
    try:
        return hash_path(Path(inspect.getfile(target)))
    except (TypeError, OSError):
        return hash_bytes(f"{target.__module__}:{target.__qualname__}".encode())


# Calls that block, found in the source of an `async def`: it stops every other trajectory while it waits.
