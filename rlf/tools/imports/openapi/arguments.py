"""The arguments that an operation's parameters and body fields become, each under a name of its own. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rlf.tools.imports.openapi.values import Json

_NOT_FREE = re.compile(
    "and|calls|cycler|dict|else|[fF]alse|if|in|is|joiner|lipsum|loop|namespace|[nN]one|not|or|range|response|self|[tT]rue"
)
"""Names that a template, or rlf in one, takes for something else."""


@dataclass(slots=True)
class Arguments:
    """The arguments so far, as `inputSchema` says them."""

    properties: Json = field(default_factory=dict)
    required: list[str] = field(default_factory=list)
    depend: dict[str, list[str]] = field(default_factory=dict)
    """Arguments that must come with another."""

    def add(self, name: str, schema: Json, *, place: str, required: bool) -> str:
        """The argument's name: the parameter's as a template can say it, with its place before it where it is taken.

        Args:
            place: `path`, `query` or `body`.
        """
        argument = self._free_name(name, place)
        self.properties[argument] = schema
        if required:
            self.required.append(argument)
        return argument

    def _free_name(self, name: str, place: str) -> str:
        wanted = _to_identifier(name)
        names = [wanted, f"{place}_{wanted}", *(f"{wanted}_{number}" for number in range(2, len(self.properties) + 3))]
        return next(one for one in names if one not in self.properties and not _NOT_FREE.fullmatch(one))

    def schema(self) -> Json:
        """The `inputSchema`."""
        found: Json = {"type": "object", "properties": self.properties}
        found |= {"required": self.required} if self.required else {}
        return found | ({"dependentRequired": self.depend} if self.depend else {})


def filled(argument: str) -> str:
    """The template of an argument alone."""
    return f"{{{{ {argument} }}}}"


def _to_identifier(name: str) -> str:
    found = "".join(character if f"a{character}".isidentifier() else "_" for character in name)
    found = found.rstrip("_") if found != name else found
    return found if found.isidentifier() else f"_{found}" if found else "argument"
