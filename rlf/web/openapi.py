"""Response schemas of each operation of `/api/v1`, from the types that its function returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlf.api.output_schema import returned_schemas

_REFS = "#/components/schemas/"
_FAULT = {
    "type": "object",
    "properties": {"code": {"type": "string"}, "message": {"type": "string"}, "faults": {"type": "array"}},
    "required": ["code", "message", "faults"],
}
_ERROR = {"type": "object", "properties": {"error": _FAULT}, "required": ["error"]}


def describe_answers(
    document: dict[str, Any], answers: Mapping[str, tuple[int, Callable[..., Any] | str]]
) -> dict[str, Any]:
    """An OpenAPI document with the schemas of answers and errors; those of streams stay as they are.

    Args:
        answers: by operation its status, and the function or the task in a fork whose result it is.
    """
    from rlf.api.fresh.tasks import TASKS  # loads what checks load

    functions = {name: TASKS[one] if isinstance(one, str) else one for name, (_, one) in answers.items()}
    schemas, definitions = returned_schemas(functions, _REFS)
    components = document.setdefault("components", {}).setdefault("schemas", {})
    components |= definitions | {"Error": _ERROR}
    error = {"description": "What is wrong", "content": {"application/json": {"schema": {"$ref": f"{_REFS}Error"}}}}
    for methods in document["paths"].values():
        for operation in methods.values():
            name = operation["operationId"]
            if name in schemas:
                content = {"application/json": {"schema": schemas[name]}}
                operation["responses"] = {str(answers[name][0]): {"description": "Done", "content": content}}
            operation["responses"]["default"] = error
    return document
