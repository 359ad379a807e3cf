"""How a mapping of the YAML becomes a model of one kind: by one of its keys, in a registry."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    SerializationInfo,
    ValidationError,
    ValidationInfo,
)
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from rlf.core.registry import Registry, UnknownKind

# The base of every model that reads or writes what lies outside of Python.


class StrictModel(BaseModel):
    """Frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


def wrong_value(reason: str) -> PydanticCustomError:
    """The error of a validator whose whole text is the reason: what was there, what is allowed, what to write."""
    return PydanticCustomError("wrong_value", "{reason}", {"reason": reason})


def _resolve_files(files: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    folder = (info.context or {}).get("folder")
    return files if folder is None else tuple(os.path.normpath(folder / file) for file in files)


Files = Annotated[tuple[str, ...], AfterValidator(_resolve_files)]
"""A field of files, relative to the folder of the file that names them."""


class Kind(StrictModel):
    """The base of the kinds of a registry, which is itself such a base in what declares `chosen_by`.

    A mapping validated as the base becomes the class that its key names; a value is written as its own class.
    """

    chosen_by: ClassVar[str]
    """The key that names the kind. A base declares it, and has one registry."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        if not cls.is_base():
            return handler(source)
        dump = core_schema.plain_serializer_function_ser_schema(cls._dump_value, info_arg=True)
        return core_schema.with_info_plain_validator_function(cls._choose_model, serialization=dump)

    @classmethod
    def is_base(cls) -> bool:
        """Whether the class stands for the kinds of a registry."""
        return "chosen_by" in cls.__dict__

    @classmethod
    def bases(cls) -> list[type[Kind]]:
        """The bases that a class derives from or is, the most special first."""
        return [base for base in cls.__mro__ if issubclass(base, Kind) and base.is_base()]

    @classmethod
    def registry(cls) -> Registry[Any]:
        """The kinds of the nearest base."""
        return Registry.of(cls.bases()[0])

    @classmethod
    def kind_name(cls) -> str:
        """The name by which files choose this kind."""
        return cls.registry().name_of(cls)

    @classmethod
    def _choose_model(cls, value: Any, info: ValidationInfo) -> Kind:
        """The kind's model, from a mapping or as it is. Errors carry the key they are about."""
        if isinstance(value, cls):
            return value
        kind = cls._find_named(value)
        known = cls.chosen_by in kind.model_fields
        fields = value if known else {key: child for key, child in value.items() if key != cls.chosen_by}
        return kind.model_validate(fields, context=info.context)

    @classmethod
    def _find_named(cls, value: Any) -> type[Kind]:
        """The class that a mapping names.

        Raises:
            ValidationError: at the key, when it is missing, no text or unknown.
            PydanticCustomError: the value is no mapping.
        """
        if not isinstance(value, Mapping):
            raise PydanticCustomError("model_type", "expected a mapping")
        if cls.chosen_by not in value:
            raise cls._make_error("missing", value)
        name = value[cls.chosen_by]
        if not isinstance(name, str):
            raise cls._make_error("string_type", name)
        try:
            found: type[Kind] = cls.registry().get(name)
            return found
        except UnknownKind as fault:
            reason = {"reason": str(fault), "meant": fault.meant}
            raise cls._make_error(PydanticCustomError("unknown_kind", "{reason}", reason), name) from fault

    @classmethod
    def _make_error(cls, error: str | PydanticCustomError, value: Any) -> ValidationError:
        details = InitErrorDetails(type=error, loc=(cls.chosen_by,), input=value)
        return ValidationError.from_exception_data(cls.__name__, [details])

    @classmethod
    def _dump_value(cls, value: Kind, info: SerializationInfo) -> dict[str, Any]:
        """The mapping that validates to an equal model."""
        values = value.model_dump(
            mode=info.mode,
            by_alias=info.by_alias,
            exclude_unset=info.exclude_unset,
            exclude_defaults=info.exclude_defaults,
            exclude_none=info.exclude_none,
        )
        return values if cls.chosen_by in values else {cls.chosen_by: value.kind_name()} | values
