"""What a Python function says of itself: its inputSchema from the signature, words from the docstring."""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Callable, Sequence
from dataclasses import replace
from inspect import Parameter
from textwrap import dedent, indent
from typing import Any, NamedTuple

from docstring_parser import DocstringStyle, ParseError, parse
from docstring_parser.common import Docstring
from pydantic import TypeAdapter

from rlf.core import RlfError
from rlf.core.redact import clean
from rlf.tools.python.inference import SchemaGenerator, default_of, is_required, json_schema
from rlf.tools.python.parameters import NO_DEFAULT, Argument, CallSignature, documentation, read_signature
from rlf.types import ToolDescription

# The line that ends a summary. First, a title alone on its line, as Google and NumPy write it and models do in bold or
# as a heading: `Args:`, `**Parameters**`, `## Returns`; a sentence that begins with such a word has more on its line.
# Second and third, the fields of Sphinx and Epytext, `:param x: words` and `@type x: int`: a colon must follow on the
# same line, so that a decorator's name in prose is left alone.
_SECTION = re.compile(
    r"^[\s*_#]*(Args|Arguments|Parameters|Params|Keyword Arg(?:ument)?s|Other Parameters|Returns?|Yields?"
    r"|Raises|Examples?|Notes?)[\s*_]*:?[\s*_]*$"
    r"|^\s*:(param|parameter|arg|argument|key|keyword|type|returns?|rtype|raises)\b[^\n]*:"
    r"|^\s*@(param|type|return|rtype|raise)\b[^\n]*:",
    re.MULTILINE,
)
# The title of a list of arguments, and no other section's: what follows it is read as items. The blank lines behind
# it belong to the match, so that the list begins with its first item, whose indent the look-ahead leaves to the list.
_TITLE = re.compile(
    r"^[ \t*_#]*(?:Args|Arguments|Parameters|Params|Keyword Arg(?:ument)?s)[ \t*_]*:?[ \t*_]*\n\s*?(?=[ \t]*\S)",
    re.MULTILINE,
)
# One item of any list: an indent, a bullet or none, a name in backquotes, stars or bare, a type in brackets or none,
# and a colon or a dash. A dash needs a blank behind it: `well-known` at the start of a line names no argument. Only
# underscores fit two of its parts, of which one takes two at most: its time grows with the text alone.
_ITEM = re.compile(
    r"^([ \t]*)(?:[-*+][ \t]+)?[`*_]{0,2}(\w+)[`*_]{0,2}[ \t]*(?:\([^)\n]*\)[ \t]*)?(?::|[-–—](?=\s))[ \t]*",
    re.MULTILINE,
)
_STYLES = (DocstringStyle.GOOGLE, DocstringStyle.NUMPYDOC, DocstringStyle.REST, DocstringStyle.EPYDOC)


def docstring_summary(document: str) -> str:
    """A docstring up to its first section; all of it where its list of arguments has an unknown style."""
    found = _SECTION.search(document)
    # The model would lose words that no style could read: better all of the docstring than none of its arguments.
    is_unread = _TITLE.search(document) is not None and not parameter_words(document)
    text = document if found is None or is_unread else document[: found.start()]
    return text.strip()


def parameter_words(document: str) -> dict[str, str]:
    """The words on each parameter, all lines of them: the style that finds most speaks first, and lists in
    nobody's style last."""
    found = [_parse_parameters(style, document) for style in _STYLES]
    found.sort(key=len, reverse=True)
    words: dict[str, str] = {}
    for each in (*found, _parse_parameters(DocstringStyle.GOOGLE, _as_google(document))):
        words = {**each, **words}
    return words


def _as_google(document: str) -> str:
    """Items such as "- `name`: words" and "name - words", under a title that may be in bold, as Google has them."""
    title = _TITLE.search(document)
    if title is None:  # without one, any line with a colon in it would be an argument
        return ""
    listed = _SECTION.split(document[title.end() :], maxsplit=1)[0]
    items = _ITEM.sub(r"\1\2: ", listed)
    return f"Summary.\n\nArgs:\n{indent(dedent(items), '    ')}\n"


def _parse_parameters(style: DocstringStyle, document: str) -> dict[str, str]:
    try:
        read: Docstring = parse(document, style)
    except ParseError:
        return {}
    return {
        name.strip().lstrip("*"): one.description.strip()
        for one in read.params
        if one.description
        for name in one.arg_name.split(",")  # NumPy lists several names before one text: `x, y : int`
    }


_DEFINITION = "#/$defs/"


class _Schemas(NamedTuple):
    """Schemas by argument, and the definitions that they refer to."""

    by_name: dict[str, dict[str, Any]]
    definitions: dict[str, Any]


def describe_function(function: Callable[..., Any], name: str) -> ToolDescription:
    """Description and inputSchema of a function.

    Args:
        function: what calls go to; parameters with a default and a type that JSON has no word for are left out.
        name: what messages call it.

    Raises:
        RlfError: a type that JSON has no word for, a signature that cannot be read or names no argument, or `*names`.
    """
    document = clean(documentation(function))
    words = parameter_words(document)
    try:
        signature = read_signature(function)
    except (TypeError, ValueError) as fault:
        raise RlfError(f"{name}: its signature cannot be read. Write `inputSchema` by hand.") from fault
    _refuse_unnamed(signature, name)
    shown = [one for one in signature.arguments if _is_shown(one, name)]
    others = _others_as_argument(signature, name)
    schemas = _argument_schemas([*shown, *others])
    # Under one roof until here, since definitions are shared: then `**others` becomes additionalProperties.
    admitted = [schemas.by_name.pop(one.name) for one in others]
    for one, schema in zip(others, admitted, strict=True):
        _add_words(schema, one, words.get(one.name.lstrip("*")))
    for argument in shown:
        _add_words(schemas.by_name[argument.name], argument, words.get(argument.name))
    required = [one.name for one in shown if is_required(one)]
    input_schema: dict[str, Any] = {"type": "object", "properties": schemas.by_name}
    input_schema |= {"required": required} if required else {}
    input_schema |= {"additionalProperties": admitted[0] or True} if admitted else {}
    input_schema |= {"$defs": schemas.definitions} if schemas.definitions else {}
    return ToolDescription(name, docstring_summary(document), input_schema)


def _refuse_unnamed(signature: CallSignature, name: str) -> None:
    """Values are given by name: a schema of a function that names none would be empty, and no call could be right."""
    others = signature.others
    if others is not None and not signature.arguments and others.annotation in (Parameter.empty, Any):
        raise RlfError(
            f"{name}: its signature names no argument: '**{others.name}' takes any. Name them, decorate a wrapper with "
            "functools.wraps, or write `inputSchema` by hand."
        )
    if signature.list_name is not None:
        raise RlfError(
            f"{name}: parameter '*{signature.list_name}' takes values without names, which no call of a tool gives. "
            f"Write `{signature.list_name}: list[...]`, or `inputSchema` by hand."
        )


def _others_as_argument(signature: CallSignature, name: str) -> list[Argument]:
    """`**others` under a name that no argument has; none where the function takes no others."""
    others = signature.others
    if others is None:
        return []
    json_schema(others.annotation, f"{name}: parameter '**{others.name}'")
    return [replace(others, name=f"**{others.name}")]


def _is_shown(argument: Argument, name: str) -> bool:
    try:
        json_schema(argument.annotation, f"{name}: parameter {argument.name!r}")
    except RlfError:
        if argument.default is NO_DEFAULT:
            raise
        return False  # a connection or a logger, say, that the function has by itself and no call can give
    return True


def _argument_schemas(arguments: Sequence[Argument]) -> _Schemas:
    adapters = [
        (one.name, "validation", TypeAdapter(one.annotation)) for one in arguments if one.annotation is not NO_DEFAULT
    ]
    found, shared = TypeAdapter.json_schemas(adapters, schema_generator=SchemaGenerator)  # type: ignore[arg-type]  # modes
    definitions = {
        key: {word: child for word, child in one.items() if word != "title" or child != key}
        for key, one in shared.get("$defs", {}).items()
    }
    by_name: dict[str, dict[str, Any]] = {one.name: {} for one in arguments}
    by_name |= {str(name): dict(schema) for (name, _), schema in found.items()}
    return _inline_definitions(_Schemas(by_name, definitions))


def _inline_definitions(schemas: _Schemas) -> _Schemas:
    """Definitions that are one argument's alone in the argument's own place, where every reader sees its type."""
    # A reference counts where it stands, also in another definition: one that recurs has to keep its name.
    whole = json.dumps(schemas)
    by_name, definitions = {}, dict(schemas.definitions)
    for name, schema in schemas.by_name.items():
        reference = schema.get("$ref", "")
        if whole.count(json.dumps(reference)) == 1 and reference.startswith(_DEFINITION):
            rest = {key: child for key, child in schema.items() if key != "$ref"}
            key = reference.removeprefix(_DEFINITION).replace("~1", "/").replace("~0", "~")  # RFC 6901, in this order
            schema = {**definitions.pop(key), **rest}
        by_name[name] = {key: child for key, child in schema.items() if key != "title"}
    return _Schemas(by_name, definitions)


def _add_words(schema: dict[str, Any], argument: Argument, words: str | None) -> None:
    """The words nearest to the argument, `Field(description=)` before `Annotated[..., "text"]`, and its default."""
    own = getattr(argument.annotation, "__metadata__", ())
    is_annotated = typing.get_origin(argument.annotation) is typing.Annotated
    annotated = next((one for one in own if isinstance(one, str)), None) if is_annotated else None
    has_field_words = any(getattr(one, "description", None) for one in own)
    if not has_field_words and (annotated or words):
        schema["description"] = annotated or words
    default = default_of(argument)
    if default is not NO_DEFAULT:
        schema["default"] = default
