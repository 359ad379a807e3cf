import json
import shutil
import signal
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMALL = [
    "data.train.limit=64",
    "data.eval.limit=64",
    "train.prompts_per_step=2",
    "rollout.num_generations=4",
    "train.steps=6",
    "eval.every=3",
    "eval.limit=8",
    "checkpoint.every=2",
]


@pytest.fixture
def small():
    """The search spec, cut to a few seconds."""
    return [ROOT / "specs" / "search.yaml"], SMALL


TOOL = """name: search
description: Find passages.
inputSchema: {type: object, properties: {query: {type: string}}, required: [query]}
target: {kind: python, callable: "search.py:search", isolation: inline}
"""
SPEC = f"""extends: {ROOT / "specs" / "search_no_tool.yaml"}
name: small
tools: [search.yaml]
data: {{train: {{path: train.jsonl}}, eval: {{path: train.jsonl}}}}
train: {{steps: 2, prompts_per_step: 2}}
rollout: {{num_generations: 2}}
eval: {{limit: 2, greedy: false}}
checkpoint: {{every: 1}}
"""
CODE = "import words\n\n\ndef search(query):\n    return words.answer(query)\n"


@pytest.fixture(scope="session")
def interrupted(tmp_path_factory):
    """A project with a run that was stopped after its first step."""
    folder = tmp_path_factory.mktemp("made") / "project"
    folder.mkdir()
    rows = [{"question": f"Where is town {n}?", "answer": f"Here {n}", "kind": "one"} for n in range(8)]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "words.py").write_text("def answer(query):\n    return 'No passage: ' + query\n")
    (folder / "search.py").write_text(CODE)
    (folder / "search.yaml").write_text(TOOL)
    (folder / "spec.yaml").write_text(SPEC)

    from rlf.runs.start import run
    from rlf.types import StepFinished

    from .test_runs import Watch

    def interrupt(event):
        if isinstance(event, StepFinished):
            signal.raise_signal(signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        outcome = run([Path("spec.yaml")], [], runs_folder=Path("runs"), view=Watch(interrupt), command=["rlf"])
    assert (str(outcome.status), outcome.step) == ("interrupted", 1)
    return folder


@pytest.fixture
def project(interrupted, tmp_path, monkeypatch):
    """A copy of that project, in another place."""
    copy = tmp_path / "copy"
    shutil.copytree(interrupted, copy)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(copy))
    return copy


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A run of the search spec that has learned for two steps: its runs folder, and its id."""
    from rlf.runs.start import run

    from .test_runs import Watch

    folder = tmp_path_factory.mktemp("trained") / "runs"
    changes = ["train.steps=2", "eval.every=1", "checkpoint.every=1"]
    done = run([ROOT / "specs/search.yaml"], [*SMALL, *changes], runs_folder=folder, view=Watch(), command=["rlf"])
    return folder, done.run_id
