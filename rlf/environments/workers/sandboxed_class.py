"""What runs in the sandbox for `isolation: sandbox`: an instance of a user's class. The standard library alone."""

import asyncio
import base64
import dataclasses
import inspect
import json
import pickle
import random
import sys
import types
from numbers import Real
from typing import Any, NamedTuple

_REFUSALS = (ValueError, TypeError, LookupError, ArithmeticError, PermissionError)
_MODULE = "world"
_MAX_FAULT_CHARS = 4096
_state: dict[str, Any] = {}


class Step(NamedTuple):
    """As `rlf.environments.Step`, which a class may import; nothing else of rlf is here."""

    said: Any
    reward: float | None = None
    done: bool = False


def make_instance(asked: str) -> str:
    """Runs the class's file and makes the instance; JSON of the answer."""
    start = json.loads(asked)
    package, part = types.ModuleType("rlf"), types.ModuleType("rlf.environments")
    vars(part)["Step"] = Step
    module = types.ModuleType(_MODULE)
    sys.modules.update({"rlf": package, "rlf.environments": part, _MODULE: module})
    try:
        exec(compile(start["source"], start["file"], "exec"), vars(module))
        _state["instance"] = getattr(module, start["name"])(**start["args"])
    except BaseException as fault:  # noqa: BLE001 - the user's code may raise anything
        return json.dumps({"fault": _describe_fault(fault)})
    return _answer_with(None)


def call_instance(asked: str) -> str:
    """Calls a method, as a tool or of the instance's life; JSON of the answer."""
    name, arguments, is_tool = json.loads(asked)
    if name == "reset" and isinstance(arguments.get("task"), dict):
        arguments["task"] = types.SimpleNamespace(**arguments["task"])
    try:
        return _answer_with(_call_method(name, arguments, is_tool))
    except _REFUSALS as fault:
        return json.dumps({"refusal" if is_tool else "fault": _describe_fault(fault)})
    except BaseException as fault:  # noqa: BLE001 - the user's code may raise anything
        return json.dumps({"fault": _describe_fault(fault)})


def _call_method(name: str, arguments: dict[str, Any], is_tool: bool) -> Any:
    if name == "restore":
        arguments = {"snapshot": pickle.loads(base64.b64decode(arguments["snapshot"]))}
    if name == "seed" and not is_tool:
        return random.seed(arguments["seed"])
    value = getattr(_state["instance"], name)(**arguments)
    if inspect.iscoroutine(value):
        _state.setdefault("loop", asyncio.new_event_loop())
        value = _state["loop"].run_until_complete(value)
    return base64.b64encode(pickle.dumps(value)).decode() if name == "snapshot" and value is not None else value


def _answer_with(value: Any) -> str:
    """JSON of a value; the value that JSON has no word for is the class's fault."""
    instance = _state["instance"]
    values = {name: getattr(instance, name, None) for name in ("done", "reward", "score")}
    kept = {name: one for name, one in values.items() if isinstance(one, Real)}
    step = list(value) if isinstance(value, Step) else None
    try:
        return json.dumps({"value": None if step else value, "step": step, "kept": kept}, default=_plain)
    except (TypeError, ValueError) as fault:
        return json.dumps({"fault": f"its result cannot leave the sandbox: {_describe_fault(fault)}"})


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def _describe_fault(fault: BaseException) -> str:
    name = type(fault).__name__
    try:
        text = str(fault)[:_MAX_FAULT_CHARS]
    except BaseException as other:  # noqa: BLE001 - `__str__` is the user's code too
        text = f"its text cannot be shown ({type(other).__name__})"
    return f"{name}: {text}" if text else name
