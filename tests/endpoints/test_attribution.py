"""The one table that decides whose failure a call is."""

import pytest

from rlf.endpoints.attribution import RequestFacts, RequestPhase, outcome_of, outcome_of_status
from rlf.types import Outcome

SERVICE = Outcome.SERVICE_ERROR
VERDICT = Outcome.TOOL_ERROR


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("is_repeatable", [False, True])
def test_what_was_not_sent_is_unreachable_whatever_it_was(is_late: bool, is_repeatable: bool) -> None:
    facts = RequestFacts(RequestPhase.NOT_SENT, is_late=is_late, is_repeatable=is_repeatable)
    assert outcome_of(facts) is Outcome.UNREACHABLE


def test_what_was_sent_and_not_answered_is_known_only_where_it_may_be_repeated() -> None:
    def of(*, is_late: bool, is_repeatable: bool) -> Outcome:
        return outcome_of(RequestFacts(RequestPhase.SENT, is_late=is_late, is_repeatable=is_repeatable))

    assert of(is_late=True, is_repeatable=False) is of(is_late=False, is_repeatable=False) is Outcome.UNKNOWN
    assert of(is_late=True, is_repeatable=True) is Outcome.TIMEOUT
    assert of(is_late=False, is_repeatable=True) is Outcome.UNREACHABLE


@pytest.mark.parametrize("status", [*range(300, 309), 401, 402, 403, 405, 406, 407, 408, 411, 415, 421, 425, 426, 428,
                                    431, 440, 498, 499, *range(500, 512), 520, 599])  # fmt: skip
@pytest.mark.parametrize("is_oversized", [False, True])
@pytest.mark.parametrize("code", [None, -32602])
def test_a_status_that_judges_no_argument_charges_nobody_whatever_the_body_holds(
    status: int, is_oversized: bool, code: int | None
) -> None:
    for is_rpc in (False, True):
        facts = RequestFacts(RequestPhase.ANSWERED, status=status, code=code, is_oversized=is_oversized, is_rpc=is_rpc)
        assert outcome_of(facts) is SERVICE


@pytest.mark.parametrize("status", [400, 404, 409, 410, 422])
def test_a_verdict_by_status_counts_only_where_verdicts_come_by_status(status: int) -> None:
    assert outcome_of(RequestFacts(RequestPhase.ANSWERED, status=status)) is VERDICT
    assert outcome_of(RequestFacts(RequestPhase.ANSWERED, status=status, is_rpc=True)) is SERVICE
    assert outcome_of(RequestFacts(RequestPhase.ANSWERED, status=status, code=-32602, is_rpc=True)) is VERDICT


def test_arguments_that_are_too_large_are_the_policys_over_every_transport() -> None:
    assert {outcome_of(RequestFacts(RequestPhase.ANSWERED, status=413, is_rpc=is_rpc)) for is_rpc in (False, True)} == {
        VERDICT
    }


def test_a_pause_is_asked_for_by_429_and_by_503_that_names_it() -> None:
    assert outcome_of(RequestFacts(RequestPhase.ANSWERED, status=429)) is Outcome.RATE_LIMITED
    assert outcome_of(RequestFacts(RequestPhase.ANSWERED, status=503, pause_s=0.0)) is Outcome.RATE_LIMITED
    assert outcome_of(RequestFacts(RequestPhase.ANSWERED, status=503)) is SERVICE


CODES = {-32700: SERVICE, -32600: SERVICE, -32601: SERVICE, -32603: SERVICE, -32000: SERVICE, -32099: SERVICE,
         -32602: VERDICT, -32002: VERDICT, -31999: VERDICT, 0: VERDICT, 1: VERDICT, 404: VERDICT, 500: SERVICE,
         401: SERVICE, 429: Outcome.RATE_LIMITED}  # fmt: skip


@pytest.mark.parametrize("status", [None, 200, 400])
def test_an_error_of_json_rpc_is_read_by_its_code(status: int | None) -> None:
    found = {
        code: outcome_of(RequestFacts(RequestPhase.ANSWERED, status=status, code=code, is_rpc=True)) for code in CODES
    }
    assert found == CODES


def test_a_success_that_cannot_be_read_is_the_services_and_one_that_is_too_large_the_calls() -> None:
    for status in (None, 200, 202):
        assert outcome_of(RequestFacts(RequestPhase.ANSWERED, status=status)) is SERVICE
        assert (
            outcome_of(RequestFacts(RequestPhase.ANSWERED, status=status, is_oversized=True)) is Outcome.OUTPUT_REJECTED
        )


def test_a_service_may_say_that_a_status_is_its_verdict() -> None:
    assert outcome_of(RequestFacts(RequestPhase.ANSWERED, status=500), tool_errors=[500]) is VERDICT
    assert outcome_of_status(302, tool_errors=[302]) is VERDICT
