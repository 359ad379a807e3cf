"""The calls of one trajectory as a tree: a call continues the one whose prompt and sample its own prompt begins with.

Each path from a root to a leaf is a row; what rows share is trained in the first of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rlf.rollout.rollout import NOT_RUN, TokenRecord
from rlf.types import task
from rlf.types.policy import Sample
from rlf.types.tool import Outcome, ToolCall, ToolResult
from rlf.types.trajectory import CallRecord, ParseFailure, Turn
from rlf.types.world import WorldStep

Message = Mapping[str, Any]
_Words = tuple[str, str, tuple[str, ...], tuple[str, ...]]

FIRST = "first"
SAME_PROMPT = "same prompt"
BRANCH = "branch"
"""The prompt continues a call that another one has continued already."""
OTHER_SYSTEM = "other system message"
OTHER_TASK = "other first message"
OTHER_TOOLS = "other tools"
OTHER_TOKENS = "other tokens"
"""The words continue a call, and the template writes them with tokens that were not sampled."""
SHORTENED = "history shortened"
EDITED = "history edited"


@dataclass(slots=True)
class Call:
    """One call of the model: what was asked and what was sampled."""

    number: int
    prompt: list[int]
    sample: Sample
    messages: Sequence[Message]
    """In the form of `dialogue.checked_message`; empty for a prompt that is text."""
    tools: str
    """The tools as JSON."""
    text: str
    answer: str | None
    failures: tuple[ParseFailure, ...]
    requested: list[ToolCall]
    ids: list[str]
    """Of the requested calls, as the agent was given them."""
    sample_s: float
    images: tuple[str, ...] = ()
    """Those that the prompt holds places of."""
    parent: Call | None = None
    link: str = ""
    results: dict[str, ToolResult] = field(default_factory=dict)
    """What the calls came to, by id: as a tool of the session returned it, else as a later prompt says."""
    world: WorldStep | None = None
    """What was done to the trajectory's world until the next call."""
    num_children: int = 0
    tokens: list[int] = field(init=False)
    """Prompt and sample."""
    _words: list[_Words] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.tokens = self.prompt + self.sample.tokens

    @property
    def words(self) -> list[_Words]:
        """What its messages say: made once and only where asked for, since most calls continue an earlier one."""
        if self._words is None:
            self._words = [_words(message) for message in self.messages]
        return self._words

    @property
    def asked(self) -> Iterator[task.Message]:
        """The messages before it, without those of earlier calls and the results that stand with them."""
        before = 0 if self.parent is None else len(self.parent.messages) + 1
        known = () if self.parent is None else [result.text for result in self.parent.results.values()]
        for message in self.messages[before:]:
            role, _, calls, _ = _words(message)
            if role != "tool" or message["content"] not in known:
                yield task.Message(role, "\n".join(filter(None, (message["content"], *calls))))

    def turn(self, start: int) -> Turn:
        """As a turn of a trajectory. Args: start: offset of its first sampled token."""
        calls = [
            CallRecord(call, self.results.get(id_, NOT_RUN)) for call, id_ in zip(self.requested, self.ids, strict=True)
        ]
        end, versions = start + len(self.sample.tokens), self.sample.versions
        changes = [(start + at, v) for at, v in enumerate(versions) if at == 0 or v != versions[at - 1]]
        return Turn(
            start,
            end,
            end,
            self.text,
            calls=tuple(calls),
            failures=self.failures,
            sample_s=self.sample_s,
            link=self.link,
            asked=tuple(self.asked),
            versions=tuple(changes),
            world=self.world,
        )


class CallTree:
    """The calls of a trajectory so far."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._by_id: dict[str, tuple[Call, str]] = {}
        self._by_size: dict[int, list[Call]] = {}
        """By the number of their tokens: what a prompt continues is looked for among the longest first."""

    def place(
        self, prompt: list[int], messages: Sequence[Message], tools: str, images: tuple[str, ...] = ()
    ) -> tuple[Call | None, str]:
        """The call that a prompt continues, with an empty reason or that of a branch; else None and why it is none."""
        parent: Call | None = None
        if prompt:
            for size in sorted((size for size in self._by_size if size <= len(prompt)), reverse=True):
                begun = prompt[:size]
                # Images all look alike as tokens.
                found = (c for c in self._by_size[size] if c.tokens == begun and c.images == images[: len(c.images)])
                parent = max(found, key=lambda call: len(call.messages), default=None)
                if parent is not None:
                    break
        else:  # of a model that gives no tokens
            words = [_words(message) for message in messages]
            said = (call for call in self.calls if call.tools == tools and _is_said(words, call))
            parent = max(said, key=lambda call: len(call.messages), default=None)
        if parent is not None:
            return parent, BRANCH if parent.num_children else ""
        return None, self._find_cause(prompt, messages, tools, images)

    @property
    def images(self) -> tuple[str, ...]:
        """Those that the rows hold places of, in order."""
        return tuple(image for call in self.calls if not call.num_children for image in call.images)

    @property
    def num_rows(self) -> int:
        """Paths from a root to a leaf."""
        return sum(not call.num_children for call in self.calls)

    def add(self, call: Call) -> None:
        """Takes a call that was placed."""
        self.calls.append(call)
        self._by_size.setdefault(len(call.tokens), []).append(call)
        self._by_id |= {id_: (call, id_) for id_ in call.ids}
        if call.parent is not None:
            call.parent.num_children += 1

    def hear(self, messages: Sequence[Message]) -> int:
        """Takes the results of calls that a prompt holds; the number of those of calls that were not made here."""
        unknown, asked, counts = 0, list[Mapping[str, Any]](), Counter[str]()
        for message in messages:
            if message["role"] == "assistant":
                asked = list(message.get("tool_calls", ()))
            if message["role"] != "tool":
                continue
            id_ = message.get("tool_call_id", "")
            call, own = self._by_id.get(id_) or self._find_renamed(id_, asked, counts)
            if call is None:
                unknown += 1
            elif own not in call.results:
                call.results[own] = ToolResult(Outcome.OK, message["content"])
        return unknown

    def _find_renamed(self, id_: str, asked: list[Mapping[str, Any]], counts: Counter[str]) -> tuple[Call | None, str]:
        """The call, and its own id, that a client has given another one, which may be that of other calls too.

        Args:
            asked: calls of the turn as the client has them, of which it is taken: those of one id come in order.
            counts: how often the history has had each of them so far.
        """
        given = next((each for each in asked if each["id"] == id_), None)
        if given is None:
            return None, ""
        asked.remove(given)
        name, arguments = given["function"]["name"], given["function"]["arguments"]
        words = f"{id_} {_show_call(name, arguments)}"
        counts[words] += 1
        key = f"{words} {counts[words]}"
        if key in self._by_id:
            return self._by_id[key]
        for call in reversed(self.calls):
            for own, made in zip(call.ids, call.requested, strict=True):
                if own not in call.results and (made.name, dict(made.arguments)) == (name, arguments):
                    self._by_id[key] = call, own
                    return call, own
        return None, ""

    def take_result(self, made: ToolCall, result: ToolResult) -> bool:
        """Takes the result of a call that the agent made; whether the model asked for it."""
        for call in reversed(self.calls):
            for id_, asked in zip(call.ids, call.requested, strict=True):
                # Clients put the name of the server before that of its tool.
                is_named = asked.name == made.name or asked.name.endswith(f"_{made.name}")
                if is_named and asked.arguments == made.arguments and id_ not in call.results:
                    call.results[id_] = result
                    return True
        return False

    def write(self) -> tuple[TokenRecord, list[Turn]]:
        """The rows one after the other, and the calls as turns, each where it is trained."""
        record, turns, written = TokenRecord(()), list[Turn](), set[int]()
        for leaf in (call for call in self.calls if not call.num_children):
            if record.tokens:
                record.fork(())
            at = 0
            found = [leaf]
            while found[-1].parent is not None:
                found.append(found[-1].parent)
            for call in reversed(found):
                record.observe(call.prompt[at:])
                is_after_turn = at and turns and turns[-1].end == len(record.tokens) - (len(call.prompt) - at)
                if is_after_turn:  # what stands between two turns of a row is what the first was answered with
                    turns[-1] = replace(turns[-1], observation_end=len(record.tokens))
                if call.number in written:
                    record.observe(call.sample.tokens)
                else:
                    turns.append(call.turn(len(record.tokens)))
                    record.act(call.sample.tokens, call.sample.logprobs)
                    written.add(call.number)
                at = len(call.tokens)
        return record, turns

    def _find_cause(self, prompt: list[int], messages: Sequence[Message], tools: str, images: tuple[str, ...]) -> str:
        """Why a prompt continues no call, by what is nearest in its words."""
        if not self.calls:
            return FIRST
        words = [_words(message) for message in messages]
        same = [call for call in self.calls if (call.prompt, call.images) == (prompt, images)]
        if any(prompt or (call.words, call.tools) == (words, tools) for call in same):
            return SAME_PROMPT
        for call in reversed(self.calls):
            if _is_said(words, call):
                return OTHER_TOOLS if call.tools != tools else OTHER_TOKENS
        head, first = _heads(words)
        known = [_heads(call.words) for call in self.calls]
        if all(head != other for other, _ in known):
            return OTHER_SYSTEM
        if all(first != other for _, other in known):
            return OTHER_TASK
        if all(tools != call.tools for call in self.calls):
            return OTHER_TOOLS
        return SHORTENED if len(words) < len(self.calls[-1].messages) else EDITED


def _words(message: Message) -> _Words:
    """What a message says: its role, its text and its calls, whatever their ids."""
    calls = tuple(
        _show_call(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", ())
    )
    return message["role"], message["content"].strip(), calls, message.get("images", ())


def _show_call(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name} {json.dumps(arguments, sort_keys=True)}"


def _is_said(words: Sequence[_Words], call: Call) -> bool:
    """Whether words begin with a call's and its answer; text beside calls may be missing where it comes back."""
    size = len(call.words)
    if len(words) <= size or words[size][0] != "assistant" or words[:size] != call.words:
        return False
    _, text, calls, _ = words[size]
    if call.requested:
        return calls == tuple(_show_call(each.name, each.arguments) for each in call.requested)
    return text in ((call.answer or "").strip(), call.text.strip()) and not calls


def _heads(words: Sequence[_Words]) -> tuple[str, str]:
    """The system message, and the first message that is none."""
    system = next((text for role, text, *_ in words if role == "system"), "")
    return system, next(("".join((text, *images)) for role, text, _, images in words if role != "system"), "")
