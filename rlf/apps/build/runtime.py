"""What the functions of a built world share: look-ups that forgive case and space, and errors that say what to do."""

import datetime
import difflib
import sqlite3
import zlib
from pathlib import Path
from typing import Any


class UnknownName(LookupError):
    """Nothing has that name."""


class WrongKind(ValueError):
    """The name is of another kind of thing."""


class UnknownKey(ValueError):
    """The function does not know what is asked for."""


class WrongType(TypeError):
    """An argument has another type than its schema says."""


_CONNECTIONS: list[sqlite3.Connection] = []


def _connection() -> sqlite3.Connection:
    if not _CONNECTIONS:
        path = Path(__file__).with_name("world.db").absolute()
        _CONNECTIONS.append(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False))
    return _CONNECTIONS[0]


def _find(kind: str, columns: list[str], key: str) -> tuple[Any, ...] | None:
    chosen = ", ".join(f'"{column}"' for column in columns)
    row: tuple[Any, ...] | None = (
        _connection().execute(f'SELECT {chosen} FROM "{kind}" WHERE key = ?', (key,)).fetchone()
    )
    return row


def _names(kind: str) -> list[str]:
    return [name for (name,) in _connection().execute(f'SELECT name FROM "{kind}" ORDER BY key')]


def _kind_of(key: str) -> str | None:
    row = _connection().execute("SELECT kind FROM things WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])


def _normal(text: str) -> str:
    return " ".join(text.split()).strip("\"'.").casefold()


def _answer(
    tool: dict[str, Any],
    subject: Any,
    key: Any = None,
    exact: bool = False,
    limit: int = 1,
    as_of: str | None = None,
    kind: str | None = None,
) -> Any:
    """What a tool returns for a subject.

    Args:
        tool: `kind` of its subjects, `relations` by key word, `field` of the value, `function` 0 to 3, with 3 the
            relations that have `former` values.
        exact: whether the name must be spelled as it is stored.
        limit: records at the most, where former ones are returned.
        as_of: a day; there is nothing before the year 2000.
    """
    name = _single(_single(subject, "name"), "names")
    relation = _relation(tool["relations"], key)
    if kind is not None and _normal(kind) != tool["kind"]:
        raise WrongKind(f"got the kind {kind!r}; this function takes the name of a {tool['kind']}")
    if as_of is not None and _day(as_of).year < 2000:
        raise UnknownKey(f"got {as_of!r}; there is nothing before 2000-01-01. Leave the date out for today")
    columns = ["name", relation, *([f"{relation}__before"] if relation in tool.get("former", ()) else [])]
    row = _find(tool["kind"], columns, _normal(name))
    if row is None:
        raise _unknown(tool["kind"], name)
    if exact and row[0] != name:
        raise UnknownName(f"got {name!r}; it is spelled {row[0]!r}")
    return _shaped(tool, row, limit)


def _relation(relations: dict[str, str], key: Any) -> str:
    """The relation that a key word chooses; the only one where there is no key."""
    if key is None:
        return next(iter(relations.values()))
    word = _single(key, "key")
    if word in relations:
        return relations[word]
    for known, relation in relations.items():
        if _normal(known) == _normal(word):
            return relation
    raise UnknownKey(f"got {word!r}; expected one of {', '.join(relations)}")


def _single(value: Any, key: str) -> Any:
    """The one value within an object or a list; a text as it is."""
    if isinstance(value, dict) and len(value) == 1:
        return _single(next(iter(value.values())), key)
    if isinstance(value, list) and len(value) == 1:
        return _single(value[0], key)
    if not isinstance(value, str):
        raise WrongType(f"got {value!r}; expected one text")
    return value


def _day(text: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except (TypeError, ValueError):
        raise WrongType(f"got {text!r}; expected a day such as 2024-05-01") from None


def _unknown(kind: str, name: str) -> Exception:
    other = _kind_of(_normal(name))
    if other is not None:
        return WrongKind(f"{name!r} is a {other}; this function takes the name of a {kind}")
    close = difflib.get_close_matches(name, _names(kind), n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return UnknownName(f"no {kind} has the name {name!r}{hint}")


def _shaped(tool: dict[str, Any], row: tuple[Any, ...], limit: int) -> Any:
    level, name, value = tool["function"], row[0], row[1]
    if level == 0:
        return value
    record = {tool["kind"]: name, tool["field"]: value}
    if level == 1:
        return record
    number = zlib.crc32(f"{tool['field']}:{name}".encode())
    record = {"id": f"{tool['kind'][0].upper()}{number % 9973:04d}", **record, "checked": f"2024Q{number % 4 + 1}"}
    if level == 2:
        return record
    records = [{**record, "status": "current"}]
    records += [{**record, tool["field"]: former, "status": "former"} for former in row[2:]]
    return {"found": len(records), "records": records[: max(1, limit) + 1]}
