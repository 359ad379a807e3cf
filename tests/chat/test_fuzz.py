"""No format loses a mutated call, runs another one, or breaks; and the certificate holds for each."""

import pytest

from rlf.chat import FORMATS
from rlf.chat.examples import NUM_VARIANTS, example_call
from rlf.chat.repair import stand_in
from rlf.core import RlfError
from rlf.rollout.certificate import certify
from rlf.tools.validate import ArgumentCheck
from rlf.types import FailureClass, ParseFailure, ToolCall, ToolDescription

from .mutants import OPERATORS, Outcome, fuzz

SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
SEARCH = ToolDescription("search", "Find a passage.", SCHEMA)


def accepts(call):
    return call.name == "search" and [type(value) for value in call.arguments.values()] == [str]


def tally(chat, name, **changes):
    return fuzz(chat, name, SEARCH, **{"seed": 0, "budget_s": 60.0, "accepts": accepts} | changes)


def test_there_are_thirty_operators_with_names_of_their_own():
    assert len({operator.name for operator in OPERATORS}) == len(OPERATORS) >= 30


@pytest.mark.parametrize("name", FORMATS.names())
def test_every_format_is_certified_over_its_stand_in(name):
    assert certify(stand_in(name, [SEARCH]), name, [SEARCH]).format == name


BOOKING = ToolDescription(
    "book",
    "Book a room.",
    {
        "type": "object",
        "properties": {
            "place": {"type": "string"},
            "nights": {"type": "integer", "minimum": 1},
            "price": {"type": "number"},
            "smoking": {"type": "boolean"},
            "guests": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
            "extra": {"type": "object"},
        },
        "required": ["place", "nights"],
    },
)


TEXT_ALONE = ("code_fence", "search_r1")
"""Formats whose tools take one text."""


@pytest.mark.parametrize("name", FORMATS.names())
def test_no_format_loses_a_call_or_runs_another(name):
    """With nested values, numbers and empties beside text where a format can write them; a pair in a third of them."""
    tool, least = (SEARCH, 200) if name in TEXT_ALONE else (BOOKING, 1_500)
    check = ArgumentCheck(tool.input_schema)
    allowed = lambda call: call.name == tool.name and check.complaint(dict(call.arguments)) is None  # noqa: E731
    part = (FORMATS.names().index(name) % 3, 3)
    found = fuzz(stand_in(name, [tool]), name, tool, seed=0, budget_s=60.0, accepts=allowed, part=part)
    assert found.is_clean, found.findings[:3]
    assert found.is_complete and sum(found.counts.values()) > least
    assert found.counts[Outcome.RECALLED] and found.counts[Outcome.TYPED]


def test_variants_follow_the_schema_and_differ():
    check = ArgumentCheck(BOOKING.input_schema)
    calls = [example_call(BOOKING, variant) for variant in range(NUM_VARIANTS)]
    assert all(check.complaint(dict(call.arguments)) is None for call in calls)
    places = [call.arguments["place"] for call in calls]
    assert len(set(places)) == NUM_VARIANTS and "" in places and any("<|im_end|>" in place for place in places)
    assert any(call.arguments.get("guests") == [] for call in calls)
    assert any(len(call.arguments.get("guests", ())) == 2 for call in calls)


def test_the_same_seed_finds_the_same():
    chat = stand_in("code_fence", [SEARCH])
    assert tally(chat, "code_fence").counts == tally(chat, "code_fence").counts


def test_without_time_single_operators_are_still_tried():
    found = tally(stand_in("hermes", [SEARCH]), "hermes", budget_s=0.0)
    assert not found.is_complete and 0 < sum(found.counts.values()) <= len(OPERATORS) * NUM_VARIANTS


def _lossy(chat):
    from rlf.chat import ParsedTurn

    def read(text, cut):
        parsed = chat.parse(text, truncated=cut)
        return parsed if parsed.calls else ParsedTurn((), text, "")

    return read


def _hasty(chat):
    from rlf.chat import ParsedTurn

    call = ToolCall("search", {"query": "a"})
    return lambda text, cut: ParsedTurn((call,), None, "")


def _fragile(chat):
    def read(text, cut):
        parsed = chat.parse(text, truncated=cut)
        assert not any(isinstance(i, ParseFailure) and i.kind is FailureClass.BAD_JSON for i in parsed.items)
        return parsed

    return read


@pytest.mark.parametrize(
    ("parser", "outcome"),
    [(_lossy, Outcome.SILENT_LOSS), (_hasty, Outcome.FALSE_EXECUTION), (_fragile, Outcome.CRASH)],
)
def test_a_bad_parser_is_found_out(parser, outcome):
    chat = stand_in("hermes", [SEARCH])
    found = tally(chat, "hermes", reader=parser(chat), budget_s=0.0)
    assert not found.is_clean and found.counts[outcome] > 0
    assert outcome in {finding.outcome for finding in found.findings}


def test_a_format_without_a_stand_in_is_reported():
    with pytest.raises(RlfError, match="unknown chat format"):
        stand_in("hermse")
