"""Numbers and hostile text for people."""

from __future__ import annotations

import math

import pytest

from rlf.reports.sheets import MISSING, count, decimal, duration, latency, letters_for, p_value, percent, visible


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (percent(0.7142), "71.4 %"),
        (percent(math.nan), MISSING),
        (percent(None), MISSING),
        (decimal(0.7142), "0.714"),
        (decimal(0.0), "0.000"),
        (decimal(1.3e-6), "1.3e-06"),
        (decimal(12345.0), "12,345"),
        (decimal(-2.5e9), "-2.5e+09"),
        (count(812), "812"),
        (count(12345), "12.3k"),
        (count(4.5e6), "4.5M"),
        (duration(112.3), "1:52"),
        (duration(59.7), "1:00"),
        (duration(7387), "2:03:07"),
        (duration(math.inf), MISSING),
        (latency(0.0004), "0.4 ms"),
        (latency(0.0123), "12 ms"),
        (latency(1.519), "1.52 s"),
        (p_value(0.0321), "p = 0.032"),
        (p_value(1e-30), "p < 0.0001"),
    ],
)
def test_a_quantity_reads_as_written_here(shown: str, expected: str) -> None:
    assert shown == expected


def test_text_of_a_tool_cannot_move_the_cursor_or_turn_the_line_around() -> None:
    assert visible("a\x1b[2Jb\r\x07\u202ec\x00") == "a\\x1b[2Jb\\x0d\\x07\\u202ec\\x00"


def test_a_lone_surrogate_can_be_printed() -> None:
    visible("\ud800").encode()


def test_lines_tabs_and_letters_stay() -> None:
    assert visible("naïve\n\tčaj 茶 🙂") == "naïve\n\tčaj 茶 🙂"


def test_columns_have_names_of_their_own_beyond_the_alphabet() -> None:
    names = letters_for(26 + 26 * 26 + 1)
    assert (names[0], names[25], names[26], names[51], names[52], names[-1]) == ("A", "Z", "AA", "AZ", "BA", "AAA")
    assert len(set(names)) == len(names)
