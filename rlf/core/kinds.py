"""How a mapping of the YAML chooses the class that reads it: by the key `kind`, in a registry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from rlf.core.registry import Registry, UnknownKind

T = TypeVar("T")


def chosen_kind(registry: Registry[T], data: Any, key: str = "kind") -> type[T]:
    """The class that `data[key]` names. For pydantic validators.

    Raises:
        ValidationError: at `key`, when it is missing, no text or unknown.
        PydanticCustomError: `data` is no mapping.
    """
    if not isinstance(data, Mapping):
        raise PydanticCustomError("model_type", "expected a mapping")
    if key not in data:
        raise _error(registry, "missing", key, data)
    name = data[key]
    if not isinstance(name, str):
        raise _error(registry, "string_type", key, name)
    try:
        return registry.get(name)
    except UnknownKind as fault:
        custom = PydanticCustomError("unknown_kind", "{reason}", {"reason": str(fault), "meant": fault.meant})
        raise _error(registry, custom, key, name) from fault


def _error(registry: Registry[Any], error: str | PydanticCustomError, key: str, value: Any) -> ValidationError:
    details = InitErrorDetails(type=error, loc=(key,), input=value)
    return ValidationError.from_exception_data(registry.noun, [details])
