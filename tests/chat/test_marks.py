"""An expression is run over every text that it can match: each match holds one of its signs."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlf.chat import FORMATS
from rlf.chat.format import every_call_marks
from rlf.chat.marks import BARE_OBJECT, Lookalikes, Marks, bare_calls
from rlf.types import ToolDescription

TOOLS = [ToolDescription(name, "", {"type": "object"}) for name in ("search", "İstanbul.find", "Make_kit")]
NEAR = [near for name in FORMATS.names() if (near := FORMATS.get(name).near_marks)]
EVERY = [*every_call_marks(), BARE_OBJECT, *bare_calls(TOOLS), *NEAR]


@pytest.mark.parametrize("marks", EVERY, ids=lambda marks: marks.pattern.pattern[:24])
@given(data=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_match_of_an_expression_holds_one_of_its_signs(marks, data):
    text = data.draw(st.from_regex(marks.pattern))
    unfiltered = Lookalikes([Marks(marks.pattern, ("",))])
    assert Lookalikes([marks]).first(text) == unfiltered.first(text)


@pytest.mark.parametrize("text", ["functıons.ſearch:0 functions.a:0", "to=FUNCTIONſ.a", "ACTİON: a\nActıon Input: b"])
def test_letters_that_only_ignoring_case_makes_equal_are_seen(text):
    for marks in EVERY:
        found = marks.pattern.search(text)
        assert Lookalikes([marks]).first(text) == (found.start() if found else None)


def test_marks_without_signs_are_looked_for_in_every_text():
    assert Lookalikes([Marks.of("call me")]).first("Please CALL ME.") == 7


@pytest.mark.parametrize("call", ["search(query='Vell')", 'Make_kit {"size": 1}', "`search()`"])
def test_a_bare_call_is_seen_on_whichever_line_it_begins_and_not_within_one(call):
    marks = Lookalikes(bare_calls(TOOLS))
    assert marks.first(call) == 0
    assert marks.first(f"I look.\n{call}") == len("I look.\n")
    assert marks.first(f"I could write {call}") is None
