"""A small byte-level tokenizer and one chat template per format, `templates/<format>.jinja`."""

from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from rlf.chat import FORMATS
from rlf.types import ToolDescription

TEMPLATES = Path(__file__).parent / "templates"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
PLAIN = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>", "  ", "中"]
CORPUS = [
    "system user assistant tool <|im_ end|> call response name arguments query search",
    'Write {"name": "search", "arguments": {"query": "river"}} and the answer is 42.\n\n',
]


def train_tokenizer(template: str | None, *, eos: str = "<|im_end|>", nfkc: bool = False) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False, min_frequency=1
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=nfkc) for text in PLAIN])
    if nfkc:
        tokenizer.normalizer = normalizers.NFKC()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=eos, chat_template=template)


@pytest.fixture(scope="session")
def template():
    return (TEMPLATES / "hermes.jinja").read_text()


@pytest.fixture(scope="session")
def make_tokenizer():
    return train_tokenizer


@pytest.fixture(scope="session")
def tokenizer(template):
    return train_tokenizer(template)


@pytest.fixture(scope="session")
def hermes(tokenizer):
    return FORMATS.get("hermes")(tokenizer)


@pytest.fixture(scope="session")
def tools():
    schema = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    return (ToolDescription("search", "Find a passage.", schema), ToolDescription("add", "Add.", {"type": "object"}))


@pytest.fixture(scope="session", params=FORMATS.names())
def any_format(request):
    file = TEMPLATES / f"{request.param}.jinja"
    assert file.exists(), f"a new chat format needs a test template: {file}"
    return FORMATS.get(request.param)(train_tokenizer(file.read_text()))
