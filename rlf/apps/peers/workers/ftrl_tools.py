"""What runs in the sandbox for a row of FTRL: its tools, each in a module of its own. The standard library alone."""

import json
import types
from typing import Any

_tools: dict[str, Any] = {}


def load_sources(codes: str) -> str:
    """Runs each tool's source; JSON of what is wrong with one, empty where nothing is."""
    for name, source in json.loads(codes).items():
        module = types.ModuleType(name)
        try:
            exec(compile(source, f"<{name}>", "exec"), vars(module))
            _tools[name] = getattr(module, name)
        except BaseException as fault:  # noqa: BLE001 - the row's code may raise anything
            return json.dumps(f"the source of the tool {name!r} fails: {_describe_fault(fault)}")
    return json.dumps("")


def call_source(asked: str) -> str:
    """JSON of what a tool returns, or of the refusal that it raises."""
    name, arguments = json.loads(asked)
    if name not in _tools:
        return json.dumps({"refusal": f"this row has no tool {name!r}"})
    try:
        value = _tools[name](**arguments)
    except Exception as fault:  # noqa: BLE001 - the row's code may raise anything; the model reads what
        return json.dumps({"refusal": _describe_fault(fault)})
    try:
        return json.dumps({"value": value})
    except (TypeError, ValueError):
        return json.dumps({"value": str(value)})


def _describe_fault(fault: BaseException) -> str:
    try:
        return f"{type(fault).__name__}: {fault}"
    except BaseException as other:  # noqa: BLE001 - `__str__` is the row's code too
        return f"{type(fault).__name__}: its text cannot be shown ({type(other).__name__})"
