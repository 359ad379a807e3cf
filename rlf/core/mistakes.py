"""Mistakes that are known by their form: `mistakes.yaml` has the forms by topic, with what to say or what is meant."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from rlf.core.yaml_text import load_document


@cache
def known(topic: str) -> Any:
    """What the table has of a topic."""
    return load_document(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))[topic]


def explain(topic: str, text: str, **values: object) -> tuple[str, str] | None:
    """The sentence for the first form that a text has, and its place in the topic's own words; None for another text.

    Args:
        values: what the sentence may name, beside the named groups of the form.
    """
    for form in known(topic):
        if found := re.search(form["seen"], text):
            return form["says"].format(**values, **found.groupdict()), form.get("at", "")
    return None


def in_our_words(topic: str, text: str) -> str:
    """A text with every form of a topic as rlf has it."""
    for theirs, ours in known(topic).items():
        text = re.sub(theirs, ours, text)
    return text
