"""`.env` next to a spec: variables for `${oc.env:NAME}` and for the user's own code. Real variables win.

The values become part of this process's environment, as if the user had exported them, and are recorded nowhere: not
in the list of a run's files, not in messages. Invariant: what one spec's files set is gone when the next is loaded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from rlf.core import Fault, Place
from rlf.spec.reading.reader import MAX_BYTES, shown_path

_NAME = ".env"
# `export` in front is allowed, since shells read these files too.
_LINE = re.compile(r"(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*=\s*(?P<value>.*)")
# Single quotes hold text as it is, double quotes have escapes; a comment may follow either.
_QUOTED = re.compile(r"""(?:'(?P<plain>[^']*)'|"(?P<escaped>(?:[^"\\]|\\.)*)")\s*(?:#.*)?""")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
# Only the name: a default after a comma does not change which variable is read.
_MENTION = re.compile(r"\$\{\s*oc\.env:\s*([A-Za-z_][A-Za-z0-9_]*)")

_taken: dict[str, str] = {}
"""Variables of this process from `.env` files."""


def forget_env_files() -> None:
    """Takes out of the environment what `.env` files brought in, unless someone changed it since."""
    for name, value in _taken.items():
        if os.environ.get(name) == value:
            del os.environ[name]
    _taken.clear()


def take_env_file(folder: Path, faults: list[Fault]) -> None:
    """Adds the variables of a folder's `.env` that the environment does not have yet."""
    for name, value in _read_variables(folder / _NAME, faults):
        if name not in os.environ:
            os.environ[name] = _taken[name] = value


def read_env_files(folders: Iterable[Path]) -> dict[str, str]:
    """Variables of the `.env` files of folders, as far as they can be read; the environment stays as it is."""
    return {name: value for folder in folders for name, value in _read_variables(folder / _NAME, [])}


def mentioned(texts: Iterable[str]) -> set[str]:
    """The environment variables that texts with `${oc.env:NAME}` speak of."""
    return {name for text in texts for name in _MENTION.findall(text)}


def _read_variables(path: Path, faults: list[Fault]) -> Iterator[tuple[str, str]]:
    shown = shown_path(path)
    try:
        if not path.is_file():
            return
        if path.stat().st_size > MAX_BYTES:
            faults.append(Fault(Place(shown), "", f"the file has over {MAX_BYTES:,} bytes. Keep NAME=value lines."))
            return
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        faults.append(Fault(Place(shown), "", "this is not UTF-8; a .env file is UTF-8 text. Save it as UTF-8."))
        return
    except OSError as error:
        faults.append(Fault(Place(shown), "", f"cannot be read: {error.strerror}. Check its permissions."))
        return
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield from _read_pair(line.strip(), Place(shown, number, 1), faults)


def _read_pair(line: str, place: Place, faults: list[Fault]) -> Iterator[tuple[str, str]]:
    """One line's variable. The messages show nothing of the line: it may be a secret."""
    found = _LINE.fullmatch(line)
    if found is None or "\0" in line:
        faults.append(
            Fault(place, "", "this is not a NAME=value line. Write e.g. SEARCH_KEY=..., or # before a comment.")
        )
        return
    value = found["value"]
    if value[:1] not in ("'", '"'):
        yield found["name"], re.split(r"\s#", value, maxsplit=1)[0].strip()
        return
    quoted = _QUOTED.fullmatch(value)
    if quoted is None:
        faults.append(Fault(place, found["name"], "the quote is not closed on this line. Close it, or remove it."))
    elif quoted["plain"] is not None:
        yield found["name"], quoted["plain"]
    else:
        yield found["name"], re.sub(r"\\(.)", lambda at: _ESCAPES.get(at[1], at[1]), quoted["escaped"])
