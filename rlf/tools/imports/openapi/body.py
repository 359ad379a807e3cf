"""The body of an operation: its fields as arguments, and how they are written. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rlf.tools.http.encoding import BodyFormat, Encoding
from rlf.tools.imports.openapi.arguments import Arguments, filled
from rlf.tools.imports.openapi.parameters import encoding_of
from rlf.tools.imports.openapi.values import Json, LeftOut, Schemas, as_mapping, as_text, follow, merged_object

_BODY = "body"
_FORM, _MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
_TEXTS = ("application/xml", "application/octet-stream")


@dataclass(slots=True)
class Body:
    """A body as a target says it."""

    target: Json = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)


def read_body(document: Json, schemas: Schemas, written: Any, arguments: Arguments) -> Body:
    """The body that an operation asks for, with its arguments added; none where it asks for none.

    Raises:
        LeftOut: it is of a type that arguments cannot be written in.
    """
    whole = follow(document, written)
    content = as_mapping(whole.get("content"))
    if not whole:
        return Body()
    kind = _choose_type(list(content))
    is_form = _strip_parameters(kind) in (_FORM, _MULTIPART)
    media = as_mapping(content[kind])
    schema, required = schemas.read(media.get("schema")), whole.get("required") is True
    if _is_text(kind):
        schema = {**schema, "type": "string"}
    about = as_text(whole.get("description"))
    optional = {} if required else {"body_required": False}
    fields = None if _is_text(kind) else merged_object(schema)
    if fields is None:
        if is_form and required:
            raise LeftOut(f"its body is {kind} without named fields")
        if is_form:
            return Body()
        one = {**schema, "description": about} if about and "description" not in schema else schema
        argument = arguments.add(_BODY, one, place=_BODY, required=required)
        headers = {} if _is_plain(kind) else {"Content-Type": kind}
        return Body({"body": filled(argument), **optional}, headers)
    body = _body_template(fields, arguments, required)
    if not is_form:
        return Body({"body": body, **optional}, {} if _is_plain(kind) else {"Content-Type": kind})
    way = BodyFormat.FORM if _strip_parameters(kind) == _FORM else BodyFormat.MULTIPART
    encoding = _field_encodings(fields, as_mapping(media.get("encoding")), way)
    return Body({"body": body, "body_format": str(way), **optional, **({"encoding": encoding} if encoding else {})})


def _choose_type(kinds: list[str]) -> str:
    """The type that arguments are written in: JSON before forms before text."""
    ways = (
        _is_json,
        lambda kind: _strip_parameters(kind) == _FORM,
        lambda kind: _strip_parameters(kind) == _MULTIPART,
        _is_text,
    )
    found = next((kind for way in ways for kind in kinds if way(kind)), None)
    if found is None:
        raise LeftOut(f"its body is {', '.join(kinds) or 'of no type'}; JSON, forms and text can be sent")
    return found


def _strip_parameters(kind: str) -> str:
    return kind.split(";")[0].strip().lower()


def _is_json(kind: str) -> bool:
    return _strip_parameters(kind).endswith(("/json", "+json")) or _strip_parameters(kind) in ("*/*", "application/*")


def _is_text(kind: str) -> bool:
    return (
        _strip_parameters(kind).startswith("text/")
        or _strip_parameters(kind).endswith("+xml")
        or _strip_parameters(kind) in _TEXTS
    )


def _is_plain(kind: str) -> bool:
    """Whether it is a type that is sent without being named."""
    return _strip_parameters(kind) in ("application/json", "*/*", "application/*", "text/plain")


def _body_template(schema: Json, arguments: Arguments, required: bool) -> Json:
    """The template of a body of fields. Those that an optional body needs must come with any other of its fields."""
    needed = set(schema["required"])
    names = {
        name: arguments.add(name, as_mapping(one), place=_BODY, required=required and name in needed)
        for name, one in schema["properties"].items()
    }
    if needed and not required:
        for name, argument in names.items():
            if others := [names[other] for other in names if other in needed and other != name]:
                arguments.depend[argument] = others
    return {name: filled(argument) for name, argument in names.items()}


def _field_encodings(schema: Json, declared: Json, way: BodyFormat) -> Json:
    """How fields that are lists or objects are written, by the `encoding` of a form."""
    found: Json = {}
    for name, one in schema["properties"].items():
        one, own = as_mapping(one), as_mapping(declared.get(name))
        item = as_mapping(one.get("items")) if one.get("type") == "array" else one
        if way is BodyFormat.MULTIPART and (item.get("format") == "binary" or "contentMediaType" in item):
            found[name] = str(Encoding.FILE)
        elif "style" in own or "explode" in own:
            style = as_text(own.get("style")) or "form"
            explode = own["explode"] if isinstance(own.get("explode"), bool) else style in ("form", "deepObject")
            is_object = item is one and ("properties" in one or one.get("type") == "object")
            written = encoding_of(name, style, explode, is_object) if way is BodyFormat.FORM else None
            found |= {} if written is None else {name: str(written)}
        elif _is_json(as_text(own.get("contentType"))):
            found[name] = str(Encoding.JSON)
    return found
