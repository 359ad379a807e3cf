"""JSON Schema (2020-12) of spec, tool and reward files, for editors: from the models, every registered kind included.

Wider than the models where a file is: an interpolation may stand for any value, a tool or reward for a file, a kind's
bare name for its mapping; and a file with `extends` may leave out what the other files say. Narrower in one thing: a
quoted number is no number.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from copy import deepcopy
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import CoreRef, GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import CoreSchema, core_schema

from rlf.chat import FORMATS
from rlf.core.kinds import Kind
from rlf.rewards.term import Term
from rlf.spec.aliases import ALIASES, SERVERS, Alias, sections
from rlf.spec.facts import first_paragraph, leaf_types, meaning, member_docs
from rlf.spec.layers import BARE_KIND_LISTS, BARE_KINDS, ITEM_LISTS
from rlf.spec.models import RunSpec
from rlf.tools.declaration import ToolDeclaration
from rlf.tools.mcp.listing import ToolServer

Schema = dict[str, Any]
Defs = dict[str, Schema]

FILES: dict[str, type[BaseModel]] = {"spec": RunSpec, "tool": ToolDeclaration, "reward": Term}
"""Roles of files, with the model that reads each."""

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_BARE = {*(path[-1] for path in BARE_KINDS), *BARE_KIND_LISTS}
_ITEMS = {"tools": "ToolDeclaration", "rewards": "Term"}
"""Definitions of the items of the spec's lists."""
_LISTS = (("RunSpec", "tools"), ("RunSpec", "rewards"), ("AgentTool", "tools"))
"""Keys with such lists."""
_PART = "Part"
"""Ends the name of a definition of which any key may be left out."""
_FOREIGN = sorted(sections() - set(RunSpec.model_fields))
"""Sections that only other libraries have."""
_FILLED_IN = {"$ref": "#/$defs/Interpolation"}
_SHARED_CHARS = 80
"""Schemas of keys that are longer than this and stand in several mappings are written once."""
_PATH = {"type": "string", "description": "Path of a file, from the folder of this one."}


def schema_of(role: str, models: Defs | None = None) -> Schema:
    """The schema of a file: `spec`, `tool` or `reward`; of models whose schemas are not asked for again."""
    model = FILES[role]
    defs = _make_definitions(deepcopy(models) if models else _model_schemas())
    whole = {"$ref": f"#/$defs/{model.__name__}"}
    root = _layer_spec(defs) if role == "spec" else whole
    described = {"title": f"rlf {role} file", "description": first_paragraph(model)}
    used = _name_used(root, defs)
    return _share_descriptions(
        {"$schema": DIALECT, **described, **root, "$defs": {name: defs[name] for name in sorted(used)}}
    )


def schema_text(role: str) -> str:
    """The schema as a file holds it."""
    return dump_schema(schema_of(role))


def dump_schema(schema: Schema) -> str:
    """A schema as JSON, with a line for each definition: programs read it, and a change is a line of a diff."""
    whole = {key: value for key, value in schema.items() if key != "$defs"}
    lines = [f"{json.dumps(key)}: {_dump_json(value)}" for key, value in whole.items()]
    defs = [f" {json.dumps(name)}: {_dump_json(value)}" for name, value in schema.get("$defs", {}).items()]
    if defs:
        lines.append('"$defs": {\n' + ",\n".join(defs) + "\n}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def write_schemas(folder: Path) -> list[Path]:
    """Writes one file per role, `spec.json`, `tool.json` and `reward.json`; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    models = _model_schemas()
    paths = {folder / f"{role}.json": dump_schema(schema_of(role, models)) for role in FILES}
    for path, text in paths.items():
        path.write_text(text, encoding="utf-8")
    return list(paths)


def model_schema(model: type[BaseModel], title: str) -> Schema:
    """The schema of a file of another model, whose values may be interpolated too."""
    found = model.model_json_schema(schema_generator=ModelSchemas)
    interpolation = {"type": "string", "pattern": r"\$\{", "description": "`${oc.env:NAME}` or `${another.key}`."}
    defs = {**found.pop("$defs", {}), "Interpolation": interpolation}
    for definition in (found, *defs.values()):
        _allow_interpolation(definition)
    return {"$schema": DIALECT, "title": title, **found, "$defs": defs}


def _layer_spec(defs: Defs) -> Schema:
    """A spec: whole, or any part of one with `extends` or with another library's sections, which may say the rest."""
    extends = {
        "description": "Specs that this one is laid over, left to right.",
        "anyOf": [_PATH, {"type": "array", "items": _PATH}],
    }
    defs[f"RunSpec{_PART}"]["properties"]["extends"] = extends
    part, whole = {"$ref": f"#/$defs/RunSpec{_PART}"}, {"$ref": "#/$defs/RunSpec"}
    partial = {"anyOf": [{"required": [key]} for key in ("extends", *_FOREIGN)]}
    return {"type": "object", "if": partial, "then": part, "else": whole}


def _make_definitions(defs: Defs) -> Defs:
    """Every model and kind, whole and in part, as files write them."""
    for role, name in _ITEMS.items():
        defs[f"{name}Item"] = _item_schema(role, name)
    for owner, key in _LISTS:
        defs[owner]["properties"][key]["items"] = {"$ref": f"#/$defs/{_ITEMS[key]}Item"}
    defs["ToolDeclarationItem"] = _or_server(defs["ToolDeclarationItem"], defs["ToolServer"])
    _accept_other_names(defs)
    for definition in defs.values():
        _allow_interpolation(definition)
    # Names of the definitions of which a part is not the same as the whole: a key must be there, in them or below
    found = {name for name, definition in defs.items() if any("required" in part for part in _walk_schema(definition))}
    while more := {name for name in defs if name not in found and _list_refs(defs[name]) & found}:
        found |= more
    parted = found
    parts = {f"{name}{_PART}": _make_partial(defs[name], parted) for name in parted}
    wholes = {name: _complete_part(definition, name, parts) for name, definition in defs.items()}
    for name in _ITEMS.values():
        for named in _list_mappings(f"{name}{_PART}", parts):
            parts[named]["properties"]["use"] = _PATH
            wholes[named.removesuffix(_PART)].setdefault("properties", {})["use"] = False
    interpolation = {"type": "string", "pattern": r"\$\{", "description": "`${oc.env:NAME}` or `${another.key}`."}
    return {**wholes, **parts, "Interpolation": interpolation}


def _model_schemas() -> Defs:
    """Pydantic's schemas of the files' models and of all that they hold, every kind included."""
    models: list[type[BaseModel]] = [*FILES.values(), ToolServer]
    defs: Defs = models_json_schema([(model, "validation") for model in models], schema_generator=ModelSchemas)[1][
        "$defs"
    ]
    defs["ChatSpec"]["properties"]["format"]["enum"] = ["auto", *FORMATS.names()]
    return defs


class ModelSchemas(GenerateJsonSchema):
    """Pydantic's generator with what the models say in words, and with the kinds of each registry."""

    def generate_inner(self, schema: CoreSchema) -> JsonSchemaValue:
        """A base of kinds has no schema of its own but a function that chooses one of them."""
        if schema["type"] != "function-plain":
            return super().generate_inner(schema)
        return self._kinds_union(schema["function"]["function"].__self__)

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Never: titles repeat the name."""
        return False

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        """With what each member means."""
        return super().enum_schema(schema) | {"enumDescriptions": [*member_docs(schema["cls"]).values()]}

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """With the meaning of each key; a kind has the key that chooses it."""
        model, found = schema["cls"], super().model_schema(schema)
        found.pop("title")
        properties = found.setdefault("properties", {})
        for name, info in model.model_fields.items():
            key = info.alias or name
            value = _or_bare(properties[key], leaf_types(info.annotation)[0]) if key in _BARE else properties[key]
            properties[key] = {**value, "description": meaning(model, name)}
        if issubclass(model, Kind):
            words = properties.get(model.chosen_by, {}).get("description", "Chooses this kind.")
            properties[model.chosen_by] = {"const": model.kind_name(), "description": words}
            named = {key for key, value in properties.items() if "const" in value}
            found["required"] = sorted({*found.get("required", ()), *named})
        return found

    def _kinds_union(self, base: type[Kind]) -> JsonSchemaValue:
        """A base of kinds as a union of them, by the key that names one."""
        ref, found = self.get_cache_defs_ref_schema(CoreRef(f"{base.__module__}.{base.__qualname__}:{id(base)}"))
        if ref not in self.definitions:
            self.definitions[ref] = {}  # which a kind that holds kinds refers to
            names = base.registry().names()
            kinds = {name: base.registry().get(name).__pydantic_core_schema__ for name in names}
            union = self.tagged_union_schema(core_schema.tagged_union_schema(kinds, base.chosen_by))
            self.definitions[ref] = {"oneOf": union["oneOf"], "description": first_paragraph(base)}
        return found


def _or_bare(value: Schema, base: type[Kind]) -> Schema:
    """A key that holds a kind, or a list of kinds, with the bare names that files may write."""
    named = {"anyOf": [{"enum": base.registry().names()}, value.get("items", {"$ref": value.get("$ref")})]}
    return {"anyOf": [{"type": "array", "items": named}, *named["anyOf"]]} if "items" in value else named


def _complete_part(definition: Schema, name: str, parts: Defs) -> Schema:
    """A mapping as its part, with the keys that must be there and those of which a part is not the whole."""
    part = parts.get(f"{name}{_PART}")
    if part is None or "properties" not in definition:
        return definition
    whole = {"allOf": [{"$ref": f"#/$defs/{name}{_PART}"}, *definition.get("allOf", ())]}
    whole |= {word: definition[word] for word in ("description", "required") if word in definition}
    own = {key: value for key, value in definition["properties"].items() if value != part["properties"][key]}
    return whole | ({"properties": own} if own else {})


def _accept_other_names(defs: Defs) -> None:
    """Keys under the names that other libraries give them, where `rlf.spec.aliases` has them."""
    for section in _FOREIGN:
        defs["RunSpec"]["properties"][section] = {"type": "object", "description": "Another library's section."}
    for alias in ALIASES:
        for name in alias.names:
            path, _, key = name.rpartition(".")
            owner = _find_owner(defs, path)
            if owner is None:
                continue
            words = f"{alias.source}'s name for {', '.join(alias.canonical)}."
            owner["properties"].setdefault(key, {**_meant_schema(defs, alias), "description": words})
            _stand_in(owner, key, alias.canonical[0].removeprefix(path).lstrip(".").partition(".")[0])


def _meant_schema(defs: Defs, alias: Alias) -> Schema:
    """The schema of what a name of another library stands for; any value where its words are translated."""
    if len(alias.canonical) > 1:
        return {"type": "array", "minItems": len(alias.canonical), "maxItems": len(alias.canonical)}
    path, _, key = alias.canonical[0].rpartition(".")
    owner = _find_owner(defs, path)
    meant: Schema = {} if owner is None or alias.values else owner["properties"].get(key, {})
    return {word: value for word, value in meant.items() if word != "default"}


def _find_owner(defs: Defs, path: str) -> Schema | None:
    """The definition of the mapping at a dotted path; None in another library's sections."""
    owner = defs["RunSpec"]
    for key in filter(None, path.split(".")):
        value = owner.get("properties", {}).get(key, {})
        refs = [arm["$ref"] for arm in (value, *value.get("anyOf", ())) if "$ref" in arm]
        if not refs:
            return None
        owner = defs[refs[-1].rpartition("/")[2]]
    return owner if "properties" in owner else None


def _stand_in(owner: Schema, key: str, required: str) -> None:
    """A key that must be there may be there under another name."""
    choices = owner.setdefault("allOf", [])
    if required in owner.get("required", ()):
        owner["required"].remove(required)
        choices.append({"anyOf": [{"required": [required]}]})
    for choice in choices:
        if choice["anyOf"][0] == {"required": [required]}:
            choice["anyOf"].append({"required": [key]})
    if not choices:
        del owner["allOf"]


def _allow_interpolation(definition: Schema) -> None:
    """Any value but a kind's name may be filled in from elsewhere."""
    for key, value in definition.get("properties", {}).items():
        if "const" in value or (value.get("type") == "string" and not {"pattern", "enum"} & value.keys()):
            continue
        keep = {word: value[word] for word in ("description", "default") if word in value}
        rest = {word: child for word, child in value.items() if word not in keep}
        arms = rest["anyOf"] if rest.keys() == {"anyOf"} else [rest]
        definition["properties"][key] = keep | {"anyOf": [*arms, _FILLED_IN]}


def _make_partial(value: Any, parted: Set[str]) -> Any:
    """The same schema with every key optional, below it too."""
    if isinstance(value, list):
        return [_make_partial(child, parted) for child in value]
    if not isinstance(value, dict):
        return value
    part = {
        "anyOf" if key == "oneOf" else key: _make_partial(child, parted) for key, child in value.items() if key != "if"
    }
    if "if" in value:  # asks what there is; nothing of it may be left out
        part = {"if": value["if"], **part}
    if str(part.get("$ref", "")).rpartition("/")[2] in parted:
        part["$ref"] += _PART
    if part.get("type") == "object" and isinstance(part.get("required"), list):
        del part["required"]
    if part.get("type") == "object":
        part.pop("allOf", None)
    return part


def _item_schema(role: str, name: str) -> Schema:
    """An item of `tools` or `rewards`: a file, a file with changes, or a declaration in place."""
    named = {"if": {"required": ["use"]}, "then": {"$ref": f"#/$defs/{name}{_PART}"}}
    place = {"type": "object", **named, "else": {"$ref": f"#/$defs/{name}"}}
    return {"anyOf": [{**_PATH, "description": f"Path of a {ITEM_LISTS[role]} file."}, place, _FILLED_IN]}


def _or_server(item: Schema, server: Schema) -> Schema:
    """An item of `tools` with the servers, in rlf's words or as other programs write them."""
    several = deepcopy(server)
    servers = {"type": "object", "minProperties": 1, "additionalProperties": {"type": "object"}}
    several["properties"][SERVERS] = {**servers, "description": "Servers by name, as Claude and others write them."}
    del several["properties"]["mcp"]
    several["required"] = [SERVERS]
    others = {"if": _with_key("mcp"), "then": {"$ref": "#/$defs/ToolServer"}, "else": item}
    return {"if": _with_key(SERVERS), "then": several, "else": others}


def _with_key(key: str) -> Schema:
    return {"type": "object", "required": [key]}


def _list_mappings(name: str, parts: Defs) -> Iterator[str]:
    """Names of the mappings that a definition stands for, through its choices."""
    if "anyOf" not in parts[name]:
        yield name
    for arm in parts[name].get("anyOf", ()):
        yield from _list_mappings(arm["$ref"].rpartition("/")[2], parts)


def _name_used(root: Any, defs: Mapping[str, Schema]) -> set[str]:
    """Names of the definitions that are reached from a schema."""
    found: set[str] = set()
    waiting = _list_refs(root)
    while waiting:
        name = waiting.pop()
        found.add(name)
        waiting |= _list_refs(defs[name]) - found
    return found


def _list_refs(value: Any) -> set[str]:
    """Names of the definitions that a schema names itself."""
    return {part["$ref"].rpartition("/")[2] for part in _walk_schema(value) if isinstance(part.get("$ref"), str)}


def _walk_schema(value: Any) -> Iterator[Schema]:
    """Every mapping in a schema, itself first."""
    if isinstance(value, dict):
        yield value
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _walk_schema(child)


def _share_descriptions(schema: Schema) -> Schema:
    """The same schema with each key's description that stands in several mappings written once."""
    counts = Counter(_dump_json(value) for _, value in _list_keys(schema))
    names: dict[str, str] = {}
    for key, value in _list_keys(schema):
        text = _dump_json(value)
        if counts[text] > 1 and len(text) > _SHARED_CHARS and text not in names:
            same = sum(name.partition(".")[0] == key for name in names.values())
            names[text] = f"{key}.{same + 1}"
    shared = {name: json.loads(text) for text, name in names.items()}
    whole = _with_refs(schema, names)
    return {**whole, "$defs": whole["$defs"] | {name: _with_refs(value, names) for name, value in shared.items()}}


def _list_keys(value: Any) -> Iterator[tuple[str, Schema]]:
    """Every key that any mapping may have, with its schema."""
    for part in _walk_schema(value):
        if isinstance(part.get("properties"), dict):
            yield from part["properties"].items()


def _with_refs(value: Any, names: Mapping[str, str]) -> Any:
    """Keys' schemas that have a name replaced by a reference to it."""
    if isinstance(value, list):
        return [_with_refs(child, names) for child in value]
    if not isinstance(value, dict):
        return value
    made = {key: _with_refs(child, names) for key, child in value.items()}
    if isinstance(value.get("properties"), dict):
        for key, child in value["properties"].items():
            if (name := names.get(_dump_json(child))) is not None:
                made["properties"][key] = {"$ref": f"#/$defs/{name}"}
    return made


def _dump_json(value: Schema) -> str:
    return json.dumps(value, ensure_ascii=False)
