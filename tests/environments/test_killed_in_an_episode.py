"""kill -9 in the middle of an episode: the resumed run has the numbers of one that was left alone."""

from __future__ import annotations

import json
import signal

import rlf

from ..processes import Process, call_rlf
from .test_runs_in_worlds import SPEC, WORLD, project

__all__ = ["project"]

DEADLY = """
    def search(self, query: str):
        \"\"\"Find passages about a person, a town, a river or a company.\"\"\"
        import os, pathlib
        deadly = pathlib.Path("deadly")
        if deadly.exists():
            deadly.write_text(str(int(deadly.read_text()) - 1))
            if deadly.read_text() == "0":
                os.kill(os.getpid(), 9)
"""


def ran(project, *arguments):
    with Process(call_rlf, *arguments, folder=project) as process:
        process.communicate(timeout=120)
        return process.wait()


def numbers(run):
    """What follows from the plan alone."""
    named = ("env/score/", "loss/", "policy/", "reward", "stop/", "success", "tokens/", "tools/outcome/", "turns/")
    return [{name: value for name, value in step.metrics.items() if name.startswith(named)} for step in run.steps()]


def test_a_run_killed_in_an_episode_continues_to_the_same_numbers(project):
    (project / "library.py").write_text(
        WORLD.replace(WORLD[WORLD.index("    def search") : WORLD.index("        self.queries.append")], DEADLY)
    )
    (project / "spec.yaml").write_text(
        SPEC.replace("steps: 2", "steps: 4").replace("keep_state: true", "keep_state: true, isolation: inline")
    )
    assert ran(project, "run", "spec.yaml") == 0
    whole = rlf.load_run()
    num_calls = len(whole.calls(phase="sampled", step=0)) + sum(
        len(whole.calls(phase="train", step=n)) for n in (1, 2, 3)
    )
    (project / "deadly").write_text(str(num_calls))
    assert ran(project, "run", "spec.yaml") == -signal.SIGKILL
    (project / "deadly").unlink()
    killed = rlf.load_run()
    assert killed.id != whole.id and 0 < killed.step < 4
    assert ran(project, "resume", killed.id, "--take-over") == 0
    found, expected = numbers(rlf.load_run(killed.id)), numbers(whole)
    assert len(found) == len(expected) == 4
    assert json.dumps(found, sort_keys=True) == json.dumps(expected, sort_keys=True)
    states = [
        [s.trajectory.world.final_state for s in rlf.load_run(id_).scored(step=4)] for id_ in (killed.id, whole.id)
    ]
    assert states[0] == states[1]
