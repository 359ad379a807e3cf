"""Small tokenizers of every kind, trained on the spot, with the added tokens of any template family."""

import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CORPUS = [
    "system user assistant tool call response name arguments query search <|im_ end|>",
    'Write {"name": "search", "arguments": {"query": "river"}} and the answer is 42.',
    "The river rises in the hills, passes two towns and ends in the sea.",
] * 4

_MARKUP = {
    "qwen": "<|im_start|> <|im_end|> <|endoftext|> <tool_call> </tool_call> <think> </think>",
    "llama3": (
        "<|begin_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|> <|eom_id|> <|python_tag|> "
        "<|finetune_right_pad_id|>"
    ),
    "llama2": "<s> </s> <unk>",
    "mistral": (
        "<s> </s> [INST] [/INST] [TOOL_CALLS] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] "
        "[/TOOL_RESULTS] [ARGS] [CALL_ID] [THINK] [/THINK]"
    ),
    "deepseek": (
        "<｜begin▁of▁sentence｜> <｜end▁of▁sentence｜> <｜User｜> <｜Assistant｜> <｜tool▁calls▁begin｜> "
        "<｜tool▁call▁begin｜> <｜tool▁sep｜> <｜tool▁call▁end｜> <｜tool▁calls▁end｜> <｜tool▁output▁begin｜> "
        "<｜tool▁output▁end｜>"
    ),
    "glm4": (
        "[gMASK] <sop> <|system|> <|user|> <|assistant|> <|observation|> <arg_key> </arg_key> <arg_value> </arg_value>"
    ),
    "kimi": (
        "[BOS] [EOS] <|im_user|> <|im_assistant|> <|im_system|> <|im_middle|> <|im_end|> "
        "<|tool_calls_section_begin|> <|tool_calls_section_end|> <|tool_call_begin|> "
        "<|tool_call_argument_begin|> <|tool_call_end|>"
    ),
    "gpt_oss": "<|start|> <|end|> <|message|> <|channel|> <|constrain|> <|return|> <|call|>",
    "search_r1": "<search> </search> <information> </information> <answer> </answer>",
}
MARKUP_BY_FAMILY = {family: marks.split() for family, marks in _MARKUP.items()}


def byte_level(markup, template=None):
    """GPT-2's kind."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _finish(tokenizer, _bpe_trainer(pre_tokenizers.ByteLevel.alphabet()), markup, template)


def byte_level_with_prefix(markup, template=None):
    """RoBERTa's kind, which puts a space before every text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    return _finish(tokenizer, _bpe_trainer(pre_tokenizers.ByteLevel.alphabet()), markup, template)


def tiktoken_like(markup, template=None):
    """As tiktoken vocabularies are converted: split by a pattern, whole pieces looked up before any merge."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    pattern = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return _finish(tokenizer, _bpe_trainer(pre_tokenizers.ByteLevel.alphabet()), markup, template)


def llama2_like(markup, template=None, *, legacy=True):
    """SentencePiece BPE with byte fallback, as Llama 2's is converted: by a normaliser, or newer by Metaspace."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    if legacy:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return _finish(tokenizer, _bpe_trainer([], ["<unk>", *_bytes()]), markup, template, plain_bytes=True)


def llama2_new(markup, template=None):
    return llama2_like(markup, template, legacy=False)


def unigram(markup, template=None, *, byte_fallback=True):
    """SentencePiece unigram behind Metaspace, as Gemma's and T5's families have it."""
    letters = sorted({letter for text in CORPUS for letter in text if letter != " "} | {"▁"})
    words = sorted({f"▁{word}" for text in CORPUS for word in text.split()})
    vocab = [("<unk>", 0.0), *((byte, -20.0) for byte in _bytes())]
    vocab += [(letter, -9.0) for letter in letters] + [(word, -5.0) for word in words if word not in letters]
    tokenizer = Tokenizer(models.Unigram(vocab, 0, byte_fallback=byte_fallback))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return _finish(tokenizer, None, markup, template)


KINDS = {
    kind.__name__: kind
    for kind in (byte_level, byte_level_with_prefix, tiktoken_like, llama2_like, llama2_new, unigram)
}


def _bytes():
    return [f"<0x{byte:02X}>" for byte in range(256)]


def _bpe_trainer(alphabet, special=()):
    return trainers.BpeTrainer(
        vocab_size=700,
        initial_alphabet=list(alphabet),
        special_tokens=list(special),
        show_progress=False,
        min_frequency=1,
    )


def _finish(tokenizer, trainer, markup, template, *, plain_bytes=False):
    if trainer is not None:
        tokenizer.train_from_iterator(CORPUS, trainer)
    if plain_bytes:  # The trainer made them special; in a converted vocabulary they are ordinary pieces.
        state = json.loads(tokenizer.to_str())
        state["added_tokens"] = [token for token in state["added_tokens"] if not token["content"].startswith("<0x")]
        tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in markup])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=markup[1], chat_template=template)
