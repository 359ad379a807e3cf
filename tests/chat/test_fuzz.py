"""No format loses a mutated call, runs another one, or breaks; and the certificate holds for each."""

import pytest

from rlf.chat import FORMATS
from rlf.chat.fuzz import OPERATORS, Outcome, fuzz
from rlf.chat.standin import stand_in
from rlf.core import RlfError
from rlf.rollout.certificate import certify
from rlf.types import FailureClass, ParseFailure, ToolCall, ToolDescription

SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
SEARCH = ToolDescription("search", "Find a passage.", SCHEMA)


def accepts(call):
    return call.name == "search" and [type(value) for value in call.arguments.values()] == [str]


def tally(chat, name, **changes):
    return fuzz(chat, name, SEARCH, **{"seed": 0, "budget_s": 60.0, "accepts": accepts} | changes)


def test_there_are_thirty_operators_with_names_of_their_own():
    assert len({operator.name for operator in OPERATORS}) == len(OPERATORS) >= 30


@pytest.mark.parametrize("name", FORMATS.names())
def test_no_format_loses_a_call_or_runs_another(name):
    found = tally(stand_in(name, [SEARCH]), name)
    assert found.is_clean, found.findings[:3]
    assert found.is_complete and sum(found.counts.values()) > 500
    assert found.counts[Outcome.RECALLED] and found.counts[Outcome.TYPED]


@pytest.mark.parametrize("name", FORMATS.names())
def test_every_format_is_certified_over_its_stand_in(name):
    assert certify(stand_in(name, [SEARCH]), name, [SEARCH]).format == name


def test_the_same_seed_finds_the_same():
    chat = stand_in("hermes", [SEARCH])
    assert tally(chat, "hermes").counts == tally(chat, "hermes").counts


def test_without_time_single_operators_are_still_tried():
    found = tally(stand_in("hermes", [SEARCH]), "hermes", budget_s=0.0)
    assert not found.is_complete and 0 < sum(found.counts.values()) <= len(OPERATORS)


def _lossy(chat):
    from rlf.chat import Parsed

    def read(text, cut):
        parsed = chat.parse(text, truncated=cut)
        return parsed if parsed.calls else Parsed((), text, "")

    return read


def _hasty(chat):
    from rlf.chat import Parsed

    call = ToolCall("search", {"query": "a"})
    return lambda text, cut: Parsed((call,), None, "")


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
    found = tally(chat, "hermes", reader=parser(chat))
    assert not found.is_clean and found.counts[outcome] > 0
    assert outcome in {finding.outcome for finding in found.findings}


def test_a_format_without_a_stand_in_is_told():
    with pytest.raises(RlfError, match="unknown chat format"):
        stand_in("hermse")
