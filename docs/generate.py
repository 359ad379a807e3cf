"""Pages that are made from data: `python docs/generate.py` writes them.

The reference of keys, kinds and options is made by rlf itself; see the target `reference` of the Makefile.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

DOCS = Path(__file__).parent
GLOSSARY = DOCS / "glossary.yaml"


def read_glossary() -> list[dict[str, Any]]:
    """Return the terms of the glossary: `write`, `means` and, for some, `never`."""
    terms: list[dict[str, Any]] = yaml.safe_load(GLOSSARY.read_text(encoding="utf-8"))
    return terms


def write_glossary_page() -> str:
    """Return the page of all terms in the order of the alphabet."""
    terms = sorted(read_glossary(), key=lambda term: term["write"].lower())
    rows = [f"| {term['write']} | {term['means']} |" for term in terms]
    return "\n".join(
        [
            "# Glossary",
            "",
            "The words that rlf's messages, help and pages use, each in one sense. Made from",
            "[glossary.yaml](../glossary.yaml), which also lists the words that are not written in their place;",
            "a test holds messages, `--help`, pages and docstrings to it.",
            "",
            "| term | meaning |",
            "|---|---|",
            *rows,
            "",
        ]
    )


PAGES = {"reference/glossary.md": write_glossary_page}


if __name__ == "__main__":
    for name, write_page in PAGES.items():
        (DOCS / name).write_text(write_page(), encoding="utf-8")
