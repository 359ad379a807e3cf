"""Requests of the OpenAI protocol as values.

Four sorts of keys: those that are honoured are fields below; those that change no answer are taken and have no effect;
those that cannot be honoured are taken with the value that asks for nothing; a key that nobody here knows is taken
without effect and noted, unless it looks like a misspelt one.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from pydantic import Field, GetCoreSchemaHandler, ValidationError, ValidatorFunctionWrapHandler
from pydantic_core import CoreSchema, core_schema, from_json, to_json

from rlf.core.kinds import StrictModel
from rlf.core.text import show_value
from rlf.types import ToolDescription

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Why a request is not answered.


class Refusal(Exception):
    """A request that is not answered, with its status. The message is for its sender."""

    def __init__(
        self, status: int, message: str, *, key: str | None = None, code: str | None = None, retry_s: int | None = None
    ) -> None:
        """Takes the words.

        Args:
            key: the key of the request that is at fault.
            code: a word for programs, as OpenAI's API has it.
            retry_s: when to try again.
        """
        super().__init__(message)
        self.status = status
        self.key = key
        self.code = code
        self.retry_s = retry_s

    @property
    def kind(self) -> str:
        """The type of the error, as OpenAI's and Anthropic's APIs both name it."""
        return _KINDS.get(self.status, "invalid_request_error" if self.status < 500 else "api_error")


_KINDS = {
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
}

R = TypeVar("R", bound=StrictModel)
T = TypeVar("T")


class RecentValues(Generic[T]):
    """The latest values by key, as many as fit."""

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._size = 0
        self._values: OrderedDict[bytes, tuple[T, int]] = OrderedDict()

    def put(self, key: str | bytes, value: T, size: int) -> None:
        """Remembers a value, and forgets the oldest where there is no room."""
        digest = hash_key(key)
        self._forget(digest)
        self._values[digest] = value, size
        self._size += size
        while self._size > self._max_size:
            self._forget(next(iter(self._values)))

    def get(self, key: str | bytes) -> T | None:
        """A value; None where it was never put here, or is forgotten."""
        return self._values.get(hash_key(key), (None, 0))[0]

    def _forget(self, digest: bytes) -> None:
        self._size -= self._values.pop(digest, (None, 0))[1]


def hash_key(key: str | bytes) -> bytes:
    """A short name of a text, or of bytes."""
    data = key if isinstance(key, bytes) else key.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=16).digest()


WITHOUT_EFFECT = frozenset(
    {"user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "service_tier"}
    | {"cache_control", "prompt_cache_options"}
)
"""Keys that change no answer, whatever they hold."""
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "length_penalty": (1,),
    "logit_bias": ({},),
    "chat_template_kwargs": ({},),
    "store": (False,),
    "modalities": (["text"],),
    "best_of": (1,),
    "use_beam_search": (False,),
    "echo": (False,),
    "suffix": ("",),
    "min_tokens": (0,),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "include_stop_str_in_output": (False,),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
    "add_special_tokens": (False, True),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "verbosity": ("medium",),
    "context_management": ({"edits": []}, {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}),
    "reasoning_effort": (),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "structured_outputs": (),
    **dict.fromkeys(
        (
            *("allowed_token_ids", "bad_words", "logits_processors", "prompt_logprobs", "truncate_prompt_tokens"),
            *("chat_template", "documents", "mm_processor_kwargs", "lora_path", "lora_request", "priority"),
            *("grammar", "json_schema", "regex", "ebnf", "output_config", "output_format", "prefill"),
            *("typical_p", "top_a", "tfs_z", "mirostat", "repeat_penalty", "dry_multiplier", "xtc_probability"),
            *("prompt", "conversation", "max_tool_calls", "compaction", "fallbacks"),
            *("mcp_servers", "container", "defer_loading", "input_examples", "allowed_callers"),
        ),
        (),
    ),
}
"""Keys that cannot be honoured, with the values that ask for nothing; null is one of each."""
_WHY = {
    "reasoning_effort": "the model's template decides whether it thinks",
    "chat_template_kwargs": "the template is rendered as training rendered it",
    "store": "nothing is kept after the answer",
    "functions": "write `tools`",
    "function_call": "write `tool_choice`",
}
_MISSPELT = 0.8
"""How alike an unknown key and a known one are that are taken for the same, from 0 to 1."""
_MOST_UNKNOWN, _MOST_PLACES = 100, 1000
"""Names of unknown keys in a request, and places where they stand: each is compared with all that are known."""
_MOST_STOPS = 64
"""Texts, and tokens, that end an answer: each is looked for at each token of every answer."""
Note = Callable[[str], None]
"""Takes the name of a key that was taken without effect."""
_STRICT = frozenset({"model", "messages", "prompt", "tools", "tool_choice", "max_tokens", "max_completion_tokens"}) | {
    *("temperature", "top_p", "stop", "seed", "n", "stream", "user", "logprobs", "top_logprobs")
}
"""Keys that a strict server takes."""


class StreamOptions(StrictModel):
    """The contents of a stream beside the answer."""

    include_usage: bool | None = None
    continuous_usage_stats: Literal[False] | None = None
    include_obfuscation: bool | None = None


class SampledRequest(StrictModel):
    """The keys that both kinds of request share."""

    model: str
    max_tokens: int | None = Field(default=None, ge=1)
    temperature: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=-1)
    min_p: float = Field(default=0.0, ge=0, le=1)
    stop: str | tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = Field(default=(), max_length=_MOST_STOPS)
    ignore_eos: bool = False
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    n: int = Field(default=1, ge=1, le=128)
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    return_token_ids: bool = False
    return_tokens_as_token_ids: bool = False
    """Whether log-probabilities name tokens `token_id:N`."""
    request_id: str | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        """Strings that end an answer, each of them something."""
        stops = tuple(filter(None, (self.stop,) if isinstance(self.stop, str) else self.stop))
        if len(stops) > _MOST_STOPS:
            raise Refusal(400, f"stop: got {len(stops)} texts; at most {_MOST_STOPS}. Leave some out.", key="stop")
        return stops

    @property
    def limit(self) -> int | None:
        """Tokens of an answer at most; None: as many as fit."""
        return self.max_tokens

    @property
    def num_top(self) -> int | None:
        """Likeliest tokens that come with each sampled one; None: no log-probabilities are wanted."""
        raise NotImplementedError


class ToolFunction(StrictModel):
    """A tool, as the model sees it."""

    name: str = Field(min_length=1, max_length=256, pattern=r"^[\w.:-]+$")
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    """Whether its arguments fit its schema, where the sampler follows a grammar and the chat format writes JSON."""

    @property
    def described(self) -> ToolDescription:
        """In rlf's own words."""
        return ToolDescription(self.name, self.description or "", self.parameters or {})


class RequestTool(StrictModel):
    """An element of `tools`."""

    type: Literal["function"] = "function"
    function: ToolFunction


class Tools(tuple[ToolDescription, ...]):
    """Tools that may be called."""

    @cached_property
    def text(self) -> str:
        """All of them, equal for equal ones."""
        return json.dumps([(tool.name, tool.description, tool.input_schema) for tool in self])


class RequestTools(tuple[RequestTool, ...]):
    """The key `tools`: equal ones are one object with what follows from it, since most requests bring those of others.

    It is never changed.
    """

    @cached_property
    def described(self) -> Tools:
        """In rlf's own words."""
        return Tools(tool.function.described for tool in self)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_wrap_validator_function(_read_tools, handler(tuple[RequestTool, ...]))


def _read_tools(value: Any, read: ValidatorFunctionWrapHandler) -> RequestTools:
    key = to_json(value)
    if (tools := _KNOWN.get(key)) is None:
        tools = RequestTools(read(value))
        _KNOWN.put(key, tools, len(key) + _TOOLS_BYTES)
    return tools


_KNOWN: RecentValues[RequestTools] = RecentValues(16_000_000)
"""Lists of tools, by their JSON. As objects they take about eight times as many bytes."""
_TOOLS_BYTES = 1000
"""What the shortest list counts."""


class NamedFunction(StrictModel):
    """A tool by its name."""

    name: str


class NamedTool(StrictModel):
    """`tool_choice` that names the tool to be called."""

    type: Literal["function"] = "function"
    function: NamedFunction


class ChatRequest(SampledRequest):
    """`/v1/chat/completions`."""

    messages: tuple[dict[str, Any], ...] = Field(min_length=1)
    tools: RequestTools = RequestTools()
    tool_choice: Literal["auto", "none", "required"] | NamedTool = "auto"
    parallel_tool_calls: bool = True
    response_format: dict[str, Any] | None = None
    max_completion_tokens: int | None = Field(default=None, ge=1)
    logprobs: bool = False
    top_logprobs: int = Field(default=0, ge=0, le=20)

    @property
    def schema_text(self) -> str | None:
        """The JSON schema that an answer follows; None: any text."""
        form = self.response_format
        if form is None or form == {"type": "text"}:
            return None
        named = form.get("json_schema", {"schema": {"type": "object"}} if form.get("type") == "json_object" else None)
        schema = named.get("schema") if isinstance(named, dict) else None
        if form.get("type") not in ("json_object", "json_schema") or not isinstance(schema, dict):
            words = "expected `json_object`, or `json_schema` with a schema"
            raise Refusal(400, f"response_format: got {show_value(form)}; {words}.", key="response_format")
        return json.dumps(schema)

    @property
    def offered(self) -> Tools:
        """The tools that may be called: the same for equal `tools`."""
        return Tools() if self.tool_choice == "none" else self.tools.described

    @property
    def limit(self) -> int | None:
        """Tokens of an answer at most; None: as many as fit."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def num_top(self) -> int | None:
        """Likeliest tokens that come with each sampled one; None: no log-probabilities are wanted."""
        return self.top_logprobs if self.logprobs else None


class CompletionRequest(SampledRequest):
    """`/v1/completions`."""

    prompt: str | tuple[int, ...] | tuple[str, ...] | tuple[tuple[int, ...], ...]
    max_tokens: int | None = Field(default=16, ge=1)
    logprobs: int | None = Field(default=None, ge=0, le=20)

    @property
    def num_top(self) -> int | None:
        """Likeliest tokens that come with each sampled one; None: no log-probabilities are wanted."""
        return self.logprobs

    @property
    def prompts(self) -> tuple[str | tuple[int, ...], ...]:
        """Each text, or its tokens."""
        prompt: Any = self.prompt
        return (prompt,) if isinstance(prompt, str) or (prompt and isinstance(prompt[0], int)) else tuple(prompt)


_FIELDS = ChatRequest.model_fields.keys() - {"model", "request_id", "stream_options"}
"""Keys of the sampler, which the other protocols lack."""


def body_object(data: bytes) -> dict[str, Any]:
    """The object of a body. Raises Refusal for anything else."""
    try:
        body = from_json(data)
    except ValueError as error:
        raise Refusal(400, f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise Refusal(400, f"the body is a JSON {type(body).__name__}; expected an object")
    return body


def read_request(kind: type[R], body: Mapping[str, Any], *, strict: bool = False, note: Note = lambda key: None) -> R:
    """A request of a kind.

    Args:
        strict: whether only the keys that judges send are taken.
        note: hears of each key that nobody here knows, at any depth, and that is left out.

    Raises:
        Refusal: a key is misspelt, has a value that it cannot have, or asks for what cannot be honoured.
    """
    wanted = {key: value for key, value in body.items() if value is not None}
    if strict:
        _refuse_unstrict(wanted)
    asked = {key: value for key, value in wanted.items() if not _is_empty(key, value, kind)}
    try:
        return kind.model_validate(asked)
    except ValidationError as error:
        unknown = [fault["loc"] for fault in error.errors() if fault["type"] == "extra_forbidden"]
        if len(unknown) > _MOST_PLACES or len({place[-1] for place in unknown}) > _MOST_UNKNOWN:
            words = f"got {len(unknown)} keys that this server does not know, {str(unknown[0][-1])!r:.40} among them"
            raise Refusal(400, f"{words}. Leave them out.") from error
        for place in unknown:
            _refuse_meant(place, kind)
        if not unknown or len(unknown) < error.error_count():
            raise _refusal_of(error) from error
    for place in unknown:
        note(".".join(step for step in map(str, place) if not step.isdigit()))
        asked = _without(asked, place)
    try:
        return kind.model_validate(asked)
    except ValidationError as error:  # a key of a union, whose other forms each name it
        raise _refusal_of(error) from error


def _without(value: Any, place: tuple[int | str, ...]) -> Any:
    """A copy without the key at a place; a step that is no key of the value names a form of a union."""
    step, *rest = place
    if isinstance(value, list | tuple) and isinstance(step, int):
        return [_without(item, tuple(rest)) if at == step else item for at, item in enumerate(value)]
    if not isinstance(value, dict) or step not in value:
        return _without(value, tuple(rest)) if rest else value
    if not rest:
        return {key: item for key, item in value.items() if key != step}
    return {**value, step: _without(value[step], tuple(rest))}


def _refuse_meant(place: tuple[int | str, ...], kind: type[StrictModel]) -> None:
    """Raises Refusal for an unknown key that would change the answer, or is a known one with a slip."""
    key, name = ".".join(map(str, place)), str(place[-1])
    known = [*kind.model_fields, *WITHOUT_EFFECT, *NEUTRAL] if len(place) == 1 else []
    near = difflib.get_close_matches(name, known, 1, _MISSPELT)
    if near:
        words = f"{key}: this server does not know the key; did you mean {near[0]!r}? Leave it out."
        raise Refusal(400, words, key=key)
    if name in NEUTRAL or name in _FIELDS:
        raise Refusal(400, f"{key}: this path does not have it, and it changes answers. Leave it out.", key=key)


def _is_empty(key: str, value: Any, kind: type[StrictModel]) -> bool:
    """Whether a key asks for nothing that changes an answer. Raises Refusal where it asks for what is not honoured."""
    if key in kind.model_fields:
        return False
    if key in WITHOUT_EFFECT or (key in NEUTRAL and value in NEUTRAL[key]):
        return True
    if key not in NEUTRAL:
        return False
    why = _WHY.get(key, "this server does not have it")
    raise Refusal(400, f"{key}: {show_value(value)} cannot be done: {why}. Leave the key out.", key=key)


def _refuse_unstrict(wanted: Mapping[str, Any]) -> None:
    unknown = sorted(wanted.keys() - _STRICT)
    if wanted.get("stream"):
        unknown.append("stream")
    if wanted.get("n", 1) != 1:
        unknown.append("n")
    if unknown:
        raise Refusal(400, f"{unknown[0]}: this server is strict and does not take it. Leave it out.", key=unknown[0])


def _refusal_of(error: ValidationError) -> Refusal:
    """The first fault of a request that is not an unknown key, in words."""
    faults = error.errors()
    fault = next((each for each in faults if each["type"] != "extra_forbidden"), faults[0])
    key = ".".join(map(str, fault["loc"])) or "body"
    found = "" if fault["type"] == "missing" else f" (got {show_value(fault['input'])})"
    return Refusal(400, f"{key}: {fault['msg']}{found}", key=key)


# Tokens as the protocol shows them: text, bytes, log-probabilities.

# SentencePiece writes a byte that is no character as `<0x0A>`.
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


@lru_cache(maxsize=65536)
def token_text(tokenizer: PreTrainedTokenizerBase, token: int) -> str:
    """The text of one token; a part of a character is U+FFFD."""
    return str(tokenizer.decode([token]))


@lru_cache(maxsize=65536)
def token_bytes(tokenizer: PreTrainedTokenizerBase, token: int) -> tuple[int, ...]:
    """The bytes of one token, those of a part of a character too."""
    text = token_text(tokenizer, token)
    if "\ufffd" not in text:
        return tuple(text.encode("utf-8", "replace"))
    piece = str(tokenizer.convert_ids_to_tokens(token))
    if found := _BYTE.fullmatch(piece):
        return (int(found[1], 16),)
    letters = _byte_letters()
    if all(letter in letters for letter in piece):
        return tuple(letters[letter] for letter in piece)
    return tuple(text.encode("utf-8", "replace"))


@lru_cache(maxsize=1)
def _byte_letters() -> dict[str, int]:
    """The byte that each letter of a byte-level vocabulary stands for: GPT-2's table, printable bytes as themselves."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + at): byte for at, byte in enumerate(hidden)}


def show_logprobs(
    tokenizer: PreTrainedTokenizerBase,
    tokens: Sequence[int],
    logprobs: Sequence[float],
    tops: Sequence[Mapping[int, float]],
    num_top: int,
    temperature: float | None,
    *,
    as_ids: bool = False,
) -> list[dict[str, Any]]:
    """Each token with its log-probability and those of the likeliest ones, all at the temperature it was sampled at.

    Args:
        tops: at temperature 1, the sampled token among them.
        temperature: of the sampler; None, and 0: log-probabilities at temperature 1.
        as_ids: whether tokens are named by their ids.
    """

    def show(token: int, value: float) -> dict[str, Any]:
        data = list(token_bytes(tokenizer, token))
        text = f"token_id:{token}" if as_ids else token_text(tokenizer, token)
        finite = value if math.isfinite(value) else -9999.0  # JSON has no infinity; no probability is as small
        return {"token": text, "token_id": token, "logprob": finite, "bytes": data}

    shown = []
    for token, value, top in zip(tokens, logprobs, tops, strict=True):
        scale = 1.0 / temperature if temperature else 1.0
        own = value if temperature else top[token]
        shift = own - scale * top[token]  # the distribution at the temperature is that at 1, scaled and normalised
        others = [show(other, scale * logprob + shift) for other, logprob in top.items()][:num_top]
        shown.append({**show(token, own), "top_logprobs": others})
    return shown
