"""Calls in tags with names in attributes: `<invoke name="f"><parameter name="a">value</parameter></invoke>`.

Formats that write calls so share this file: each says what its tags are and how the text of a value is read. A value
ends at the closing tag that another tag of the call follows, so that the tag alone inside a text ends nothing. One that
holds the beginning of a parameter, a call or a section is not closed: nothing up to the end of the section is run, be
it the call's own text or another call. Good calls of a section run beside others that fail.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Self

from rlf.chat.calls import CallFault
from rlf.chat.scan import Grammar, Scan, messages
from rlf.types import FailureClass, ToolCall

_SPACE = r"[ \t\r\n]*"
_ANY_SPACE = re.compile(_SPACE)


class InvokeTag(NamedTuple):
    """A tag of calls, as expressions."""

    begin: str
    attribute: str
    """The attribute with the name of the tool or of the argument."""
    rest: str
    """What follows that attribute, to the end of the tag."""
    end: str
    """The tag that closes it."""

    @property
    def opening(self) -> str:
        """The whole opening tag; group 1 is the name."""
        return rf'{self.begin} {self.attribute}="([^"\n]*)"{self.rest}'


class InvokeForms:
    """The expressions of a format."""

    def __init__(
        self, form: str, opening: str, closing: str, invoke: InvokeTag, parameter: InvokeTag, others: str = "</?think>"
    ) -> None:
        """Builds them.

        Args:
            form: a section with a call, as messages write it.
            opening, closing: what a section's tags match.
            invoke: the tag of a call.
            parameter: the tag of an argument; group 2 says more of its value.
            others: what the other marks of the format match.
        """
        self.form = f"Write {form}."
        self.opening, self.closing = re.compile(opening), re.compile(f"{_SPACE}{closing}")
        self.invoke = re.compile(f"{_SPACE}{invoke.opening}{_SPACE}")
        self.parameter = re.compile(parameter.opening)
        # Group 1 ends a value; anything else inside a value shows that it was not closed.
        self.value_end = re.compile(
            rf"({parameter.end})(?={_SPACE}(?:{parameter.begin}\b|{invoke.end}))"
            rf"|{parameter.begin} {parameter.attribute}=|{invoke.begin} {invoke.attribute}=|{opening}|{_SPACE}{closing}"
            rf"|{invoke.end}(?={_SPACE}(?:{invoke.begin}|{closing}))"
        )
        self.end = re.compile(invoke.end)
        self.grammar = Grammar(
            tag=re.compile(rf"({opening}|{closing}|{others}){_SPACE}"),
            rehearsal=re.compile(rf"{opening}(?:.*?{closing}|.*)", re.DOTALL),
            messages=messages(
                self.form,
                unterminated=f"The call was not run: a closing tag is missing. {self.form}",
                stray_tag=f"This tag closes what nothing opened. {self.form}",
                missing_name=f"The call names no tool. {self.form}",
            ),
        )

    @classmethod
    def xml(cls, sections: str, prefix: str, section: str) -> Self:
        """Those of `<invoke name="f"><parameter name="a">value</parameter></invoke>`.

        Args:
            sections: what the name of a section's tag matches.
            prefix: what the names of the other tags begin with.
            section: the name of a section's tag, as messages write it.
        """
        inside = f'<{prefix}invoke name="NAME"><{prefix}parameter name="KEY">VALUE</{prefix}parameter></{prefix}invoke>'
        return cls(
            f"<{section}>{inside}</{section}>",
            f"<{sections}>",
            f"</{sections}>",
            InvokeTag(f"<{prefix}invoke", "name", ">", f"</{prefix}invoke>"),
            InvokeTag(f"<{prefix}parameter", "name", '(?: string="(true|false)")?>', f"</{prefix}parameter>"),
        )


class InvokeScan(Scan):
    """Reads the calls of one turn."""

    __slots__ = ()
    forms: ClassVar[InvokeForms]

    @abstractmethod
    def read_value(self, tool: str, key: str, text: str, kind: str | None) -> Any | CallFault:
        """The value of an argument's text; `kind` is what its tag says of it, None where it says nothing."""

    def read_name(self, text: str) -> str:
        """The name that an attribute's text stands for."""
        return text

    def value_end(self, kind: str | None) -> re.Pattern[str]:
        """What ends a value: group 1, or anything else that shows its end missing."""
        return self.forms.value_end

    def read(self, tag: re.Match[str]) -> int:
        if self.forms.opening.fullmatch(tag[1]) is None:
            return self.fail_stray(tag)
        start, position, num_found = tag.start(), tag.end(), len(self.found)
        while invoke := self.forms.invoke.match(self.text, position):
            after = self._read_call(invoke)
            if after is None:
                return self._fail_section(FailureClass.UNTERMINATED, start, invoke.end(), num_found)
            position = after
        closing = self.forms.closing.match(self.text, position)
        if closing is None or len(self.found) == num_found:
            return self._fail_section(FailureClass.BAD_CALL, start, position, num_found)
        return closing.end()

    def _read_call(self, invoke: re.Match[str]) -> int | None:
        """Reads one call; returns the position after it, None where a closing tag is missing."""
        text, name, position = self.text, self.read_name(invoke[1]), invoke.end()
        arguments: dict[str, Any] = {}
        fault = None if name.strip() else CallFault(kind := FailureClass.MISSING_NAME, self.grammar.messages[kind])
        while parameter := self.forms.parameter.match(text, position):
            end = self.value_end(parameter[2]).search(text, parameter.end())
            if end is None or end[1] is None:
                return None
            key = self.read_name(parameter[1])
            value = self.read_value(name, key, text[parameter.end() : end.start()], parameter[2])
            fault = fault or _parameter_fault(key, value, arguments)
            arguments[key] = value
            position = _ANY_SPACE.match(text, end.end(1)).end()  # type: ignore[union-attr]  # it matches anything
        closing = self.forms.end.match(text, position)
        if closing is None:
            return None
        return self.take(fault or ToolCall(name, arguments), invoke.start(), closing.end())

    def _fail_section(self, kind: FailureClass, start: int, search_from: int, num_found: int) -> int:
        """Records a section that cannot be read, to its closing tag; none of its calls is run."""
        del self.found[num_found:]
        closing = self.forms.closing.search(self.text, search_from)
        if closing is None:
            return self.cut(FailureClass.UNTERMINATED, start)
        self.fail(kind, start, closing.end())
        return closing.end()


def write_invoke(call: ToolCall, section: str, prefix: str, write: Callable[[str, Any], tuple[str, str]]) -> str:
    """The text of a call; `write` gives what stands in a parameter's tag after its name, and its text."""
    lines = [f"<{section}>", f'<{prefix}invoke name="{call.name}">']
    for key, value in call.arguments.items():
        attributes, text = write(key, value)
        lines.append(f'<{prefix}parameter name="{key}"{attributes}>{text}</{prefix}parameter>')
    return "\n".join([*lines, f"</{prefix}invoke>", f"</{section}>"])


def _parameter_fault(key: str, value: Any, arguments: Mapping[str, Any]) -> CallFault | None:
    if isinstance(value, CallFault):
        return CallFault(FailureClass.BAD_ARGUMENTS, f"The parameter {key[:24]!r}: {value.message}.")
    if key in arguments or not key.strip():
        return CallFault(FailureClass.BAD_ARGUMENTS, f"The parameter {key[:24]!r} is given twice, or has no name.")
    return None
