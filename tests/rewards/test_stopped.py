"""A process that is stopped for longer than the deadlines of its reward terms: nothing of that is the policy's."""

import json
import os
import signal
import subprocess
import sys
import time
from socketserver import BaseServer

import pytest

from .judges import judging

PROGRAM = """
import asyncio, json, sys
from rlf.rewards import RewardContext, RewardFunction, Term, TrajectoryFacts
from rlf.types import Outcome, ToolResult

pause_s, url = float(sys.argv[1]), sys.argv[2]

class Tools:
    descriptions = ()

    async def invoke(self, call, *, trajectory_id):
        print("asked", flush=True)
        await asyncio.sleep(pause_s)
        return ToolResult(Outcome.OK, "4")

    async def end_trajectory(self, trajectory_id): ...

endpoint = {"url": url, "model": "judge", "timeout_s": 2}
terms = [
    Term.model_validate({"kind": "rule", "name": "math", "rule": "math", "timeout_s": 0.2}),
    Term.model_validate({"kind": "verify", "name": "verify", "tool": "run", "arguments": {"x": "1"}, "timeout_s": 2}),
    Term.model_validate({"kind": "judge", "name": "judge", "endpoints": [endpoint]}),
]
facts = {"question": "?", "gold": "4", "answer": "$2 + \\\\frac{4}{2}$"}
told = []

async def main():
    async with RewardFunction(terms, RewardContext(Tools(), 0, lambda *words: told.append(words))) as function:
        trajectory = TrajectoryFacts.model_validate(facts).trajectory("t")
        (scored,) = await function.score_all([trajectory], step=1)
        print(json.dumps({each.term: [each.value, each.reason] for each in scored.scores}))

asyncio.run(main())
"""


@pytest.mark.parametrize(("pause_s", "worth"), [(1.0, 1.0), (60.0, None)])
def test_terms_that_were_stopped_get_their_time_again_and_what_never_answers_has_no_value(monkeypatch, pause_s, worth):
    monkeypatch.setattr(BaseServer, "handle_error", lambda *gone: None)  # a client that has hung up

    def say(body):
        time.sleep(min(pause_s, 6.0))
        return '{"score": 10}'

    with judging(say) as judge:
        command = [sys.executable, "-c", PROGRAM, str(pause_s), judge.url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout.readline() == "asked\n"
                time.sleep(0.4)
                os.kill(process.pid, signal.SIGSTOP)
                time.sleep(3.5)
                os.kill(process.pid, signal.SIGCONT)
                out, _ = process.communicate(timeout=60)
            finally:
                process.kill()
    values = json.loads(out)
    assert values["math"][0] == 1.0, values
    assert (values["verify"][0], values["judge"][0]) == (worth, worth), values
