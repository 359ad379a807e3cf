"""How a field holds one kind of a registry: `{kind: NAME, ...}` in YAML and JSON, the kind's own model in Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, GetCoreSchemaHandler, SerializationInfo, ValidationInfo
from pydantic_core import CoreSchema, core_schema

from rlf.core import Registry
from rlf.core.kinds import chosen_kind


@dataclass(frozen=True)
class KindOf:
    """Annotation of a field: the value is a kind of `registry`, chosen by its key `kind`."""

    registry: Registry[Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        dump = core_schema.plain_serializer_function_ser_schema(self.dump, info_arg=True)
        return core_schema.with_info_plain_validator_function(self.validate, serialization=dump)

    def validate(self, value: Any, info: ValidationInfo) -> Any:
        """The kind's model, from a mapping or as it is. Errors carry the key they are about."""
        if isinstance(value, self.registry.base):
            return value
        model = chosen_kind(self.registry, value)
        assert issubclass(model, BaseModel), f"{model} is no pydantic model"
        fields = value if "kind" in model.model_fields else {k: v for k, v in value.items() if k != "kind"}
        return model.model_validate(fields, context=info.context)

    def dump(self, value: Any, info: SerializationInfo) -> dict[str, Any]:
        """The mapping that validates to an equal model."""
        return {"kind": self.name_of(value), **value.model_dump(mode=info.mode)}

    def name_of(self, value: Any) -> str:
        """The kind of a model: its file's name, or that of its entry point."""
        file = type(value).__module__.rpartition(".")[2]
        names = self.registry.names()
        candidates = [file, *names] if file in names else names
        return next(name for name in candidates if self.registry.get(name) is type(value))
