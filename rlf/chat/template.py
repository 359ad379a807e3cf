"""Prompts and observations rendered by the model's own chat template, with every content put in as data.

The template is rendered once per shape of conversation with a sentinel in place of each content; the text between
the sentinels is encoded as template text and kept, the contents are encoded as data. So a template never sees data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from rlf.chat.encoding import encode_data, encode_template
from rlf.chat.examples import tools_of_template
from rlf.core import RlfError
from rlf.types import Message, ToolDescription

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlf.chat.vision import Vision

# White space around a sentinel shows whether the template strips contents; the \v tells it from the template's own.
_LEFT, _RIGHT = "\n\n\n\v", "\v\n\n\n"
# A template that writes contents as JSON shows the white space escaped.
_SENTINEL = re.compile(rf"({_LEFT}|\\n\\n\\n\\u000b)?@@rlf:(\d+)@@({_RIGHT}|\\u000b\\n\\n\\n)?")
_TURN = "@@rlf:turn@@"
_APART = "\n"
"""Text between two images where the template writes nothing there."""
_PROBE_TOOL = ToolDescription("probe", "", {"type": "object", "properties": {}}).as_openai()


@dataclass(frozen=True, slots=True)
class CallId:
    """What a template repeats of a call beside its result."""

    name: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class _Slot:
    """Where a content goes, and on which sides the template strips it."""

    index: int
    strip_left: bool
    strip_right: bool
    is_json: bool
    """Whether the template writes the content as a JSON string."""

    def take(self, content: str) -> str:
        if self.is_json:
            return json.dumps(content, ensure_ascii=False)[1:-1]
        content = content.lstrip() if self.strip_left else content
        return content.rstrip() if self.strip_right else content


_Tools = list[dict[str, Any]]
"""Tools in the OpenAI form."""


class _ImagePlace(Enum):
    """Place of an image: the token that the template writes for one."""

    HERE = "here"


_Skeleton = tuple[tuple[int, ...] | _Slot | _ImagePlace, ...]


class TemplateRenderer:
    """Renders with the chat template of one tokenizer.

    Args:
        end_of_turn: the special token that the template writes after an assistant's content.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, end_of_turn: str) -> None:
        self._tokenizer = tokenizer
        self._end_of_turn = end_of_turn
        self.vision: Vision | None = None
        """The processor that turns images into tokens; set before anything is rendered. None: there are no images."""
        self._prompt_skeleton = lru_cache(maxsize=256)(self._render_prompt)
        self._filled_prompt = lru_cache(maxsize=128)(self._fill_prompt)
        self._described: dict[tuple[int, ...], tuple[Sequence[ToolDescription], str]] = {}
        self._observation_skeleton = lru_cache(maxsize=64)(self._render_observation)

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolDescription]) -> list[int]:
        """Tokens of a conversation up to where the policy begins to sample.

        System messages and tools are the spec's own words and go in as template text, the rest as data. The prompt of a
        group is rendered once.
        """
        key = tuple(map(id, tools))
        if key not in self._described:
            if len(self._described) >= 64:
                self._described.clear()
            self._described[key] = (tuple(tools), json.dumps([tool.as_openai() for tool in tools]))
        described = self._described[key][1]
        if any(message.images for message in messages):
            return self._fill_prompt(tuple(messages), described)
        return list(self._filled_prompt(tuple(messages), described))

    def _fill_prompt(self, messages: tuple[Message, ...], tools_json: str) -> list[int]:
        shape = tuple(
            (m.role, m.texts if m.role == _TRUSTED else tuple("x" * bool(t) for t in m.texts)) for m in messages
        )
        texts = [text for message in messages for text in message.texts]
        images = [image for message in messages for image in message.images]
        return self._fill_skeleton(self._prompt_skeleton(shape, tools_json), texts, images)

    def observation(
        self,
        results: Sequence[str],
        calls: Sequence[CallId] = (),
        *,
        after_calls: bool = True,
        images: Sequence[Sequence[str]] = (),
    ) -> list[int]:
        """Tokens after a sampled turn, from its end-of-turn token to the next generation prompt.

        Args:
            results: at least one; each becomes a message of the role `tool`.
            calls: the call of each result, in a template that needs them.
            after_calls: whether the turn is shown to the template with its calls; it may leave out what the turn says.
            images: the images of each result, which stand after its text; empty when there are none at all.
        """
        assert results and len(calls) in (0, len(results)), f"{len(results)} results of {len(calls)} calls"
        shapes = tuple(("tool", len(shown)) for shown in images or [()] * len(results))
        skeleton = self._observation_skeleton(shapes, tuple(calls), self._end_of_turn, after_calls)
        return self._fill_skeleton(skeleton, results, [image for shown in images for image in shown])

    def reply(self, text: str, end_of_turn: str) -> list[int]:
        """Tokens after a sampled turn that calls nothing, as `observation`: the text is what the user says next."""
        return self._fill_skeleton(self._observation_skeleton((("user", 0),), (), end_of_turn, False), [text])

    @cached_property
    def names_results(self) -> bool:
        """Whether the template writes the name of the call beside its result."""
        probe = CallId("probe_name")
        try:
            shown = self._render_observation((("tool", 0),), (probe,), self._end_of_turn, False)
            bare = self._render_observation((("tool", 0),), (), self._end_of_turn, False)
        except RlfError:
            return True
        return shown != bare

    @cached_property
    def shows_results(self) -> bool:
        """Whether the template writes places for the images of a result."""
        try:
            self._render_observation((("tool", 1),), (CallId("probe_name"),), self._end_of_turn, True)
        except RlfError:
            return False
        return True

    @cached_property
    def generation_prompt(self) -> str:
        """The text that the template puts after a conversation to let the assistant speak."""
        messages = [{"role": "user", "content": "probe"}]
        before = self._render_text(messages, [_PROBE_TOOL], add_generation_prompt=False)
        after = self._render_text(messages, [_PROBE_TOOL], add_generation_prompt=True)
        if not after.startswith(before) or after == before:
            raise RlfError(
                f"the model's chat template ends in {after[-40:]!r} with a generation prompt and in {before[-40:]!r} "
                "without; expected the first to extend the second. Correct `add_generation_prompt` in the template."
            )
        return after.removeprefix(before)

    def render(self, messages: list[dict[str, Any]]) -> str:
        """The text of a conversation without tools, to where the last message ends."""
        return self._render_text(messages, [], add_generation_prompt=False)

    def _fill_skeleton(self, skeleton: _Skeleton, contents: Sequence[str], images: Sequence[str] = ()) -> list[int]:
        tokens: list[int] = []
        left = iter(images)
        for piece in skeleton:
            if isinstance(piece, _Slot):
                tokens += encode_data(self._tokenizer, piece.take(contents[piece.index]))
            elif isinstance(piece, _ImagePlace):
                assert self.vision is not None, "a place for an image without what reads it"
                # Side by side OpenRLHF and vLLM take two for one.
                side_by_side = tokens[-1:] == [self.vision.placeholder]
                tokens += encode_template(self._tokenizer, _APART) if side_by_side else []
                tokens += self.vision.prepare_image(next(left)).tokens
            else:
                tokens += piece
        return tokens

    def _render_prompt(self, shape: tuple[tuple[str, tuple[str, ...]], ...], tools_json: str) -> _Skeleton:
        filled: list[dict[str, Any]] = []
        slots: list[int] = []
        index = 0
        for role, texts in shape:
            places = [index + number if text else None for number, text in enumerate(texts)]
            index += len(texts)
            if role == _TRUSTED:
                filled.append({"role": role, "content": texts[0]})
            else:
                filled.append(_mark_places(role, places))
                slots += [place for place in places if place is not None]
        tools = tools_of_template(
            json.loads(tools_json), lambda shown: self._render_text(filled, shown, add_generation_prompt=True)
        )
        text = self._render_text(filled, tools, add_generation_prompt=True)
        self._check_tools_are_told(text, tools)
        return self._split_rendering(text, slots, first=True, num_images=sum(len(texts) - 1 for _, texts in shape))

    def _render_observation(
        self, shapes: tuple[tuple[str, int], ...], calls: tuple[CallId, ...], end_of_turn: str, after_calls: bool
    ) -> _Skeleton:
        """Of messages of a role and a number of images each."""
        turn = [{"role": "user", "content": "probe"}, _probe_turn(calls if after_calls else ())]
        slots = list(range(len(shapes)))
        results = [_mark_places(role, [index, *[None] * images]) for index, (role, images) in enumerate(shapes)]
        for result, call in zip(results, calls, strict=False):
            result |= {"name": call.name, "tool_call_id": call.id}
        text = self._render_text(turn + results, [_PROBE_TOOL], add_generation_prompt=True)
        _, _, after = text.partition(_TURN)
        if _PROBE_TOOL["function"]["name"] in after:  # the tools move before the last question; they stay at the first
            text = self._render_text(turn + results, [], add_generation_prompt=True)
            _, _, after = text.partition(_TURN)
        if calls and after_calls:
            # The calls themselves stand between what the turn says and its end.
            _, end, rest = after.partition(end_of_turn)
            after = end + rest
        if text.count(_TURN) != 1 or not after.startswith(end_of_turn):
            raise RlfError(
                f"the model's chat template writes {after[:40]!r} after an assistant's turn; expected it to keep the "
                f"turn's content and to close it with {end_of_turn}. Choose another `chat.format`."
            )
        return self._split_rendering(after, slots, first=False, num_images=sum(images for _, images in shapes))

    def _render_text(self, messages: list[dict[str, Any]], tools: _Tools, *, add_generation_prompt: bool) -> str:
        try:
            text = self._tokenizer.apply_chat_template(
                messages, tools=[*tools] or None, add_generation_prompt=add_generation_prompt, tokenize=False
            )
        except Exception as error:  # a template is code of the model's
            roles = ", ".join(message["role"] for message in messages)
            raise RlfError(
                f"the model's chat template cannot render messages of the roles {roles}: {error}. "
                "Change the prompt's messages, or use a model whose template takes them."
            ) from error
        assert isinstance(text, str), f"the template rendered to {type(text).__name__}"
        return text

    def _split_rendering(self, text: str, slots: list[int], *, first: bool, num_images: int) -> _Skeleton:
        """Cuts rendered text at its sentinels and images.

        Raises RlfError when the template loses, repeats or rewrites one.
        """
        parts = _SENTINEL.split(text)
        found = [int(index) for index in parts[2::4]]
        half_stripped = any(p.endswith("\v") for p in parts[:-1:4]) or any(p.startswith("\v") for p in parts[4::4])
        if found != slots or half_stripped:
            raise RlfError(
                f"the model's chat template shows the contents {found} of the messages; expected {slots}, each once, "
                "in order and unchanged. Use a model whose template keeps every message, or drop those it loses."
            )
        skeleton: list[tuple[int, ...] | _Slot | _ImagePlace] = []
        for place, part in enumerate(parts):
            if place % 4 == 0 and part:
                skeleton += self._split_images(encode_template(self._tokenizer, part, first=first and not place))
            elif place % 4 == 2:
                left, right = parts[place - 1], parts[place + 1]
                skeleton.append(_Slot(int(part), left is None, right is None, bool(left) and left[0] == "\\"))
        found_images = skeleton.count(_ImagePlace.HERE)
        if found_images != num_images:
            raise RlfError(
                f"model.path: the model's chat template writes places for {found_images} of {num_images} images; "
                "expected one for each. Use a model whose template takes contents with `{type: image}` parts, or take "
                "the images out."
            )
        return tuple(skeleton)

    def _split_images(self, tokens: list[int]) -> Iterator[tuple[int, ...] | _ImagePlace]:
        """Template text with the places of images apart."""
        start = 0
        for place, token in enumerate(tokens):
            if self.vision is not None and token == self.vision.placeholder:
                yield tuple(tokens[start:place])
                yield _ImagePlace.HERE
                start = place + 1
        yield tuple(tokens[start:])

    def _check_tools_are_told(self, text: str, tools: _Tools) -> None:
        missing = [name for tool in tools if (name := tool["function"]["name"]) not in text]
        if missing:
            raise RlfError(
                f"the model's chat template does not show the model the tools {', '.join(missing)}; "
                "expected a template that writes `tools`. Use a model trained for tools, or give it such a template."
            )


def end_of_turn(tokenizer: PreTrainedTokenizerBase) -> str:
    """The special token that the model's template writes after an assistant's content. Raises RlfError for none."""
    renderer = TemplateRenderer(tokenizer, "")
    question = {"role": "user", "content": "probe"}
    turn = {"role": "assistant", "content": _TURN}
    text = renderer.render([question, turn, question])
    _, _, after = text.partition(_TURN)
    specials = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
    found = [token for token in specials if after.startswith(token)]
    if not found:
        raise RlfError(
            f"the model's chat template writes {after[:40]!r} after an assistant's turn; expected a special token that "
            "ends the turn. Use a model whose template closes turns, or another `chat.format`."
        )
    return str(max(found, key=len))


_TRUSTED = "system"
"""The role whose messages are the spec's own words."""


def _probe_turn(calls: Sequence[CallId]) -> dict[str, Any]:
    """An assistant's turn of the probe, with calls in the OpenAI form."""
    functions = [{"name": call.name, "arguments": {}} for call in calls]
    asked = [{"id": c.id, "type": "function", "function": f} for c, f in zip(calls, functions, strict=True)]
    return {"role": "assistant", "content": _TURN} | ({"tool_calls": asked} if asked else {})


def _mark_places(role: str, places: Sequence[int | None]) -> dict[str, Any]:
    """A message with a sentinel for each text, None for an empty one, and an image between two texts."""
    texts = ["" if place is None else f"{_LEFT}@@rlf:{place}@@{_RIGHT}" for place in places]
    if len(texts) == 1:
        return {"role": role, "content": texts[0]}
    parts: list[dict[str, str]] = []
    for number, text in enumerate(texts):
        parts += [{"type": "image"}] if number else []
        parts += [{"type": "text", "text": text}] if text else []
    return {"role": role, "content": parts}


# Parts of formats without tags of a model's own: neutral results, the one tool they call.
