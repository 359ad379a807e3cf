"""The tokenizer and template of a model's folder, read by `tokenizers` and jinja2 alone: enough to render and count.

Loads in milliseconds where transformers takes half a second, so that a check can measure prompts. Invariant: what it
renders and encodes equals what transformers' tokenizer of the same folder does; a folder without `tokenizer.json` has
none of this kind.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rlf.chat.settings import _read_object, read_chat_template
from rlf.core import RlfError

if TYPE_CHECKING:
    from jinja2 import Template
    from transformers import PreTrainedTokenizerBase

_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_MAX_CHARACTERS, _MAX_FACTOR = 1_000_000, 8
"""What a template may write, and beyond it in proportion to what it is given."""


def read_tokenizer(folder: Path) -> PreTrainedTokenizerBase | None:
    """The tokenizer of a folder as a chat format needs it; None where the folder has no `tokenizer.json`.

    Raises RlfError for files that cannot be read.
    """
    if not (folder / "tokenizer.json").is_file():
        return None
    return cast("PreTrainedTokenizerBase", _Tokenizer(folder))


class _Tokenizer:
    """The part of transformers' tokenizer that formats use, under the same names."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer  # type: ignore[import-untyped]  # ships no stubs

        file = folder / "tokenizer.json"
        try:
            self.backend_tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # tokenizers raises nothing narrower
            raise RlfError(f"model.path: {file} is no tokenizer: {error}. Fetch the model's files again.") from error
        self.added_tokens_decoder: dict[int, Any] = self.backend_tokenizer.get_added_tokens_decoder()
        try:
            values = _read_object(folder / "special_tokens_map.json") | _read_object(folder / "tokenizer_config.json")
        except ValueError as error:
            message = (
                f"model.path: {folder}: a file of its tokenizer is not JSON: {error}. Fetch the model's files again."
            )
            raise RlfError(message) from error
        named = {name: values[name] for name in _SPECIAL if values.get(name) is not None}
        self.special_tokens_map = {
            name: token["content"] if isinstance(token, dict) else str(token) for name, token in named.items()
        }
        self.bos_token_id = self._id_of("bos_token")
        self.eos_token_id = self._id_of("eos_token")
        self.chat_template = read_chat_template(folder)

    def _id_of(self, name: str) -> int | None:
        text = self.special_tokens_map.get(name)
        return None if text is None else self.backend_tokenizer.token_to_id(text)

    def encode(self, text: str, *, add_special_tokens: bool = True, **_: Any) -> list[int]:
        """Tokens of a text, by default with what the tokenizer puts around every text."""
        tokens: list[int] = self.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return tokens

    def decode(self, tokens: Sequence[int], **_: Any) -> str:
        """Text of tokens, special tokens kept."""
        text: str = self.backend_tokenizer.decode(list(tokens), skip_special_tokens=False)
        return text

    def convert_ids_to_tokens(self, token: int) -> str | None:
        """A token as the vocabulary writes it."""
        text: str | None = self.backend_tokenizer.id_to_token(token)
        return text

    def get_chat_template(self, **_: Any) -> str:
        """The template. Raises ValueError where there is none, as transformers does."""
        if self.chat_template is None:
            raise ValueError("the tokenizer has no chat template!")
        return self.chat_template

    def apply_chat_template(
        self,
        conversation: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None,
        add_generation_prompt: bool,
        tokenize: bool,
    ) -> str:
        """The rendered conversation, as text."""
        assert not tokenize, "text is encoded apart from the template"
        values = {"messages": conversation, "tools": tools, "documents": None} | self.special_tokens_map
        written, num_characters, allowed = list[str](), 0, _MAX_CHARACTERS
        for piece in self._compiled_template.generate(values, add_generation_prompt=add_generation_prompt):
            written.append(piece)
            num_characters += len(piece)
            if num_characters > allowed == _MAX_CHARACTERS:  # which is counted for few
                allowed += _MAX_FACTOR * len(json.dumps([conversation, tools], default=str))
            if num_characters > allowed:
                raise ValueError(f"it writes more than {allowed:,} characters")
        return "".join(written)

    @cached_property
    def _compiled_template(self) -> Template:
        return _compile_template(self.get_chat_template())


@lru_cache(maxsize=16)
def _compile_template(template: str) -> Template:
    """A template with all that transformers gives one: loop controls, `tojson`, `raise_exception`, `strftime_now`."""
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension, loopcontrols

    from rlf.core.bounded import BoundedEnvironment

    class Generation(Extension):
        """`{% generation %}` marks what an assistant wrote; here its body is rendered and nothing is marked."""

        tags = {"generation"}  # noqa: RUF012  # jinja2's own way to say it

        def parse(self, parser: Any) -> nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body).set_lineno(line)

    def refuse(message: str) -> None:
        raise TemplateError(message)

    environment = BoundedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(template)


def _to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)
