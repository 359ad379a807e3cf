"""Jinja2 templates of requests and results: sandboxed, and an undefined name is an error. Loads jinja2 when used.

What fills a template in is data, whatever it says: only the declaration's own text is ever read as a template.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from pydantic import AfterValidator

from rlf.core.models import wrong_value

if TYPE_CHECKING:
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

# A text that is one `{{ expression }}` keeps the value's type; any text around it makes it a string.
_EXPRESSION = re.compile(r"\s*\{\{-?(.*?)-?\}\}\s*", re.DOTALL)


class TemplateFault(ValueError):
    """A fault of a template, or of the values that fill it in."""

    source = ""
    """The template that cannot be read."""


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
            raise TemplateFault(f"cannot be filled in: {str(error) or type(error).__name__}") from error

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
    return len([node for node in printed if not _is_space(node)]) == 1


def _is_space(node: Any) -> bool:
    from jinja2 import nodes

    return isinstance(node, nodes.TemplateData) and not node.data.strip()


def _check_source(source: str) -> str:
    try:
        Template(source)
    except TemplateFault as fault:
        raise wrong_value(f"got {source!r}: {fault}") from fault
    return source


TemplateText = Annotated[str, AfterValidator(_check_source)]
"""A field that is a template."""


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


@cache
def _make_environment(finalize: Callable[..., Any] | None) -> ImmutableSandboxedEnvironment:
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    return ImmutableSandboxedEnvironment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=False, finalize=finalize
    )
