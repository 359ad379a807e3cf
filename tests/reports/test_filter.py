"""Filter expressions: what they mean, and what they refuse."""

from __future__ import annotations

import pytest

from rlf.core.errors import RlfError
from rlf.reports.overview import compile_filter

NAMES = {"success": "", "spec": "", "started": "", "tags": "", "step": ""}
FACTS = {"success": 0.9, "spec": "search", "started": -3600.0, "tags": ("best",), "step": 40}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ('success>0.8 and spec=="search" and started>-7d', True),
        ("success > 0.95 or step >= 40", True),
        ("not success > 0.8", False),
        ("started > -30m", False),
        ("started>-1.5h", True),
        ("'best' in tags", True),
        ("'worst' not in tags", True),
        ("0.5 < success <= 0.9", True),
        ("spec == 'started > -7d'", False),
        ("spec", True),
    ],
)
def test_an_expression_means_what_it_says(text: str, holds: bool) -> None:
    assert bool(compile_filter(text, NAMES)(FACTS)) is holds


def test_a_comparison_with_what_is_not_there_is_false() -> None:
    assert not compile_filter("success > 0 or success <= 0", NAMES)({"success": None})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("succes > 0.8", "unknown name 'succes'; did you mean 'success'"),
        ("success > ", "invalid syntax"),
        ("__import__('os')", "is not understood"),
        ("success.real > 0", "is not understood"),
        ("success > 'high'", "compares unlike things"),
        ("2 ** 9999999999 > 1", "is not understood"),
        ("success is 0.8", "is not understood"),
    ],
)
def test_anything_else_is_refused(text: str, words: str) -> None:
    with pytest.raises(RlfError, match=words):
        compile_filter(text, NAMES)(FACTS)
