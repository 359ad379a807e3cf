"""Names of arms: by what differs between them, in few words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlf.reports.compare.arms import Arm
from rlf.reports.compare.differences import Cause, Difference, differences
from rlf.reports.quantities import visible

_NAMED = 3
"""Differences that a name holds."""
_MAX_VALUE = 24
"""Characters of a value in a name; a longer one is named by its key alone."""
_LISTS = ("tools", "rewards")


def named_by_difference(arms: Sequence[Arm]) -> list[Arm]:
    """The arms with distinct labels: the spec's name where that is enough, then keys with their values.

    Files, versions and machines are named only where names and keys leave two arms alike.
    """
    found = differences(arms)
    settings = [item for item in found if item.cause is Cause.PLAN]
    others = [item for item in found if item.cause is not Cause.PLAN]
    names = [arm.label if len({each.label for each in arms}) > 1 else "" for arm in arms]
    labels = [_join_words([name, *_name_parts(settings, place)]) for place, name in enumerate(names)]
    if len(set(labels)) < len(arms):
        labels = [_join_words([label, *_name_parts(others, place)]) for place, label in enumerate(labels)]
    return [
        arm if "=" in arm.label else replace(arm, label=visible(label or arm.label))  # settings name a sweep's arms
        for arm, label in zip(arms, labels, strict=True)
    ]


def _name_parts(found: Sequence[Difference], place: int) -> list[str]:
    """The first few differences, as one arm has them."""
    keys = [item.what for item in found]
    parts = list(dict.fromkeys(word for item in found if (word := _name_difference(item, place, keys))))
    return [*parts[:_NAMED], *([f"and {len(parts) - _NAMED} more"] if len(parts) > _NAMED else [])]


def _join_words(words: Sequence[str]) -> str:
    return " · ".join(word for word in words if word)


def _name_difference(item: Difference, place: int, keys: Sequence[str]) -> str:
    """A difference as a name of one arm; empty where it is not short."""
    value = item.values[place]
    match item.cause:
        case Cause.PLAN:
            return _name_setting(item, value, keys)
        case Cause.CODE | Cause.PACKAGE:
            return f"{item.what} {value or 'absent'}"
        case Cause.MACHINE:
            return f"{item.what} {(value or 'absent')[:_MAX_VALUE]}"
        case _:
            return f"{item.what.rsplit('/', 1)[-1]} {'absent' if value is None else value[:6]}"


def _name_setting(item: Difference, value: str | None, keys: Sequence[str]) -> str:
    head, *rest = item.what.split(".")
    if head in _LISTS and rest and any(other is None for other in item.values):
        return f"{head[:-1]} {rest[0]}" if value is not None else f"no {head[:-1]} {rest[0]}"
    key = _shorten_key(item.what, keys)
    text = "absent" if value is None else value.strip('"')
    return f"{key}={text}" if len(text) <= _MAX_VALUE else ""


def _shorten_key(key: str, keys: Sequence[str]) -> str:
    """The key's last word, with as many before it as distinguish it from the other keys."""
    words = key.split(".")
    for count in range(1, len(words)):
        end = ".".join(words[-count:])
        if sum(other == end or other.endswith(f".{end}") for other in keys) == 1:
            return end
    return key
