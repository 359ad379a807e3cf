"""The small model's tokenizer: any word is cut into pairs of letters from its start, wherever it stands.

Phrases of the chat layout, of SQL and of Python and some frequent words are one token each. What is left falls into
pairs of letters or digits, and then bytes, so that one spelling has one tokenisation and can be copied.
"""

from __future__ import annotations

import itertools
import string
from functools import cache

from transformers import PreTrainedTokenizerFast

from benchmarks.embedded.small.words import COLUMNS, TABLES
from benchmarks.embedded.tiny.tokenizer import cut_at, make_tokenizer

_PHRASES = (
    *("system\nTools:\n- ", "\n- ", "user\n", "assistant\n", '\n{"name": "', '", "arguments": {"', '": "', '"}}\n'),
    *('{"', '"}', '", "', '": ', ', "', "): ", " of the ", " of ", " is the ", " the ", " in ", " for ", " by "),
    *(" with ", " and ", " has ", " a ", ", ", ": ", ". ", "? ", "'s ", "\n", "What is the ", "Which ", "How many "),
    *("SELECT ", " FROM ", " WHERE ", " = '", "' AND ", "count(*)", "sum(", "max(", " JOIN ", " ON ", " GROUP BY "),
    *(" ORDER BY ", " DESC", " LIMIT 1", "number * price", "product.name = sale.product", "sum(number)"),
    *("range(", ", str(", "map(int", " for n in ", " for d in ", " if ", " == 0", " + 1))", " + 1)", " % ", " ** "),
    *(" * ", " + ", "\\n", "\\n    ", "while n > 1:", "n // 2", " else ", "3 * n + 1", "all(n % d", "range(2, n)"),
    "n % 2 == 0",
)
_FREQUENT = """
    what which who where how many much give tell me find look up get show the of is for in on by with and to from a an
    has have does do row rows table value name key query column field id data one read returns return run unknown not
    found no error such there were was sold all sales sale money came products most first several did price sum digits
    primes divisors steps multiples even when triple add until take it number SELECT Run SQLite Tables Python program
    code sql python you prints last expression its Which What How Give Find Look Get Tell Halve less total count
"""
WHOLE_WORDS: tuple[str, ...] = tuple(dict.fromkeys([*COLUMNS, *TABLES, *_FREQUENT.split()]))
"""Words that are one token each."""
_WORD = "(?<![A-Za-z])(?:" + "|".join(sorted(WHOLE_WORDS, key=len, reverse=True)) + ")(?![A-Za-z])"
_REST = r"[A-Z][a-z]|[a-z]{1,2}|[A-Z]|\d{1,2}"


@cache
def build_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer; no seed, no corpus file."""
    texts = [*_list_letter_pairs(), *_PHRASES, *WHOLE_WORDS]
    return make_tokenizer(texts, cut_at(_PHRASES, f"{_WORD}|{_REST}"), template_of="small")


def _list_letter_pairs() -> list[str]:
    lower, upper = string.ascii_lowercase, string.ascii_uppercase
    letters = [first + second for first, second in itertools.product(lower + upper, lower)]
    return [*letters, *(f"{pair:02d}" for pair in range(100))]
