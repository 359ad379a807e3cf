"""Documents that declare tools: files, and what is at a url."""

from __future__ import annotations

import json
from pathlib import Path

from rlf.core.errors import RlfError
from rlf.core.yaml_text import load_document
from rlf.tools.imports.found import Imported
from rlf.tools.imports.openai import read_functions
from rlf.tools.imports.openapi import read_operations

_MAX_BYTES = 20_000_000
_TIMEOUT_S = 30.0


def from_openapi(source: str, base_url: str | None) -> Imported:
    """The operations of an OpenAPI 3 or Swagger 2 document: a file or a url, JSON or YAML."""
    try:
        document = load_document(_read_source(source))
    except ValueError as error:
        raise RlfError(f"{source}: neither JSON nor YAML: {error}. Check the address and the file.") from error
    return read_operations(document, base_url=base_url, source=source)


def from_openai(source: str, target: str | None) -> Imported:
    """OpenAI function JSON: one function, a list of them, or a request with `tools`.

    Args:
        target: a module or file with functions of these names, or a url to which `{name}` is posted; they say how
            the functions are described, not where they are.
    """
    if target is None:
        fix = "Give --target functions.py, --target package.module or --target 'http://host/{name}'."
        raise RlfError(f"{source}: OpenAI's functions do not say where calls go. {fix}")
    try:
        value = json.loads(_read_source(source))
    except (ValueError, RecursionError) as error:
        raise RlfError(f"{source}: not JSON: {error}. Check the file.") from error
    return read_functions(value, target)


def find_file(source: str) -> Path:
    """The path of a file. Raises RlfError where there is none."""
    path = Path(source)
    if not path.is_file():
        raise RlfError(f"{source}: no such file. Check the path.")
    return path


def _read_source(source: str) -> str:
    """A file's text, or what is at a url."""
    if not source.startswith(("http://", "https://")):
        try:
            return find_file(source).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise RlfError(f"{source}: not UTF-8 text: {error}. Save it as UTF-8.") from error
    import http.client
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(source, timeout=_TIMEOUT_S) as answer:
            data: bytes = answer.read(_MAX_BYTES + 1)
            if len(data) > _MAX_BYTES:
                raise RlfError(
                    f"{source}: larger than {_MAX_BYTES:,} bytes, the most that are read. Import a part of it."
                )
            return data.decode("utf-8-sig")
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        raise RlfError(f"{source}: cannot be read: {error}. Check the address.") from error
