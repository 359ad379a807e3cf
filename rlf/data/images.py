"""What a row has beside texts: its images, as references for each mark in the prompt, and the tools that it names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlf.core import nearest
from rlf.core.errors import RlfError
from rlf.core.images import read_image_file, read_image_header
from rlf.core.plain_json import NoJsonValue, read_json
from rlf.types.task import IMAGE_MARK, Image, Message

_HEADER_BYTES = 65_536
"""Read of a file to know what it is; the whole where that is not enough, as of JPEGs with large previews."""


def with_images(messages: Sequence[Message], cell: Any, folder: Path) -> tuple[Message, ...]:
    """A row's messages with its images in the places of the marks in user messages.

    Args:
        cell: what the column holds: a path, a `data:` URI, bytes, `{bytes, path}` as Hugging Face writes it, or a
            list of these; None for a row without any.
        folder: where paths start.

    Raises:
        ValueError: one is missing or no image, or there is not one for each mark.
    """
    listed = cell if isinstance(cell, list | tuple) else [] if cell is None else [cell]
    references = [_make_reference(item, folder) for item in listed]
    marks = sum(message.content.count(IMAGE_MARK) for message in messages if message.role == "user")
    if not references:
        return tuple(messages)
    if marks != len(references):
        raise ValueError(
            f"images of the row: {len(references)}, {IMAGE_MARK} in its user messages: {marks}; expected as many of "
            f"both. Write {IMAGE_MARK} where an image belongs, e.g. by `template: '{IMAGE_MARK}{{{{ question }}}}'`."
        )
    left = iter(references)
    return tuple(
        replace(message, images=tuple(next(left) for _ in range(message.content.count(IMAGE_MARK))))
        if message.role == "user"
        else message
        for message in messages
    )


def _make_reference(item: Any, folder: Path) -> str:
    """A checked reference to one image."""
    if isinstance(item, Mapping) and {"bytes", "path"} >= item.keys():
        item = item.get("path") if item.get("bytes") is None else item["bytes"]
    if isinstance(item, bytes):
        header = read_image_header(item)
        if header is None:
            raise ValueError(
                f"got {len(item)} bytes that are not a PNG, JPEG, GIF or WebP file. Convert the image to one."
            )
        return Image(item, header.mime_type).reference
    if not isinstance(item, str) or not item.strip():
        raise ValueError(f"got {str(item)[:60]!r}; expected a path, a data: URI or the bytes of an image.")
    if item.startswith("data:"):
        try:
            read_image_file(item)
        except RlfError as error:
            raise ValueError(str(error)) from error
        return item
    if item.startswith(("http://", "https://")):
        raise ValueError(
            f"got {item!r}; rlf fetches no images, since such a run could not be repeated. Save them and write paths."
        )
    return _of_path((folder / item).absolute())


def _of_path(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_HEADER_BYTES)
            header = read_image_header(data) or read_image_header(data + file.read())
    except OSError as error:
        raise ValueError(f"{path}: the image cannot be read: {error.strerror}. Check the path.") from error
    if header is None:
        raise ValueError(f"{path} is not a PNG, JPEG, GIF or WebP file. Convert the image to one.")
    return str(path)


def tools_of_row(
    value: Any, declared: Sequence[str] | None, undeclared: Counter[str] | None = None
) -> tuple[str, ...] | None:
    """Names of the tools that a row's trajectories may use; None, where the row says nothing, for all.

    A name must be a declared tool's. Function descriptions (OpenAI's form, FTRL's rows) of tools that the spec does not
    declare are counted, and left out of the names.

    Args:
        declared: the spec's tools; None takes any name.
        undeclared: counts them by name.

    Raises:
        ValueError: what is wrong with the value.
    """
    if value is None or value == "":
        return None
    items = _read_list(value)
    names: list[str] = []
    for item in items:
        described = isinstance(item, Mapping)
        function = item.get("function", item) if isinstance(item, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else item
        if not isinstance(name, str):
            raise ValueError(f"got {item!r:.60}; expected the name of a tool. Write a list of names.")
        if declared is None or name in declared:
            names.append(name)
        elif described and undeclared is not None:
            undeclared[name] += 1
        elif not described:
            close = nearest(name, list(declared))
            raise ValueError(f"no tool {name!r}{close} (declared: {', '.join(declared) or 'none'}). Name one of these.")
    return tuple(dict.fromkeys(names))


def _read_list(value: Any) -> list[Any]:
    if isinstance(value, str):
        try:
            value = read_json(value)
        except NoJsonValue:
            raise
        except ValueError:
            value = [value]
    if not isinstance(value, list | tuple):
        raise ValueError(f"got {value!r:.60}; expected a list of tool names. Write e.g. [search, calculator].")
    return list(value)
