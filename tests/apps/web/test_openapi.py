"""What `/api/v1` answers is what its OpenAPI document says."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema_rs
import pytest
from starlette.testclient import TestClient

from rlf.apps.web.app import create_app
from rlf.apps.web.settings import WebSettings
from rlf.apps.web.tasks import TASKS
from rlf.cli.commands import HOMES
from rlf.core.plain_json import as_json
from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store

from ...reports.synthetic import events, run_record
from .conftest import ORIGIN

ROOT = Path(__file__).parents[3]
_FILLED = {"run": run_record().id, "step": "1", "k": "0", "phase": "train", "role": "reward", "which": "train"}
_FILLED |= {"spec": "specs/search.yaml", "path": "specs/search.yaml", "file": "search.yaml", "name": "search"}
_FILLED |= {"task": "heldout-0000"}
_OTHER = "20260102-030406-abce"
_ARMS = f"arm={run_record().id}&arm={_OTHER}"
_ASKED = {"/api/v1/compare": f"?{_ARMS}", "/api/v1/compare/question": f"?task=heldout-0000&{_ARMS}"}
_MISSING = {
    "/api/v1/keys",
    "/api/v1/jobs/{job}",
    "/api/v1/jobs/{job}/pages",
    "/api/v1/sweeps/{run}",
    "/api/v1/runs/{run}/why/{step}/{k}",
}
"""Of what there is none here: answered by an error."""


class _Here:
    """Does tasks in this process."""

    def call(self, task, *, deadline_s=0, **asked):
        return as_json(TASKS[task](**asked))

    read = call

    def close(self):
        pass


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """A client of a project with a spec, tools, rewards and two runs."""
    folder = tmp_path_factory.mktemp("project")
    with open_store(folder / "runs/rlf.db") as store:
        for seed, record in enumerate((run_record(), run_record(_OTHER))):
            start_run(store, record)
            with Recorder(store, record.id) as recorder:
                for event in events(num_steps=2, eval_every=1, num_questions=6, seed=seed):
                    recorder(event)
    for name in ("specs/search.yaml", "tool_specs/search.yaml", "tool_specs/calculator.yaml"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "reward_specs", folder / "reward_specs")
    app = create_app(WebSettings(folder, folder / "runs", port=8642))
    app.state.site.fresh = _Here()
    with (
        pytest.MonkeyPatch.context() as patch,
        TestClient(app, base_url=ORIGIN, raise_server_exceptions=False) as client,
    ):
        patch.chdir(folder)
        yield client


def test_each_get_answers_by_its_schema(client):
    document = client.get("/api/v1/openapi.json").json()
    faults = []
    for path, methods in document["paths"].items():
        if "get" not in methods or path == "/api/v1/events":
            continue
        asked = re.sub(r"{(\w+)}", lambda match: _FILLED.get(match[1], "none"), path) + _ASKED.get(path, "")
        response = client.get(asked)
        kind = "default" if path in _MISSING else "200"
        if (response.status_code == 200) != (kind == "200"):
            faults.append(f"{asked}: {response.status_code} {response.text[:200]}")
            continue
        schema = methods["get"]["responses"][kind]["content"]["application/json"]["schema"]
        validator = jsonschema_rs.Draft202012Validator(schema | {"components": document["components"]})
        faults += [
            f"{asked}: {error.instance_path}: {error.message[:200]}" for error in validator.iter_errors(response.json())
        ]
    assert faults == []


@pytest.mark.parametrize(("path", "group"), [("/tools/{file}/{action}", "tools"), ("/worlds/{action}", "env")])
def test_each_job_of_a_tool_and_a_world_is_a_command(client, path, group):
    operation = client.get("/api/v1/openapi.json").json()["paths"][f"/api/v1{path}"]["post"]
    (action,) = [one for one in operation["parameters"] if one["name"] == "action"]
    assert {f"{group} {word}" for word in action["schema"]["enum"]} <= HOMES.keys()


def test_the_page_is_served_before_the_types_of_all_outputs_are_loaded():
    look = "import sys, rlf.apps.web.app; print({'rlf.apps.schema.outputs', 'rlf.runs.players'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "set()\n"
