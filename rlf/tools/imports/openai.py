"""OpenAI's function JSON as tools. Pure."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from rlf.tools.imports.found import FromEnvironment, Imported, Json

_MAX_SHOWN = 80


def read_functions(value: Any, target: str) -> Imported:
    """One function, a list of them, or those of a request with `tools`.

    Args:
        target: a module or file with functions of these names, or a url to which `{name}` is posted.
    """
    items = value.get("tools", [value]) if isinstance(value, dict) else value
    found = Imported()
    for item in items if isinstance(items, list) else [items]:
        function = item.get("function", item) if isinstance(item, dict) else {}
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str) or not name:
            found.left_out.append(f"{json.dumps(item)[:_MAX_SHOWN]}: has no name")
            continue
        schema = function.get("parameters") or {"type": "object", "properties": {}}
        about = {"name": name, "description": function.get("description") or name, "inputSchema": schema}
        found.tools.append({**about, "target": _make_target(target, name)})
    return found


def _make_target(target: str, name: str) -> Json:
    """Where calls go. References in the user's own target are filled in; the name holds none."""
    if target.startswith(("http://", "https://")):
        return {
            "kind": "http",
            "url": FromEnvironment(target.replace("{name}", quote(name, safe=""))),
            "method": "POST",
        }
    return {"kind": "python", "callable": f"{target}:{name}"}
