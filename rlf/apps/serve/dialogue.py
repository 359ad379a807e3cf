"""How conversations become tokens, and what a turn says: the model's own template and chat format.

A conversation that goes on from a turn that was sampled here keeps the tokens of that turn: they are continued, never
rendered again. Any other history is rendered by the template. What users and tools say is data in both.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from rlf.apps.serve.requests import RecentValues, Refusal, Tools, hash_key
from rlf.chat import ChatFormat, encode_data, encode_template
from rlf.chat.encoding import decode
from rlf.chat.examples import readings_of
from rlf.chat.format import open_format
from rlf.chat.vision import Vision
from rlf.core import RlfError
from rlf.core.redact import clean
from rlf.types import Message, ToolCall, ToolDescription
from rlf.types.policy import Sample, Sampling
from rlf.types.task import IMAGE_MARK

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class SampledTurn:
    """A conversation up to the end of a turn that was sampled, by the words of that conversation."""

    tokens: tuple[int, ...]
    """Prompt and turn."""
    text: str
    """The turn, as it is parsed."""
    observed: tuple[str | None, ...]
    """What the next prompt answers: None for a call, whose result a client brings; for a failure beside calls the words
    that correct it, as in training."""


@dataclass(frozen=True, slots=True)
class StoredConversation:
    """A conversation that a client continues by the id of its last answer."""

    messages: tuple[Mapping[str, Any], ...]
    """In the words of chat completions, up to that answer; without the system's."""
    settings: Mapping[str, Any]
    """Keys of the first request that hold for the requests after it."""


_SENTINEL = re.compile(r"@@rlf:(\d+)@@")
_DATA_ROLES = frozenset({"user", "tool"})
"""Roles whose contents may come from anybody: no byte of them becomes a special token."""
_ROLES = {"developer": "system", "function": "tool"}
"""Other names of roles."""
_MAX_TOKENS = 4_000_000
"""Of all turns that were sampled here and are remembered."""
_MAX_CHARS = 64_000_000
"""Of all conversations that are kept for clients that continue them by an id."""
_MAX_TOOLS_CHARS = 250_000
"""Of tools whose format is kept for the requests that bring them again."""
EVERY_TOKEN = 1 << 20
"""`Sampling.num_top` of a sample that only decides how a call that is demanded begins."""
Messages = Sequence[Mapping[str, Any]]


class Dialogue:
    """Writes conversations by the model's own template and reads turns by its chat format."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, chat_format: str = "auto", thinking_tag: str | None = None
    ) -> None:
        """Takes a tokenizer.

        Args:
            chat_format: of its turns; `auto`: the one that its template shows, where it shows one.
            thinking_tag: as a spec names it.

        Raises:
            RlfError: a named format cannot be used with the tokenizer.
        """
        self.tokenizer = tokenizer
        self.memory: RecentValues[SampledTurn] = RecentValues(_MAX_TOKENS)
        self.conversations: RecentValues[StoredConversation] = RecentValues(_MAX_CHARS)
        self.vision: Vision | None = None
        """What reads images; None: a request with one is refused."""
        self.known: dict[bytes, CheckedMessage] | None = None
        """Messages that were read, by a hash of what came, where all that is remembered is one trajectory's."""
        try:
            self._bound = lru_cache(maxsize=64)(partial(_open_format, chat_format, tokenizer, thinking_tag))
            self._has_format = bool(self._bound("[]"))
        except RlfError:
            if chat_format != "auto":
                raise
            self._has_format = False
        self._special = frozenset(t for t, added in tokenizer.added_tokens_decoder.items() if added.special)

    def chat(self, tools: Tools) -> ChatFormat | None:
        """The format of turns that may call these tools; None where the model's template is of no known one."""
        is_kept = len(tools.text) <= _MAX_TOOLS_CHARS
        chat = (self._bound if is_kept else self._bound.__wrapped__)(tools.text) if self._has_format else None
        if chat is not None and self.vision is not None and chat.vision is None:
            chat.see(self.vision)
        return chat

    def encode(self, checked: list[CheckedMessage], tools: Tools) -> tuple[list[int], bool]:
        """Tokens up to where the model speaks, and whether they continue those of a turn that was sampled here.

        Args:
            checked: as `check_messages` gives them.

        Raises:
            Refusal: they cannot be written.
        """
        if tools and not self._has_format:
            raise Refusal(
                400, "tools: the model's chat template is not of a chat format that rlf knows for tools", key="tools"
            )
        try:
            continued = self._continue_tokens(checked, tools)
            return (self._render_tokens(checked, tools), False) if continued is None else (continued, True)
        except (RlfError, ValueError, RecursionError) as error:
            raise Refusal(400, f"messages: {error}", key="messages") from error

    def text(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        return decode(self.tokenizer, [token for token in tokens if token not in self._special])

    def remember(
        self, checked: list[CheckedMessage], tools: Tools, answer: Mapping[str, Any], sampled: SampledTurn
    ) -> None:
        """Keeps the tokens of a turn, for the conversation that continues from it. Arguments as of `encode`."""
        history = [*checked, *check_messages([answer], known=self.known)]
        key, words = _history_keys(history, tools)
        for each in {key} if self.known is None else {key, words}:
            self.memory.put(each, sampled, len(sampled.tokens))

    def _continue_tokens(self, messages: list[CheckedMessage], tools: Tools) -> list[int] | None:
        """The tokens of the last turn of the history and what follows them; None where it was not sampled here."""
        last_turn = max((at for at, message in enumerate(messages) if message["role"] == "assistant"), default=None)
        chat = self.chat(tools)
        if last_turn is None or chat is None:
            return None
        key, words = _history_keys(messages[: last_turn + 1], tools)
        sampled = self.memory.get(key)
        # Ids tell apart what was sampled several times; a client may rename them.
        if sampled is None and self.known is not None:
            sampled = self.memory.get(words)
        after = messages[last_turn + 1 :]
        if sampled is None or not after:
            return None
        if all(message["role"] == "tool" for message in after):
            results = _in_order(messages[last_turn], after)
            if results is None or len(results) != sampled.observed.count(None):
                return None
            left = iter(results)
            observed = [next(left) if words is None else {"content": words} for words in sampled.observed]
            closed, images = sampled.tokens[-1] in chat.stop_token_ids, [each.get("images", ()) for each in observed]
            texts = [each["content"].removesuffix(IMAGE_MARK * len(each.get("images", ()))) for each in observed]
            if any(images) and not chat.shows_results:
                raise ValueError("the model's chat template shows no images in results. Describe them")
            if any(shown and IMAGE_MARK in text for shown, text in zip(images, texts, strict=True)):
                raise ValueError("the images of a result stand behind its text. Send the text first")
            shown = images if any(images) else ()
            return [*sampled.tokens, *chat.observation(texts, closed=closed, turn=sampled.text, images=shown)]
        is_closed = sampled.tokens[-1] == chat.stop_token_ids[0]
        is_asked = len(after) == 1 and "images" not in after[0] and _is_plain_question(after[0], "user")
        if is_asked and not sampled.observed and is_closed:
            return [*sampled.tokens, *chat.user_turn(after[0]["content"], closed=True, turn=sampled.text)]
        return None

    def _render_tokens(self, messages: list[CheckedMessage], tools: Tools) -> list[int]:
        """A whole conversation by the template: a question as training renders it, or one with turns."""
        chat = self.chat(tools)
        if chat is not None and all(_is_plain_question(message, "system", "user") for message in messages):
            return chat.prompt([Message(m["role"], m["content"], m.get("images", ())) for m in messages], tools)
        if any("images" in message for message in messages):
            raise ValueError("images stand in the first prompt, and in results of calls that continue it, alone")
        # A sentinel stands in place of data in what the template is given.
        written: list[dict[str, Any]] = [
            {**message, "content": f"@@rlf:{at}@@"} if message["role"] in _DATA_ROLES else dict(message)
            for at, message in enumerate(messages)
        ]
        parts = _SENTINEL.split(self._render_text(written, tools))
        if [int(at) for at in parts[1::2]] != [at for at, m in enumerate(messages) if m["role"] in _DATA_ROLES]:
            raise ValueError("the model's chat template does not keep each of them, once and in order")
        self._check_names_are_shown(written, tools)
        tokens: list[int] = []
        for place, part in enumerate(parts):
            if place % 2:
                tokens += encode_data(self.tokenizer, messages[int(part)]["content"])
            elif part:
                tokens += encode_template(self.tokenizer, part, first=not place)
        return tokens

    def _check_names_are_shown(self, written: list[dict[str, Any]], tools: Tools) -> None:
        """Raises ValueError for the name of a speaker that the template leaves out."""
        for at, message in enumerate(written):
            if message["role"] != "tool" and message.get("name"):
                other = [*written[:at], message | {"name": "@@rlf:name@@"}, *written[at + 1 :]]
                if "@@rlf:name@@" not in self._render_text(other, tools):
                    raise ValueError(f"messages.{at}.name: the model's chat template does not show it. Leave it out")

    def _render_text(self, messages: list[dict[str, Any]], tools: Tools) -> str:
        from jinja2 import TemplateError

        try:
            text = self.tokenizer.apply_chat_template(
                messages, tools=[tool.as_openai() for tool in tools] or None, add_generation_prompt=True, tokenize=False
            )
        except (TemplateError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"the model's chat template cannot write them: {error}") from error
        assert isinstance(text, str), f"the template rendered to {type(text).__name__}"
        return clean(text)  # arguments may hold half a character, which JSON escapes


def _open_format(
    chat_format: str, tokenizer: PreTrainedTokenizerBase, thinking_tag: str | None, tools: str
) -> ChatFormat:
    described = [ToolDescription(*values) for values in json.loads(tools)]
    return open_format(chat_format, tokenizer, described, thinking_tag)


class CheckedMessage(dict[str, Any]):
    """A message in the one form that the rest takes: a role, a text with marks of images, calls.

    It is never changed: requests that bring the same one share it, with what follows from it.
    """

    @cached_property
    def words(self) -> tuple[str, str]:
        """A hash of what it says, with the ids of its calls and without."""
        role, content, calls = self["role"], self["content"], self.get("tool_calls", ())
        said = role, content.strip() if role == "assistant" else content, [call["function"] for call in calls]
        unnamed = _dump_sorted((*said, *self.get("images", ())))
        named = unnamed + repr([call["id"] for call in calls]) if calls else unnamed
        return hash_key(named).hex(), hash_key(unnamed).hex()


def check_messages(
    messages: Messages, *, sees: bool = False, known: dict[bytes, CheckedMessage] | None = None
) -> list[CheckedMessage]:
    """Messages in the one form that the rest takes.

    Args:
        sees: with images.
        known: those that were read, by a hash of what came; new ones are added.

    Raises:
        Refusal: one has no such form.
    """
    if known is None:
        return [checked_message(message, at, sees=sees) for at, message in enumerate(messages)]
    checked = list[CheckedMessage]()
    for at, message in enumerate(messages):
        digest = hashlib.blake2b(to_json(message), digest_size=16).digest()
        if digest not in known:
            known[digest] = checked_message(message, at, sees=sees)
        checked.append(known[digest])
    return checked


def checked_message(message: Mapping[str, Any], at: int, *, sees: bool = False) -> CheckedMessage:
    """A message in the one form that the rest takes. Raises Refusal."""
    where, role = f"messages.{at}", message.get("role")
    if not isinstance(role, str):
        raise Refusal(400, f"{where}.role: expected a role in each of the messages", key="messages")
    role = _ROLES.get(role, role)
    if role not in ("system", "user", "assistant", "tool"):
        raise Refusal(400, f"{where}.role: got {role!r:.40}; expected system, user, assistant or tool", key="messages")
    content, images = message.get("content"), list[str]()
    if sees and role in _DATA_ROLES and isinstance(content, list):
        content = [_take_image(part, images, where) for part in content]
    checked = CheckedMessage(role=role, content=read_content(content, f"{where}.content"))
    if images:
        if checked["content"].count(IMAGE_MARK) > len(images):
            raise Refusal(400, f"{where}.content: {IMAGE_MARK} beside an image marks no place of one", key="messages")
        checked["images"] = tuple(images)
    if message.get("tool_calls") is not None:
        checked["tool_calls"] = _check_calls(message["tool_calls"], where)
    for key, value in message.items():
        if key in _READ or value in _NOTHING:
            continue
        if key not in _SHOWN or not isinstance(value, str):
            words = f"got {value!r:.40}; expected text" if key in _SHOWN else "the prompt does not show it"
            raise Refusal(400, f"{where}.{key}: {words}. Leave the key out.", key="messages")
        checked[_SHOWN[key]] = value
    return checked


_SHOWN = {"name": "name", "tool_call_id": "tool_call_id"} | dict.fromkeys(
    ("reasoning_content", "reasoning"), "reasoning_content"
)
"""Keys of messages that templates are given, by the name that templates know them by."""
_METADATA = frozenset(
    (
        "id",
        "type",
        "status",
        "index",
        "created_at",
        "metadata",
        "annotations",
        "cache_control",
        "provider_specific_fields",
    )
)
"""Keys that clients send back and that say nothing to the model."""
_READ = _METADATA | {"role", "content", "tool_calls"}
_NOTHING: tuple[Any, ...] = (None, "", [], {})


def read_content(content: Any, where: str) -> str:
    """The text of a content, or of its parts. Raises Refusal for another one."""
    key, texts = where.partition(".")[0], [] if content is None else [content]
    if isinstance(content, list | tuple):
        for part in content:
            kind = part.get("type") if isinstance(part, dict) else part
            if not isinstance(part, dict) or kind not in _TEXT_PARTS:
                raise Refusal(400, f"{where}: a part of type {kind!r:.40}; expected parts of text", key=key)
        texts = [part.get("text", part.get("refusal")) for part in content]
    if not all(isinstance(text, str) for text in texts):
        raise Refusal(400, f"{where}: expected a text, or parts that have one", key=key)
    return "".join(texts)


UNREAD = "_raw"
"""The key of arguments that are no object, as the model wrote them."""


_TEXT_PARTS = ("text", "input_text", "output_text", "refusal")


def _take_image(part: Any, images: list[str], where: str) -> Any:
    """A part of a content, of an image its mark; the image goes to `images`. Raises Refusal for one elsewhere."""
    if not isinstance(part, dict) or part.get("type") not in ("image_url", "input_image"):
        return part
    url = part.get("image_url")
    url = url.get("url") if isinstance(url, dict) else url
    if not isinstance(url, str) or not url.startswith("data:"):
        words = "an image that is no data: URI; rlf reads no addresses and files that a request names. Send its bytes"
        raise Refusal(400, f"{where}.content: {words}.", key="messages")
    images.append(sys.intern(url))  # each later request has it again
    return {"type": "text", "text": IMAGE_MARK}


def _check_calls(calls: Any, where: str) -> list[dict[str, Any]]:
    """Calls with arguments as objects. Raises Refusal for anything else."""
    checked = []
    for call in calls if isinstance(calls, list) else [None]:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(call, dict) or not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise Refusal(400, f"{where}.tool_calls: expected a function with a name in each", key="messages")
        id_, arguments = call.get("id"), _read_arguments(function.get("arguments"), where)
        described = {"name": function["name"], "arguments": arguments}
        checked.append({"id": id_ if isinstance(id_, str) else "", "type": "function", "function": described})
    return checked


def _read_arguments(arguments: Any, where: str) -> dict[str, Any]:
    """Arguments as an object, in whichever form they come.

    The text of a demanded call that the model did not finish as an object is what this server itself returned: it comes
    back under one key, which every template can write.
    """
    if isinstance(arguments, str):
        try:
            value = json.loads(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError):
            value = None
        return value if isinstance(value, dict) else {UNREAD: arguments}
    if not isinstance(arguments or {}, dict):
        raise Refusal(400, f"{where}.tool_calls: expected arguments that are a JSON object", key="messages")
    return arguments or {}


def _is_plain_question(message: Mapping[str, Any], *roles: str) -> bool:
    """Whether a message of one of the roles has a role, a content and images alone, as those of training."""
    return message["role"] in roles and message.keys() <= {"role", "content", "images"}


def _in_order(turn: Mapping[str, Any], results: Messages) -> list[Mapping[str, Any]] | None:
    """The results of a turn's calls in the order of the calls; None where they are not each answered once."""
    ids, given = [call["id"] for call in turn.get("tool_calls", ())], [each.get("tool_call_id") for each in results]
    if given == ids:  # also those that a client has given one id
        return list(results)
    by_id = dict(zip(given, results, strict=True))
    return [by_id[id_] for id_ in ids] if by_id.keys() == set(ids) and len(by_id) == len(ids) == len(given) else None


def _history_keys(messages: Sequence[CheckedMessage], tools: Tools) -> tuple[str, str]:
    """The words of a history, whatever else stands in it: with the ids of its calls, and without."""
    words, shown = [message.words for message in messages], tools.text
    return "".join([named for named, _ in words]) + shown, "".join([unnamed for _, unnamed in words]) + shown


_dump_sorted = json.JSONEncoder(sort_keys=True).encode


# Calls that a request demands: the turn begins with the tokens that begin a call, and the sampler writes the rest.
#
# Which of several tools is called is drawn by the model where their names part, among their tokens alone. So a demanded
# call is always made; its arguments are as the model writes them, and fit no schema by force.

_VALUES: Mapping[str, tuple[Any, Any]] = {
    "string": ("a", "b"),
    "integer": (1, 2),
    "number": (1, 2),
    "boolean": (True, False),
    "array": ([], [1]),
    "object": ({}, {"a": 1}),
}
"""Two values of each type that has two."""


LookAhead = Callable[[Sequence[int], Sampling, int], Awaitable[Sample]]
"""Samples the token behind others, by a seed."""


@dataclass(frozen=True, slots=True)
class TurnOpening:
    """The beginning of a turn."""

    tokens: tuple[int, ...] = ()
    text: str = ""
    name: str | None = None
    """Of the tool that is called; None where nothing is forced."""


async def choose_opening(
    look_ahead: LookAhead,
    chat: ChatFormat,
    prompt: Sequence[int],
    tools: Sequence[ToolDescription],
    temperature: float,
    seed: int,
) -> TurnOpening:
    """The beginning of a call of one of the tools. Raises Refusal in a format whose calls cannot be begun."""
    left = {tool.name: _common_tokens(chat, tool) for tool in tools}
    chosen: list[int] = []
    while len(left) > 1:
        tokens = {opening[len(chosen)] for opening in left.values() if len(opening) > len(chosen)}
        if not tokens:
            break  # nothing distinguishes them
        token = (
            tokens.pop()
            if len(tokens) == 1
            else await _draw_token(look_ahead, [*prompt, *chosen], tokens, temperature, seed)
        )
        chosen.append(token)
        left = {name: opening for name, opening in left.items() if list(opening[: len(chosen)]) == chosen}
    name, opening = next(iter(left.items()))
    return TurnOpening(tuple(opening), chat.decode(opening), name)


def _common_tokens(chat: ChatFormat, tool: ToolDescription) -> list[int]:
    """The tokens that every call of a tool begins with."""
    closing = chat.thinking_marks[1] if chat.begins_thinking else ""
    try:
        texts = [chat.write_calls([ToolCall(tool.name, arguments)]) for arguments in _probe_arguments(tool)]
    except RlfError as error:
        raise Refusal(400, f"tool_choice: {error}", key="tool_choice") from error
    written = [encode_template(chat.tokenizer, closing + text) for text in texts]
    shared = next((at for at, tokens in enumerate(zip(*written, strict=False)) if len(set(tokens)) > 1), 0)
    text = chat.decode(written[0][:shared])
    if tool.name not in text:
        words = "tool_choice: in the model's chat format a call cannot be forced; write `auto`"
        raise Refusal(400, words, key="tool_choice")
    return encode_template(chat.tokenizer, text)  # which may take longer tokens than the probes did


def _probe_arguments(tool: ToolDescription) -> Iterator[dict[str, Any]]:
    """Arguments that differ wherever a model may choose: what their calls have in common is the same in every call."""
    readings, required = readings_of(tool), tool.input_schema.get("required")
    first = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    if not first:
        yield {}
    for name in first or [*readings.names, "x"]:
        kinds = readings.admitted(name).every_kind
        for value in next((_VALUES[kind] for kind in _VALUES if kind in kinds), _VALUES["string"]):
            yield {name: value}


async def _draw_token(
    look_ahead: LookAhead, prompt: Sequence[int], tokens: set[int], temperature: float, seed: int
) -> int:
    """One of the tokens, as likely as the model finds it among them."""
    sample = await look_ahead(prompt, Sampling(temperature=0.0, num_top=EVERY_TOKEN), seed)
    logprobs = {token: sample.tops[0].get(token, -math.inf) for token in sorted(tokens)}
    best = max(logprobs, key=logprobs.__getitem__)
    if temperature == 0 or logprobs[best] == -math.inf:
        return best
    weights = [math.exp((value - logprobs[best]) / temperature) for value in logprobs.values()]
    return random.Random(f"{seed}/{len(prompt)}").choices(list(logprobs), weights)[0]
