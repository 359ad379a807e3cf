"""A small byte-level tokenizer for each format, with the tokens and the chat template of the format's stand-in.

What the conformance suite must know beside (calls that a format can write) stands in `families/<format>.py`.
"""

import importlib.util
import time
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from rlf.chat import FORMATS, encode_template
from rlf.chat.repair import read_stand_in
from rlf.types import Message, ToolCall, ToolDescription

FAMILIES = Path(__file__).parent / "families"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
PLAIN = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>", "  ", "中"]
CORPUS = [
    "system user assistant tool <|im_ end|> call response name arguments query search",
    'Write {"name": "search", "arguments": {"query": "river"}} and the answer is 42.\n\n',
]


def train_tokenizer(
    template: str | None,
    *,
    eos: str = "<|im_end|>",
    nfkc: bool = False,
    special: list[str] = SPECIAL,
    plain: list[str] = PLAIN,
) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False, min_frequency=1
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=nfkc) for text in plain])
    if nfkc:
        tokenizer.normalizer = normalizers.NFKC()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=eos, chat_template=template)


@pytest.fixture(scope="session")
def template():
    return read_stand_in("hermes").template


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


def family(name):
    """What the conformance suite needs to know of a format; `families/<format>.py` changes what differs.

    TOOLS: the declared tools. CALLS: a strategy of the calls that the format can write, None for every call.
    MAX_CALLS: of one turn. CALL: one of them. SAY and ANSWER: how text before a call and the final answer are written.
    SHOWN: how a result is. SPEAKS: whether what follows a result lets the model speak in the same words as what
    follows a question. SPECIAL, PLAIN, EOS: the tokens of the stand-in.
    """
    known = SimpleNamespace(TOOLS=(), CALLS=None, MAX_CALLS=3, SAY="{} ", ANSWER="{}", SHOWN=str, SPEAKS=True)
    tokens = read_stand_in(name)
    known.SPECIAL, known.PLAIN, known.EOS = tokens.special, [*tokens.plain, "  ", "中"], tokens.eos
    known.CALL = ToolCall("search", {"query": "a"})
    file = FAMILIES / f"{name}.py"
    if file.exists():
        spec = importlib.util.spec_from_file_location(f"family_{name}", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        vars(known).update({key: value for key, value in vars(module).items() if key.isupper()})
    return known


def build_format(name, template=None):
    """A format over a tokenizer of its family, with its stand-in's template or another one."""
    known = family(name)
    template = template or read_stand_in(name).template
    tokenizer = train_tokenizer(template, eos=known.EOS, special=known.SPECIAL, plain=known.PLAIN)
    chat = FORMATS.get(name)(tokenizer, known.TOOLS)
    chat.family = known
    return chat


@pytest.fixture(scope="session", params=FORMATS.names())
def any_format(request):
    return build_format(request.param)


@pytest.fixture(scope="session")
def make_format():
    return build_format


@pytest.fixture(scope="session")
def read():
    """Parses a turn and checks what holds of every failure."""

    def read(chat, text, truncated=False):
        parsed = chat.parse(text, truncated=truncated)
        for failure in parsed.failures:
            assert text[failure.position : failure.position + len(failure.raw)] == failure.raw
            assert 3 <= len(failure.message.split()) <= 40, failure.message
        positions = [failure.position for failure in parsed.failures]
        assert positions == sorted(positions)
        return parsed

    return read


@pytest.fixture(scope="session")
def kinds():
    """The items of a parsed turn in short: a call's name or a failure's class."""
    return lambda parsed: [getattr(item, "name", None) or item.kind.value for item in parsed.items]


@pytest.fixture(scope="session")
def assert_is_the_templates():
    """Asserts that a trajectory decodes to what the model's own template renders of the same conversation."""

    def check(chat, tools, turns, question="How many live in Vell?", **options):
        conversation = [{"role": "user", "content": question}]
        tokens = chat.prompt([Message("user", question)], tools)
        for sampled, message, results in turns:
            tokens += encode_template(chat.tokenizer, sampled)
            tokens += chat.observation([result["content"] for result in results], closed=True, turn=sampled)
            conversation += [{"role": "assistant", **message}, *({"role": "tool", **result} for result in results)]
        expected = chat.tokenizer.apply_chat_template(
            conversation, tools=[t.as_openai() for t in tools], add_generation_prompt=True, tokenize=False, **options
        )
        assert chat.decode(tokens) == expected

    return check


@pytest.fixture(scope="session")
def assert_linear():
    """Asserts that long turns of one repeated piece cost no quadratic time."""

    def check(chat, pieces, num_characters=30_000):
        for piece in pieces:
            started = time.process_time()
            chat.parse(piece * (num_characters // len(piece)), truncated=False)
            assert time.process_time() - started < 3, piece

    return check


@pytest.fixture(scope="session")
def trl_template():
    """Reads a real chat template from TRL's wheel; skips the test, with the fix, where TRL is not installed."""

    def read(name):
        if importlib.util.find_spec("trl") is None:
            pytest.skip("TRL's chat templates are not here: pip install --no-deps trl")
        return files("trl").joinpath("chat_templates", f"{name}.jinja").read_text()

    return read
