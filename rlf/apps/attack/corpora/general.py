"""The texts that rlf brings, of any subject, in `general.json`.

What parsers, conversions and averages stumble over, what is nothing once it is cleaned, what graders may like to see.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rlf.apps.attack.corpora import Corpus


class General(Corpus):
    """The texts of the file beside this one."""

    def texts(self) -> Sequence[str]:
        texts: list[str] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
        return [*texts, "9" * 5000, "\u200b" * 200]
