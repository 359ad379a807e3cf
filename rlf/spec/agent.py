"""`rollout.agent`: the user's own program plays each trajectory, and asks the policy as any model's endpoint."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from rlf.core.callables import CallableName
from rlf.core.kinds import Files, StrictModel, wrong_value
from rlf.types.trajectory import AGENT, MissingRewardCause

_PLACE = re.compile(r"\{\{\s*([\w.]+)\s*\}\}")
"""What is filled in."""
_GIVEN = ("prompt", "session.url", "session.mcp_url", "session.key")


def split_command(command: Any) -> Any:
    """The words of a command as a shell reads them; anything but a text as it is.

    What is filled in is of one word, without quotes too.
    """
    if not isinstance(command, str):
        return command
    try:
        return tuple(shlex.split(_PLACE.sub(r"{{\1}}", command)))
    except ValueError as fault:
        raise wrong_value(f"got {command!r:.80}: {fault}. Close the quotation.") from fault


class AgentFailure(StrEnum):
    """A fault of an agent, as its trajectory's error names it."""

    EXIT = "exit"
    """It raised, ended with an exit code other than 0, or its service answered with an error."""
    TIMEOUT = "timeout"
    """It was not over in `timeout_s`, and was ended."""
    NO_CALL = "no_call"
    """It ended without a call of the model, as one does that catches errors of its client."""
    FLOOD = "flood"
    """It printed more than 16 MB."""
    GONE = "gone"
    """It imports a module that is not there; waiting is in vain."""
    BREAK = "break"
    """It asked with a prompt that continues no earlier call, with `on_break: fail`."""

    def cause(self, words: str) -> MissingRewardCause:
        """What it is to the trajectory that it ended: a service that is down comes back, a rewritten history not."""
        may_pass = self not in (AgentFailure.FLOOD, AgentFailure.BREAK)
        return MissingRewardCause(AGENT, f"agent: {self}: {words}", may_pass, self is AgentFailure.GONE)


class OnBreak(StrEnum):
    """What follows a prompt that does not continue an earlier call of the trajectory."""

    SAMPLE = "sample"
    """It begins a new context, which is trained as a row of its own under the trajectory's one advantage."""
    FAIL = "fail"
    """It is refused, and the trajectory fails."""


class AgentSpec(StrictModel):
    """A program that plays one trajectory: `command`, `callable` or `url`, one of them."""

    command: Annotated[tuple[str, ...], BeforeValidator(split_command)] | None = None
    """Started for each trajectory, without a shell, in a folder of its own: one text, split as a shell does, or a list
    of words. `{{ prompt }}`, `{{ session.url }}`, `{{ session.mcp_url }}`, `{{ session.key }}` and `{{ row.COLUMN }}`
    are filled in; words that name a file beside the spec become its path."""
    callable: CallableName | None = None
    """`async def run(task, session)`, which returns the answer as text, or None: the last call's answer counts. It
    shares rlf's event loop; what blocks is a `command`."""
    url: str | None = None
    """A service that gets `{"task": ..., "session": {"url": ..., "mcp_url": ..., "key": ...}}` by POST, and answers
    `{"answer": ...}` when it is over."""
    env: Mapping[str, str] = {}
    """Variables of a command beside PATH, HOME, LANG and the addresses and keys of the session, filled in as it is."""
    files: Files = ()
    """Files that belong to it beside those that the command or the callable names: their content is in the plan."""
    isolation: Literal["none", "sandbox"] = "none"
    """`sandbox`: a command runs in bubblewrap; it writes its folder, reads the system, Python, its own files and
    `files`, and reaches the session alone."""
    timeout_s: float = Field(120.0, gt=0, allow_inf_nan=False)
    """Time for one trajectory; then the agent and what it started are ended."""
    max_calls: int = Field(64, ge=1)
    """Calls of the model per trajectory; a further one is refused, and the trajectory is over."""
    on_break: OnBreak = OnBreak.SAMPLE
    """What follows a prompt that does not continue an earlier call."""
    least_continued: float | None = Field(None, ge=0, le=1)
    """Share of the calls after a trajectory's first that must continue an earlier one token for token, in the
    certificate that a run makes before its first step; below it the run ends. None: the run continues with any."""
    scored: tuple[AgentFailure, ...] = ()
    """Failures that are the policy's: such a trajectory is scored as it is. Others are left out of the loss."""

    @model_validator(mode="after")
    def _is_one_of_them(self) -> Self:
        given = [name for name in ("command", "callable", "url") if getattr(self, name) is not None]
        if len(given) != 1:
            raise wrong_value(f"got {' and '.join(given) or 'neither'}; write one of `command`, `callable` and `url`.")
        if self.isolation == "sandbox" and self.command is None:
            raise wrong_value(f"isolation: got sandbox with `{given[0]}`, which rlf does not start. Write a `command`.")
        if self.command is not None and not self.command:
            raise wrong_value("command: got no word; write the program to start.")
        for _, place in self.places:
            if place not in _GIVEN and not place.startswith("row."):
                known = ", ".join(_GIVEN)
                raise wrong_value(f"{{{{ {place} }}}} has no value (known: {known}, row.COLUMN). Write one of these.")
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise wrong_value(f"url: got {self.url!r:.80}; expected http:// or https://.")
        return self

    @property
    def places(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """What its command and variables leave to be filled in, with the key that does."""
        for word in self.command or ():
            yield from ((("command",), place[1]) for place in _PLACE.finditer(word))
        for name, text in self.env.items():
            yield from ((("env", name), place[1]) for place in _PLACE.finditer(text))

    @property
    def own_files(self) -> list[str]:
        """The files that its command names, which are its code, and those that are declared."""
        words = self.command or ()
        return [*self.files, *(word for word in words if Path(word).is_absolute() and Path(word).is_file())]


def fill_in(text: str, values: Mapping[str, str]) -> str:
    """A text with the values of its `{{ name }}`s. Raises KeyError for a column that a row lacks."""
    return _PLACE.sub(lambda place: values[place[1]], text)
