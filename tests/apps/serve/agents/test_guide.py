"""The guide's agent is checked, certified, trained, resumed and evaluated as it stands there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from rlf.runs.place import open_reader
from rlf.types import StopReason
from tests.apps.serve.test_clients import PYTHON
from tests.processes import Process, call_rlf

GUIDE = Path(__file__).parents[4] / "docs/guides/agents.md"
BLOCK = re.compile(r"^```\w+ (?P<name>\S+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = """
import json, os, sys, urllib.request
body = {"model": "policy", "messages": [{"role": "user", "content": sys.argv[1]}]}
head = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), head)) as response:
    said = json.load(response)["choices"][0]["message"]["content"]
print("some words of the program")
print(json.dumps({"answer": f"{said} in {json.load(open('task.json'))['prompt'] == sys.argv[1]}"}))
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for block in BLOCK.finditer(GUIDE.read_text(encoding="utf-8")):
        (tmp_path / block["name"]).write_text(block["text"], encoding="utf-8")
    (tmp_path / "program.py").write_text(COMMAND, encoding="utf-8")
    return tmp_path


def rlf(project: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, the data of the last line, and what went to stderr."""
    with Process(call_rlf, *arguments, "--json", folder=project) as process:
        out, errors = process.communicate(timeout=300)
        return process.wait(), json.loads(out.splitlines()[-1])["data"] if out else {}, errors


def test_the_guides_agent_is_certified_and_learns(project: Path) -> None:
    code, found, errors = rlf(project, "agent", "certify", "agent.yaml", "--num", "4")
    assert (code, found["num_wrong"], found["continued_share"]) == (0, 0, 1.0), errors
    code, found, errors = rlf(project, "run", "agent.yaml", "train.steps=4", "eval.every=4", "eval.limit=48")
    assert (code, found["verdict"]["kind"]) == (0, "learned"), errors
    code, found, errors = rlf(project, "runs", "show", "latest")
    assert "100.0% of later calls continue an earlier one; no wrong samples" in json.dumps(found), errors
    code, _, errors = rlf(project, "runs", "branch", "latest", "0", "--step", "1", "--turn", "0")
    assert code == 2 and "an agent made its trajectories" in errors
    code, found, errors = rlf(project, "eval", "latest", "agent.yaml", "eval.limit=4")
    assert code == 0, errors


WITH_SDK = """
import site, sys
site.addsitedir(sys.argv.pop(1))  # behind the SDK and what it needs
from rlf.cli.start import main
sys.argv[0] = "rlf"
main()
"""


@pytest.mark.skipif(not PYTHON.exists(), reason=f"no openai SDK at {PYTHON}; run `make .venv/clients/ready`")
def test_the_guides_agent_on_the_openai_sdk_is_certified_and_trained(project: Path) -> None:
    keys = ["rollout.agent.callable=openai_agent.py:run", "train.steps=1", "train.prompts_per_step=8"]
    keys += ["eval=null", "~data.eval"]
    command = [str(PYTHON), "-c", WITH_SDK, sysconfig.get_path("purelib"), "run", "agent.yaml", "--json", *keys]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    with open_reader(project / "runs") as reader:
        run_id = reader.get_run("latest").record.id
        played, steps = reader.trajectories(run_id), reader.steps(run_id)
    assert len(played) == 8 * 8
    assert not [one.error for one in played if one.stop is StopReason.INFRA_FAILURE]
    assert sum(one.num_turns > 1 for one in played) > len(played) / 4, "results of its tool are answered"
    assert all(step.metrics["loss/policy"] for step in steps)
    _, found, errors = rlf(project, "runs", "show", "latest")
    assert "100.0% of later calls continue an earlier one; no wrong samples" in json.dumps(found), errors


CATCHES = """
import my_agent

sessions = []

async def run(task, session):
    # Clients give up that connect while their process is busy, and this agent catches that.
    sessions.append(session.key)
    return "" if len(sessions) <= 28 else await my_agent.run(task, session)
"""


def test_trajectories_whose_agent_caught_that_its_client_gave_up_are_played_again(project: Path) -> None:
    (project / "catches.py").write_text(CATCHES, encoding="utf-8")
    keys = ["rollout.agent.callable=catches.py:run", "train.steps=1", "train.prompts_per_step=4", "eval=null"]
    code, _, errors = rlf(project, "run", "agent.yaml", *keys, "~data.eval")
    assert code == 0, errors
    with open_reader(project / "runs") as reader:
        played = reader.trajectories(reader.get_run("latest").record.id)
    failed = [one for one in played if (one.error or "").startswith("agent: no_call: ")]
    assert len(failed) >= 20, "28 but for those of the certificate, of 32"
    assert sum(one.reward is not None for one in played) == 32, "a step is not made of what is left"


@pytest.mark.parametrize(("exit_code", "error"), [(0, None), (3, "agent: exit: exit code 3")])
def test_a_command_plays_a_trajectory_in_a_folder_of_its_own(project: Path, exit_code: int, error: str | None) -> None:
    agent = ["rollout.agent.callable=null", f"rollout.agent.command=python program.py {{{{ prompt }}}} {exit_code}"]
    before = {path.name for path in project.iterdir()}
    code, found, errors = rlf(project, "agent", "certify", "agent.yaml", *agent, "--num", "2")
    assert (code, found["num_calls"], found["num_without_calls"]) == (3 if exit_code else 0, 2, 0), errors
    assert (found["error"] or "").startswith(error or ""), found
    assert {path.name for path in project.iterdir()} - {"runs"} == before


def test_a_spec_says_what_it_cannot_be_with_an_agent(project: Path) -> None:
    least = "rollout.agent.least_continued=0.5"
    wrong = ["rollout.schedule=logical", "rollout.prefix_rows=true", "engine.kind=openrlhf", least]
    wrong.append("+rollout.tree={}")
    code, found, _ = rlf(project, "check", "agent.yaml", *wrong)
    assert code == 2
    paths = {fault["path"] for fault in found["faults"]}
    keys = ("schedule", "prefix_rows", "tree", "agent.on_break", "agent.least_continued")
    assert {f"rollout.{key}" for key in keys} <= paths


def test_what_fills_a_command_is_looked_for_in_the_data(project: Path) -> None:
    def faults(word: str) -> list[tuple[str, str]]:
        agent = ["rollout.agent.callable=null", f"rollout.agent.command=python program.py '{{{{ {word} }}}}'"]
        code, found, _ = rlf(project, "check", "agent.yaml", *agent)
        return [(fault["path"], fault["message"]) for fault in found.get("faults", ())] if code else []

    assert faults("row.question") == []
    for word, words in (("row.questoin", "did you mean"), ("row.answer", "gold answer"), ("promt", "has no value")):
        found = faults(word)
        assert len(found) == 1 + (word == "row.questoin")  # of both datasets
        assert all(path.startswith("rollout.agent") and words in message for path, message in found)


def test_a_plan_is_the_same_in_another_folder(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("moved")
    for path in project.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    agent = ["rollout.agent.callable=null", "rollout.agent.command=python program.py {{ prompt }}"]
    first, second = (rlf(folder, "check", "agent.yaml", *agent)[1]["plan_hash"] for folder in (project, other))
    assert first == second


def test_a_plan_follows_the_content_of_its_agent(project: Path) -> None:
    agent = ["rollout.agent.callable=null", "rollout.agent.command=python program.py"]
    hashes = [rlf(project, "check", "agent.yaml", *agent)[1]["plan_hash"]]
    hashes.append(rlf(project, "check", "agent.yaml")[1]["plan_hash"])
    for name in ("program.py", "my_agent.py"):
        (project / name).write_text((project / name).read_text() + "\n# edited\n", encoding="utf-8")
    hashes.append(rlf(project, "check", "agent.yaml", *agent)[1]["plan_hash"])
    hashes.append(rlf(project, "check", "agent.yaml")[1]["plan_hash"])
    assert len(set(hashes)) == 4
