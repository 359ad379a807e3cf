"""Jinja2 templates of requests and results: sandboxed, and an undefined name is an error. Loads jinja2 when used.

What fills a template in is data, whatever it says: only the declaration's own text is ever read as a template.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache, cached_property
from types import BuiltinMethodType, MethodType
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from pydantic import AfterValidator

from rlf.core import nearest
from rlf.core.kinds import wrong_value

if TYPE_CHECKING:
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

# A text that is one `{{ expression }}` keeps the value's type; any text around it makes it a string.
_EXPRESSION = re.compile(r"\s*\{\{-?(.*?)-?\}\}\s*", re.DOTALL)


class TemplateFault(ValueError):
    """A fault of a template, or of the values that fill it in."""

    source = ""
    """The template that cannot be read."""
    choosers: frozenset[str] = frozenset()
    """Names whose values may have chosen what is missing, as `column` does in `{{ response[column] }}`; none where the
    template itself names it."""


class _Absent:
    """The value of an expression that names what is not there."""


ABSENT = _Absent()


class Template:
    """A parsed template. Raises TemplateFault where the syntax is wrong.

    Args:
        is_url: whether values are percent-encoded, as parts of a URL are.
        finalize: makes what is printed of each value; None: its text.
    """

    def __init__(self, source: str, *, is_url: bool = False, finalize: Callable[..., Any] | None = None) -> None:
        from jinja2 import TemplateSyntaxError, meta

        environment = _make_environment(_percent_encoded if is_url else finalize)
        try:
            tree = environment.parse(source)
            self.names: frozenset[str] = frozenset(meta.find_undeclared_variables(tree) - set(environment.globals))
            """What it must be given."""
            self._alone = _EXPRESSION.fullmatch(source) if _is_one_expression(tree) else None
            self._constants, self._choosers = frozenset(_list_constants(tree)), frozenset(_list_choosers(tree))
        except TemplateSyntaxError as error:
            reason = (error.message or "unreadable").rstrip(".")
            fault = TemplateFault(f"not a Jinja2 template: line {error.lineno}: {reason}")
            fault.source = source
            raise fault from error
        self._source, self._environment = source, environment

    @cached_property
    def _compiled_template(self) -> jinja2.Template:
        return self._environment.from_string(self._source)

    @cached_property
    def _compiled_expression(self) -> Callable[..., Any] | None:
        """The compiled expression of a template that is one expression; None for any other."""
        alone = self._alone
        return self._environment.compile_expression(alone[1], undefined_to_none=False) if alone else None

    def render(self, values: Mapping[str, Any]) -> str:
        """The text. Raises TemplateFault where it cannot be filled in."""
        try:
            return self._compiled_template.render(values)
        except Exception as error:
            fault = TemplateFault(f"cannot be filled in: {str(error) or type(error).__name__}")
            fault.choosers = self._choosers_of(error)
            raise fault from error

    def _choosers_of(self, error: Exception) -> frozenset[str]:
        """Names that chose what is missing: an absent one itself; those that lookups are made by, for a key or index of
        a container that is no constant of the template, and for a number that nothing is divided by."""
        where, name = getattr(error, "missing", (None, None))
        if where is _NOWHERE:
            return frozenset({str(name)})
        is_index = isinstance(where, list | tuple) and isinstance(name, int)
        if isinstance(error, ArithmeticError) or isinstance(where, Mapping) or is_index:
            return frozenset() if name in self._constants else self._choosers
        return frozenset()

    def value(self, values: Mapping[str, Any]) -> Any:
        """The value of a template that is one expression, with its type, or ABSENT; any other's text."""
        from jinja2 import Undefined

        if self._compiled_expression is None:
            return self.render(values)
        try:
            value = self._compiled_expression(values)
        except Exception as error:
            raise TemplateFault(f"cannot be filled in: {str(error) or type(error).__name__}") from error
        return ABSENT if isinstance(value, Undefined) else value


class FilledValue:
    """A value of the YAML, parsed once: each text in it is a template.

    A text that is one expression becomes what it stands for, with its type; where it names an argument that the call
    lacks, the key or item is left out.
    """

    def __init__(self, value: Any) -> None:
        self._parsed = _parse_templates(value)

    @property
    def templates(self) -> list[Template]:
        """The texts in it."""
        return list(_list_templates(self._parsed))

    @property
    def names(self) -> frozenset[str]:
        """Names that the templates must be given."""
        return frozenset().union(*(template.names for template in self.templates))

    def fill(self, values: Mapping[str, Any], *, whole: bool = False) -> Any:
        """The value; ABSENT where it is an absent argument. Raises TemplateFault; where `whole`, for that too."""
        return _fill_parsed(self._parsed, values, whole)


def _parse_templates(value: Any) -> Any:
    if isinstance(value, str):
        return Template(value)
    if isinstance(value, Mapping):
        return {key: _parse_templates(child) for key, child in value.items()}
    return [_parse_templates(child) for child in value] if isinstance(value, list | tuple) else value


def _list_templates(parsed: Any) -> Iterator[Template]:
    if isinstance(parsed, Template):
        yield parsed
    children = parsed.values() if isinstance(parsed, dict) else parsed if isinstance(parsed, list) else ()
    for child in children:
        yield from _list_templates(child)


def _fill_parsed(parsed: Any, values: Mapping[str, Any], whole: bool) -> Any:
    if isinstance(parsed, Template):
        value = parsed.value(values)
        if whole and value is ABSENT:
            raise TemplateFault("it names something that is not there")
        return value
    if isinstance(parsed, dict):
        entries = {key: _fill_parsed(child, values, whole) for key, child in parsed.items()}
        return {key: child for key, child in entries.items() if child is not ABSENT}
    if isinstance(parsed, list):
        return [child for child in (_fill_parsed(item, values, whole) for item in parsed) if child is not ABSENT]
    return parsed


def _is_one_expression(tree: Any) -> bool:
    from jinja2 import nodes

    printed = tree.body[0].nodes if len(tree.body) == 1 and isinstance(tree.body[0], nodes.Output) else []
    return len([one for one in printed if not isinstance(one, nodes.TemplateData) or one.data.strip()]) == 1


def _check_source(source: str) -> str:
    try:
        Template(source)
    except TemplateFault as fault:
        raise wrong_value(f"got {source!r}: {fault}") from fault
    return source


TemplateText = Annotated[str, AfterValidator(_check_source)]
"""A field that is a template."""


def unknown_names(key: str, names: Collection[str], known: Collection[str]) -> list[str]:
    """Complaints about names in the template of a key that nothing fills in."""
    declared = ", ".join(sorted(known)) or "none"
    return [
        f"the template in `{key}` names {name!r}{nearest(name, list(known))} (arguments: {declared}); "
        "declare it in inputSchema, or correct the name"
        for name in sorted(set(names) - set(known))
    ]


NOTHING = "\x00"
"""What a value leaves in a URL that is null or empty there: no other part of one holds it."""


def _percent_encoded(value: Any) -> str:
    """A value as a part of a URL: a list's items, or an object's names and values, with commas between (RFC 6570)."""
    if isinstance(value, Mapping):
        value = [part for entry in value.items() if entry[1] is not None for part in entry]
    if isinstance(value, list | tuple):
        return ",".join(_percent_encoded(item) for item in value if item is not None) or NOTHING
    if value is None or value == "":
        return NOTHING
    return quote(str(value).lower() if isinstance(value, bool) else str(value), safe="")


def _list_constants(tree: Any) -> Iterator[str | int]:
    """Names and indices that a template itself looks up, those within texts such as `attribute="a.b"` too."""
    from jinja2 import nodes

    for node in tree.find_all((nodes.Getattr, nodes.Getitem, nodes.Const)):
        if isinstance(node, nodes.Getattr):
            yield node.attr
        elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
            yield node.arg.value
        elif isinstance(node, nodes.Const) and isinstance(node.value, str):
            yield from (node.value, *node.value.split("."))


def _list_choosers(tree: Any) -> Iterator[str]:
    """Names by which a template looks up or computes, and does not only print them."""
    from jinja2 import nodes

    for node in tree.find_all((nodes.Getitem, nodes.Filter, nodes.Call, nodes.BinExpr)):
        if isinstance(node, nodes.Getitem):
            parts: list[Any] = [node.arg]
        elif isinstance(node, nodes.BinExpr):
            parts = [node]
        else:
            parts = [*node.args, *node.kwargs]
        for part in parts:
            names = [part] if isinstance(part, nodes.Name) else part.find_all(nodes.Name)
            yield from (name.name for name in names)


_NOWHERE: Any = object()
"""Where a name is looked up that belongs to no value."""


@cache
def _undefined_class() -> type[jinja2.Undefined]:
    from jinja2 import StrictUndefined, UndefinedError
    from jinja2.utils import missing

    class MissingError(UndefinedError):
        def __init__(self, message: str, where: Any, name: Any) -> None:
            super().__init__(message)
            self.missing = (where, name)

    class Missing(StrictUndefined):
        """What is not there; its error says of what value it is no part."""

        __slots__ = ()

        def __init__(self, hint: str | None = None, obj: Any = missing, name: Any = None, exc: Any = None) -> None:
            where = _NOWHERE if obj is missing else obj
            super().__init__(hint, obj, name, lambda message: MissingError(message or "", where, name))  # type: ignore[arg-type]

    return Missing


def refuse_method(value: Any) -> Any:
    """A value to be printed; a method, which `keys` or `items` finds in an object without such a key, is none."""
    if isinstance(value, BuiltinMethodType | MethodType):
        return _undefined_class()(obj=value.__self__, name=value.__name__)
    return value


@cache
def _make_environment(finalize: Callable[..., Any] | None) -> ImmutableSandboxedEnvironment:
    from rlf.core.bounded import BoundedEnvironment

    return BoundedEnvironment(
        undefined=_undefined_class(),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
        finalize=finalize or refuse_method,
    )
