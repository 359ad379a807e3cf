"""Paths and addresses that a cluster's nodes may not find as the machine that runs `rlf` does.

Tools and rewards run on the nodes, in the sampling actors. Whether a name is good there cannot be known here: these are
warnings, each with what makes it good everywhere.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rlf.core import Fault
from rlf.spec import LoadedSpec
from rlf.spec.model_files import named_folder
from rlf.spec.nodes import KeyPath
from rlf.spec.reader import shown_path

_SHARED = "Put it on a shared disk under this name"


def find_cluster_warnings(loaded: LoadedSpec, address: str) -> Iterator[Fault]:
    """Warnings of what every node of a cluster must have itself."""
    if named_folder(loaded.spec.model.path) is not None:
        message = f"got {shown_path(Path(loaded.spec.model.path))}; every node of {address} must find it there. "
        yield loaded.fault(("model", "path"), f"{message}Put it on a shared disk, or write a Hugging Face id.")
    values = loaded.spec.model_dump(mode="json", by_alias=True, include={"tools", "rewards", "env"})
    for path, text in _texts(values):
        complaint = _complaint(path, text)
        if complaint is not None:
            yield loaded.fault(path, complaint)


def _complaint(path: KeyPath, text: str) -> str | None:
    """Why a text may mean nothing on a node, and the fix; None where it means the same everywhere."""
    file, _, _ = text.rpartition(".py:")
    match path[-1]:
        case "url" if "://" not in text:
            return f"got the file {shown_path(Path(text))}; every node opens its own. {_SHARED}."
        case "url" if (host := _own(text)) is not None:
            return (
                f"got {host}, which means another machine on every node. Write an address of this machine that the "
                "nodes reach, or start the service on each node."
            )
        case "command":
            return (
                f"got {text}; every sampling actor starts the command on its node. Install it on each, or start one "
                "server with `rlf tools serve`, and write the url."
            )
        case "callable" if file:
            return f"got {shown_path(Path(f'{file}.py'))}; every node must find it there. {_SHARED}."
        case "callable" if not text.startswith("rlf."):
            return f"got {text}; every node imports it from its own packages. Install the package on each."
    return None


def _own(url: str) -> str | None:
    """The host of a URL that names its own user, else None."""
    try:
        host = urlsplit(url).hostname or ""
        address = ipaddress.ip_address(host)
    except ValueError:
        return host if host == "localhost" or host.endswith(".localhost") else None
    return host if address.is_loopback or address.is_unspecified else None


def _texts(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Every text in nested values, with where it stands."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict | list):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _texts(child, (*path, key))
