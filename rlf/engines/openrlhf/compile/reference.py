"""`python -m rlf.engines.openrlhf.compile.reference [FOLDER]` writes which option of OpenRLHF each key becomes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from rlf.engines.openrlhf.compile.argv import ELSEWHERE, OPTIONS
from rlf.engines.openrlhf.compile.refused import EFFECTS, REFUSED
from rlf.engines.openrlhf.layout import VERSION

FILE = "openrlhf.md"
_MADE = "<!-- Made by `python -m rlf.engines.openrlhf.compile.reference` from the code; edits here are lost. -->\n"


def page() -> str:
    """The page as Markdown."""
    return _MADE + "\n" + "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield f"# Options of OpenRLHF {VERSION}\n"
    yield "What rlf writes for `engine: openrlhf`, in order. An option is left out where its value is null or false.\n"
    yield "| option | made from | how |\n|---|---|---|"
    for option in OPTIONS:
        keys = ", ".join(f"`{key}`" for key in option.keys.split()) or "rlf"
        yield f"| `--{option.flag}` | {keys} | {option.note} |"
    yield "\n## Keys that are no option\n"
    yield "| keys | where they count |\n|---|---|"
    for elsewhere in ELSEWHERE:
        yield f"| {', '.join(f'`{key}`' for key in elsewhere.keys.split())} | {elsewhere.where} |"
    yield "\n## Options that `engine.extra_flags` does not take\n"
    yield "Beside those above, which a key is for:\n"
    yield "| option | why |\n|---|---|"
    for flag, why in REFUSED.items():
        yield f"| `--{flag}` | {why} |"
    yield "\nThese are refused where they would change nothing:\n"
    yield "| option | refused where |\n|---|---|"
    for flag, (_, why) in EFFECTS.items():
        yield f"| `--{flag}` | {why} |"


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/reference")
    (folder / FILE).write_text(page(), encoding="utf-8")
