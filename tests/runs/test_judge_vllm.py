"""Judges behind vLLM's own server, as `rlf serve --vllm` starts it.

Run where vLLM can be imported here, or in the environment of `rlf rehearse --vllm`.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from rlf.apps.openrlhf.rehearsal_place import rehearsal_environment
from rlf.builtin.names import builtin_path
from rlf.processes.supervise import descendants
from rlf.rewards import Term, TrajectoryFacts
from rlf.types import Score, ScoreState
from tests.apps.serve.served import serving_model

from ..rewards.scoring import score_with
from .test_judge_serve import are_gone

CHECKPOINT = builtin_path("tiny")

_ENVIRONMENT = rehearsal_environment()
_IS_HERE = importlib.util.find_spec("vllm") is not None
PYTHON = sys.executable if _IS_HERE else str(_ENVIRONMENT.python)
pytestmark = pytest.mark.skipif(
    not _IS_HERE and not _ENVIRONMENT.is_ready(vllm=True),
    reason="vLLM is not installed here, nor in the environment that `rlf rehearse --setup --vllm` makes",
)

ROOT = Path(__file__).parents[2]
ON_A_CPU = {**_ENVIRONMENT.variables(), "PYTHONPATH": str(ROOT)}
COMPACT = json.dumps({"backend": "xgrammar", "disable_any_whitespace": True})
"""Of a model this small: left to itself, it writes newlines between the keys until its tokens are used up."""
ARGS = ("--max-model-len", "1024", "--enforce-eager", "--dtype", "float32", "--structured-outputs-config", COMPACT)
EXPECTED = {"read": "expected", "range": [0, 99], "coverage": 0.01, "sampling": {"temperature": 0, "max_tokens": 12}}
ANSWERS = ("Rain counts the tiles.", "It is in Lyon.", "Yeast eats sugar and breathes out gas.")


class Served:
    """A judge by `rlf serve --vllm`."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        shutil.copytree(CHECKPOINT, folder / "judge")
        self.server = subprocess.Popen(
            [PYTHON, "-m", "rlf", "serve", "./judge", "--vllm", shlex.join(ARGS), "--port", "0", "--json"],
            cwd=folder,
            env={**os.environ, **ON_A_CPU},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        stack.callback(self.server.communicate)
        stack.callback(self.server.terminate)
        assert self.server.stdout is not None
        line = self.server.stdout.readline()
        assert line, self.server.communicate(timeout=600)[1]
        self.endpoint = json.loads(line)["data"]

    def scores(self, **keys: Any) -> list[Score]:
        """What a judge with these keys says of the answers."""
        term = Term.model_validate({"kind": "judge", "name": "good", "endpoints": [self.endpoint], **keys})
        return scores_of(term)


def scores_of(term: Term) -> list[Score]:
    tried = [TrajectoryFacts(question="Where?", answer=text).trajectory(f"t{at}") for at, text in enumerate(ANSWERS)]
    return [item.scores[0] for item in asyncio.run(score_with([term], tried))]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with ExitStack() as stack:
        yield Served(tmp_path_factory.mktemp("vllm"), stack)


def test_a_reply_is_held_to_the_schema_of_a_verdict(served: Served) -> None:
    quote = AutoTokenizer.from_pretrained(CHECKPOINT).convert_tokens_to_ids('"')
    ends_strings = {"logit_bias": {str(quote): 30}}
    sampling = {"temperature": 1.0, "max_tokens": 120, "extra": ends_strings}
    criteria = [{"name": name, "text": "It is good."} for name in ("clear", "right")]
    scores = served.scores(range=[0, 9], criteria=criteria, sampling=sampling)
    assert [score.state for score in scores] == [ScoreState.SCORED] * 3
    assert all(score.value is not None and 0 <= score.value <= 1 for score in scores)
    assert all(score.reason.startswith("clear ") and ", right " in score.reason for score in scores)
    assert all(score.usage is not None and score.usage.num_tokens > 100 for score in scores)


def test_a_tag_is_read(served: Served) -> None:
    sampling = {"temperature": 1.0, "extra": {"structured_outputs": {"regex": "<score>[0-9]</score>"}}}
    scores = served.scores(read="tag", range=[0, 9], votes=3, sampling=sampling)
    assert all(score.value is not None and (score.value * 9).is_integer() for score in scores)


def test_a_reply_that_is_no_verdict_is_unscorable(served: Served) -> None:
    scores = served.scores(read="tag", range=[0, 9], sampling={"temperature": 0, "max_tokens": 8})
    assert [(score.value, score.state) for score in scores] == [(None, ScoreState.UNANSWERED)] * 3
    assert "no <score> in" in scores[0].reason


def test_the_expected_value_over_logprobs_is_that_of_the_same_model_by_transformers(served: Served) -> None:
    async def by_transformers() -> list[Score]:
        async with serving_model() as url:
            keys = {"endpoints": [{"url": url, "model": "tiny"}], **EXPECTED}
            term = Term.model_validate({"kind": "judge", "name": "good", **keys})
            return await asyncio.to_thread(scores_of, term)

    scores = served.scores(**EXPECTED)
    assert [score.value for score in scores] == pytest.approx(
        [score.value for score in asyncio.run(by_transformers())], abs=1e-3
    )


def test_ctrl_c_ends_the_server_and_leaves_nothing(served: Served) -> None:
    below = descendants(served.server.pid)
    assert any(b"vllm" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in below)
    served.server.send_signal(signal.SIGINT)
    _, errors = served.server.communicate(timeout=60)
    assert (served.server.returncode, errors) == (130, "interrupted\n")
    assert are_gone(below)
