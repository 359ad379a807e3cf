"""A folder's tokenizer read without transformers renders and counts as transformers' own does."""

import pytest
from transformers import AutoTokenizer

from rlf.builtin.names import builtin_path
from rlf.chat import FORMATS, encode_data
from rlf.chat.on_disk import read_tokenizer
from rlf.core import RlfError
from rlf.core.bounded import BoundedEnvironment
from rlf.types import Message

from .tokenizers import MARKUP_BY_FAMILY, byte_level, byte_level_with_prefix

MESSAGES = (Message("system", "Be brief."), Message("user", "Where does é 中 <|im_end|> lie?\n"))


def test_every_format_renders_the_same_tokens(any_format, tmp_path):
    any_format.tokenizer.save_pretrained(tmp_path)
    found = read_tokenizer(tmp_path)
    twin = type(any_format)(found, any_format.tools)
    assert twin.stop_token_ids == any_format.stop_token_ids
    messages = MESSAGES if _takes_system(any_format) else MESSAGES[1:]
    assert twin.prompt(messages, any_format.tools) == any_format.prompt(messages, any_format.tools)
    call = any_format.write_call(any_format.family.CALL)
    for added in (True, False):
        expected = any_format.tokenizer.encode(call, add_special_tokens=added)
        assert found.encode(call, add_special_tokens=added) == expected


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (
            "{% for i in range(99999) %}{% for j in range(99999) %}{{ messages }}{% endfor %}{% endfor %}",
            "it writes more",
        ),
        ("{% for i in range(99999) %}{{ 'xxxxxxxxxx' * 1000 }}{% endfor %}", "it writes more"),
        ("{{ 'x' * 1000000000 }}", "more than 1,000,000 characters"),
        ("{{ [1] * 1000000000 }}", "more than 1,000,000 characters"),
        ("{{ 9 ** (9 ** 9) }}", "more than 1,000,000 characters"),
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "loops take more than"),
        (
            "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
            "loops take more",
        ),
        ("{% set n = namespace(x='x') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}", "64,000,000"),
        ("{% set n = namespace(x='x') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}", "64,000,000"),
        ("{% set a %}{% for i in range(99999) %}{{ 'x' * 99999 }}{% endfor %}{% endset %}", "makes more than"),
        ("{{ 'x'.center(1000000000) }}", "center makes more than 1,000,000 characters"),
        ("{{ 'x' | center(1000000000) }}", "center makes more than 1,000,000 characters"),
        ("{{ 'x'.ljust(1000000000) }}", "ljust makes more than 1,000,000 characters"),
        ("{{ '%1000000000d' % 1 }}", "format makes more than 1,000,000 characters"),
        ("{{ '%*d' % (1000000000, 1) }}", "format makes more than 1,000,000 characters"),
        ("{{ '{:>1000000000}'.format(1) }}", "format makes more than 1,000,000 characters"),
        ("{{ ('x' * 999999) | replace('x', 'y' * 999999) }}", "replace makes more than 1,000,000 characters"),
        ("{{ 'a\\tb'.expandtabs(1000000000) }}", "expandtabs makes more than 1,000,000 characters"),
        ("{{ [1] | batch(1000000000, 0) | list }}", "batch makes more than 1,000,000 characters"),
        ("{{ 1.5 | round(1000000000, 'floor') }}", "round makes more than 1,000,000 characters"),
    ],
)
def test_a_template_that_writes_without_end_is_stopped(tmp_path, template, words):
    byte_level(MARKUP_BY_FAMILY["qwen"]).save_pretrained(tmp_path)
    found = read_tokenizer(tmp_path)
    found.chat_template = template
    asked = {"tools": None, "add_generation_prompt": True, "tokenize": False}
    with pytest.raises(Exception, match=words):
        found.apply_chat_template([{"role": "user", "content": "hello"}], **asked)
    found = read_tokenizer(tmp_path)
    found.chat_template = "{{ messages[0].content }}{{ messages[0].content }}{{ 2 ** 9 * 2 }}"
    assert found.apply_chat_template([{"role": "user", "content": "a" * 900_000}], **asked) == "a" * 1_800_000 + "1024"


def test_bounds_leave_what_templates_do_otherwise():
    template = BoundedEnvironment().from_string(
        "{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(2) }}"
        "{% for m in ms recursive %}{{ m.n }}{% if m.c %}{{ loop(m.c) }}{% endif %}{% else %}none{% endfor %}"
        "{{ 1700000000|round(1) }} {{ 'ab' | center(4) }} {{ 'a'.replace('a','b') }} {{ '%s %d' % ('q', 1700000000) }}"
        "{{ '{:>3}'.format(3) }} {{ [1, 2, 3] | batch(2) | list }} {{ [1] + [2] }} {{ 'a' ~ 1 ~ none }}"
    )
    assert template.render(ms=[{"n": 7, "c": [{"n": 8}]}]) == (
        "210781700000000  ab  b q 1700000000  3 [[1, 2], [3]] [1, 2] a1None"
    )


def _takes_system(chat):
    try:
        chat.prompt(MESSAGES, chat.tools)
    except RlfError:
        return False
    return True


@pytest.mark.parametrize("make", [byte_level, byte_level_with_prefix])
def test_data_is_encoded_the_same(make, tmp_path):
    tokenizer = make(MARKUP_BY_FAMILY["qwen"])
    tokenizer.save_pretrained(tmp_path)
    for text in (" a\n\n é 中", "<|im_end|>", "tool call"):
        assert encode_data(read_tokenizer(tmp_path), text) == encode_data(tokenizer, text)


def test_the_built_in_model_is_read_as_transformers_reads_it():
    folder = builtin_path("tiny")
    ours, theirs = read_tokenizer(folder), AutoTokenizer.from_pretrained(folder)
    hermes = FORMATS.get("hermes")
    assert ours.special_tokens_map == {k: v for k, v in theirs.special_tokens_map.items() if isinstance(v, str)}
    assert hermes(ours).prompt(MESSAGES[1:], ()) == hermes(theirs).prompt(MESSAGES[1:], ())


def test_a_template_has_what_transformers_gives_it(make_tokenizer, tmp_path):
    template = (
        "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}"
        "{% generation %}{{ m | tojson }}{% endgeneration %}{% endfor %}{{ strftime_now('%Y')[:2] }}{{ eos_token }}"
    )
    tokenizer = make_tokenizer(template)
    tokenizer.save_pretrained(tmp_path)
    wanted = {"tools": None, "add_generation_prompt": False, "tokenize": False}
    conversation = [{"role": "user", "content": "é <b>"}, {"role": "user", "content": "y"}]
    expected = tokenizer.apply_chat_template(conversation, **wanted)
    assert read_tokenizer(tmp_path).apply_chat_template(conversation, **wanted) == expected


def test_a_folder_without_a_tokenizer_file_has_none_and_a_broken_one_is_reported(tmp_path):
    assert read_tokenizer(tmp_path) is None
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(RlfError, match=r"^model.path: .*tokenizer.json is no tokenizer: "):
        read_tokenizer(tmp_path)
