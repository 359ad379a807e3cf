"""Calls in the syntaxes of other models are failures in every format, and words about marks are answers."""

import json

import pytest

from rlf.chat import FORMATS
from rlf.chat.format import other_call_marks
from rlf.chat.marks import FOREIGN, ParsedTurn
from rlf.chat.repair import stand_in
from rlf.types import ToolCall, ToolDescription

from .foreign import WRITERS, ForeignTally, foreign_writers, read_foreign
from .mutants import Outcome

SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
SEARCH = ToolDescription("search", "Find a passage.", SCHEMA)
CALL = ToolCall("search", {"query": "Vell"})
NAMES = FORMATS.names()
FAMILIES = (
    "deepseek_v32",
    "minimax_m2",
    "gemma3",
    "gemma4",
    "function_gemma",
    "apertus",
    "granite",
    "command_r",
    "lfm2",
    "kimi_k3",
    "minicpm5",
)


def accepts(call):
    return call.name == "search"


@pytest.mark.parametrize("name", NAMES)
def test_no_call_in_a_foreign_syntax_is_an_answer_or_another_call(name):
    tallies = read_foreign(stand_in(name, [SEARCH]), name, SEARCH, accepts=accepts)
    assert {tally.syntax for tally in tallies} == set(foreign_writers(SEARCH)) - {name}
    assert [(tally.syntax, tally.example) for tally in tallies if not tally.is_clean] == []
    assert all(sum(tally.counts.values()) >= 4 for tally in tallies)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_found_without_any_declared_tool_too(name):
    chat = stand_in(name)
    answered = [name for name, write in WRITERS.items() if chat.parse(write(CALL), truncated=False).answer is not None]
    assert answered == []


@pytest.mark.parametrize("syntax", ["deepseek_spaces", "apertus", "kimi_k3", "minicpm5"])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "llama3"])
def test_calls_of_other_families_are_wrong_tags_with_the_right_form_in_words(name, syntax):
    if name == syntax:
        return
    write = foreign_writers(SEARCH)[syntax]
    parsed = stand_in(name, [SEARCH]).parse(f"I look it up.\n{write(CALL)}", truncated=False)
    assert "wrong_tag" in [failure.kind for failure in parsed.failures]
    assert all("not run" in failure.message for failure in parsed.failures if failure.kind == "wrong_tag")


def test_the_corpus_holds_the_families_by_name():
    assert set(FAMILIES) <= {*FOREIGN, *NAMES}
    assert set(WRITERS) == set(FOREIGN), "a syntax that is recognised and never tried, or the other way around"


@pytest.mark.parametrize("syntax", FOREIGN)
def test_a_syntax_knows_its_own_calls(syntax):
    class Nothing(FORMATS.get("code_fence")):
        call_marks = None

    assert other_call_marks(WRITERS[syntax](CALL), Nothing)


def test_a_parser_that_takes_foreign_calls_for_answers_is_found_out():
    chat = stand_in("hermes", [SEARCH])
    deaf = read_foreign(chat, "hermes", SEARCH, accepts=accepts, reader=lambda text, cut: ParsedTurn((), text, ""))
    hasty = read_foreign(
        chat,
        "hermes",
        SEARCH,
        accepts=accepts,
        reader=lambda *_: ParsedTurn((ToolCall("search", {"query": "x"}),), None, ""),
    )
    assert all(not tally.is_clean and tally.example for tally in (*deaf, *hasty))
    assert {next(iter(_wrong(tally))) for tally in deaf} == {Outcome.SILENT_LOSS}
    assert {next(iter(_wrong(tally))) for tally in hasty} == {Outcome.FALSE_EXECUTION}


def _wrong(tally: ForeignTally):
    return [outcome for outcome, number in tally.counts.items() if number]


ORDINARY = [
    "Qwen writes its calls between `<tool_call>` and `</tool_call>`.",
    "The marks `<|tools_prefix|>` and `[TOOL_CALLS]` are tokens of other models.",
    "The <thinking> tag is for reasoning, and </thinking> closes it.",
    "A budget of < 5 tool calls is enough: n < tool_calls, or max_tool_calls > 3.",
    "In C++, std::array<int, max_tool_calls> holds them, and vector<tool> too.",
    "Tool calls cost time; a function call is no free lunch.",
    'Use `git commit -m "x"` and then `git push`.',
    '```xml\n<invoice name="a"><item>3</item></invoice>\n```',
    '```html\n<input name="search" type="text"><!-- a comment -->\n<p>Hi</p>\n```',
    '```json\n{"name": "Vell", "residents": 900}\n```',
    "<note><to>Ann</to><body>x < y & z > 0</body></note>",
    "Let $x < y$ and $|a| \\le |b|$; then <x, y> = 0 and \\boxed{42}.",
    ">>> 1 + 1\n2\n>>> len([1, 2])\n2",
    '>>> data = {"a": 1}\n>>> data',
    "Status: done. prefix | suffix, tools_prefix is a variable.",
    "DSML is a markup language of DeepSeek.",
    "The call:name{x} notation is Gemma's.",
    "# Heading\n> a quotation\n// a comment\n<!-- hidden -->\nText.",
    "Write ``` to open a fence, and ``` to close it.",
    'The parameters: {"a": 1} and arguments: {"b": 2} differ.',
    "Generic<T> and Map<String, List<Integer>> are types; if a<b then c>d.",
    "| tool | calls |\n|---|---|\n| search | 3 |",
    "Use functools.partial(f, 1); functools[0] is no list.",
    '"tool": "hammer", "action": "hit"',
    "I searched: search is a verb; search the web.",
    "See `<function=NAME>` and `<parameter=KEY>` in the documentation.",
    "[INST] is a mark of Mistral; </s> ends a text.",
    "The open|close|sep tokens are Kimi K3's; `<|open|>` begins a tag.",
    '<object data="a.swf"><param name="movie" value="a.swf"></object> and <function> in XML.',
]


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_about_tags_code_xml_or_maths_is_an_answer(name):
    chat = stand_in(name, [SEARCH])
    parsed = {text: chat.parse(chat.write_answer(text), truncated=False) for text in ORDINARY}
    lost = [text for text in ORDINARY if parsed[text].answer != text]
    assert lost == []


def test_a_mark_alone_between_backticks_is_a_mention_but_a_call_there_is_none():
    chat = stand_in("hermes", [SEARCH])
    call = json.dumps({"name": "search", "arguments": {"query": "Vell"}})
    for text in (f"`<tool_call>`{call}`</tool_call>`", f"`<tool_call>{call}</tool_call>`"):
        parsed = chat.parse(text, truncated=False)
        assert parsed.failures and not parsed.calls and parsed.answer is None


PIECES = [
    *(
        "<｜DSML｜invoke ",
        "<|tools_prefix|>",
        "`<tool_call>` ",
        "`<x",
        "<search>a",
        "<search>",
        "tool_name: x ",
        ">>>a\n",
    ),
    *("Action:\n", "```\n", "```a", "<thinking>", "</thinking>", "<!--", "-->", "// ", "\n> ", "functools[", "call:a"),
    *("<seed:tool_call", '{"name": "a", "arguments": {', '"arguments": {', "<a:invoke", "`" * 3, "<|"),
]


@pytest.mark.parametrize("name", NAMES)
def test_hostile_turns_cost_linear_time(name, assert_linear):
    assert_linear(stand_in(name, [SEARCH]), PIECES, num_characters=10_000)
