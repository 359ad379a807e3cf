"""The tool of this project: a function with the arguments of tool_specs/search.yaml, which returns what is read."""

import json
import re
from functools import cache
from pathlib import Path

_PASSAGES = Path(__file__).parents[1] / "data" / "passages.jsonl"
_NUM_FOUND = 2


def search(query: str) -> str:
    """Finds the passages that share most words with the query, best first, one a line."""
    wanted = _words(query)
    scored = [(len(wanted & words), -place) for place, (_, words) in enumerate(_passages())]
    best = [-place for score, place in sorted(scored, reverse=True)[:_NUM_FOUND] if score]
    return "\n".join(_passages()[place][0] for place in best) or "No passage found."


@cache
def _passages() -> tuple[tuple[str, frozenset[str]], ...]:
    texts = [json.loads(line)["text"] for line in _PASSAGES.read_text(encoding="utf-8").splitlines()]
    return tuple((text, _words(text)) for text in texts)


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", text.lower()))
