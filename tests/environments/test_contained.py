"""Worlds in the processes of a job: none may end one of them, also when its spec was written to a file before."""

import pytest

from rlf.environments import EnvSpec

from .conformance.model import COUNTER

NUMBER = {"kind": "text", "make": "tests.environments.gym_like:Number"}
USER = {
    "kind": "model",
    "endpoints": [{"url": "http://127.0.0.1:9/v1", "model": "m"}],
    "system": "Ask.",
    "world": COUNTER,
}


@pytest.mark.parametrize(
    ("env", "find"), [(COUNTER, lambda env: env), (NUMBER, lambda env: env), (USER, lambda env: env.world)]
)
def test_a_class_or_game_is_in_a_process_of_its_own(env, find):
    written = EnvSpec.model_validate(EnvSpec.model_validate(env).model_dump(mode="json"))
    assert find(written.contained()).isolation == "process"


def test_a_world_is_where_the_spec_says():
    assert EnvSpec.model_validate({**NUMBER, "isolation": "thread"}).contained().isolation == "thread"
    assert EnvSpec.model_validate({**COUNTER, "isolation": "inline"}).contained().isolation == "inline"
