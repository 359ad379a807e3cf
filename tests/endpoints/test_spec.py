"""The keys of an endpoint."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from rlf.core.redact import Redactor
from rlf.endpoints.spec import EndpointSpec, SamplingSpec


def test_the_base_of_an_endpoint_is_an_address_without_a_slash_at_its_end() -> None:
    assert EndpointSpec(url="http://h:1/v1/", model="m").url == "http://h:1/v1"
    with pytest.raises(ValidationError, match="expected `http://HOST:PORT/v1`"):
        EndpointSpec(url="h:1/v1", model="m")


@pytest.mark.parametrize(
    "url",
    [
        *("http://h:99999/v1", "http://h:0/v1", "http://h:one/v1", "http://[::1/v1"),
        *("http://:8000/v1", "http://user@/v1"),
    ],
)
def test_an_address_that_no_request_can_go_to_is_a_fault_of_its_key(url: str) -> None:
    with pytest.raises(ValidationError, match="expected `http://HOST:PORT/v1`: "):
        EndpointSpec(url=url, model="m")


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "my_token", "JUDGE_SECRET", "PASSWORD_2"])
def test_a_key_has_a_name_whose_value_the_lineage_strikes_out(name: str) -> None:
    assert EndpointSpec(url="http://h", model="m", api_key_env=name).api_key_env == name
    assert Redactor({name: "canary-0123456789"}).text("a canary-0123456789") == "a [redacted]"


def test_a_key_whose_name_does_not_say_so_is_refused() -> None:
    with pytest.raises(ValidationError, match="expected a name with KEY, TOKEN, SECRET or PASSWORD"):
        EndpointSpec(url="http://h", model="m", api_key_env="CREDENTIAL")


def test_what_is_not_said_of_sampling_is_left_to_the_server() -> None:
    assert SamplingSpec().body() == {}
    said = SamplingSpec(temperature=0, stop=("a",), seed=1, extra={"top_k": 5})
    assert said.body() == {"temperature": 0, "stop": ["a"], "seed": 1, "top_k": 5}
