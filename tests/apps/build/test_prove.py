"""A built world is proven again as its files are: each edit that breaks a task is found, and one that breaks none is
written into the certificate.
"""

import json
import shutil

import pytest

from rlf.apps.build.build import prove_folder
from rlf.apps.build.folder import build_world, read_world
from tests.apps.build.planted import SOUND, Script
from tests.apps.build.test_folder import edit_line, faults_of_spec
from tests.apps.build.test_llm import serving, silent
from tests.apps.build.test_planted import completed, settings
from tests.apps.build.worlds import settings as graph_settings


def proof_of(folder):
    return prove_folder(folder, lambda done, total: None)


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    out = tmp_path_factory.mktemp("worlds") / "graph"
    build_world(graph_settings(out, count=12), silent)
    return out


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    out = tmp_path_factory.mktemp("worlds") / "model"
    tasks = [completed(SOUND["chain with a look-alike"]())]
    with serving(Script(tasks)) as url:
        build_world(settings(url, out, tasks), silent)
    return out


@pytest.fixture
def copies(graph, model, tmp_path):
    for source in (graph, model):
        shutil.copytree(source, tmp_path / source.name)
    return tmp_path


def test_folders_as_they_were_built_hold_and_keep_their_certificates(copies):
    for name in ("graph", "model"):
        before = (copies / name / "certificate.json").read_bytes()
        proof = proof_of(copies / name)
        assert proof.holds and not proof.edited
        assert (copies / name / "certificate.json").read_bytes() == before


@pytest.mark.parametrize(
    "keys",
    [
        {"complexity": {"function": 3, "parameters": 2, "types": 1, "toolset": 2}},
        {"noise": "union", "complexity": {"parameters": 3, "types": 3}},
        {"build": {"changes": 0.6, "entities": 20}},
        {"build": {"pack": "embedded"}, "hops": (2, 3)},
    ],
)
def test_no_task_of_the_offline_builder_is_refused(tmp_path, keys):
    build_world(graph_settings(tmp_path / "out", count=30, **keys), silent)
    assert proof_of(tmp_path / "out").faults == ()


def edit_rows(path, change):
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    changed = [change(row) or row for row in rows]
    path.write_text("".join(json.dumps(row) + "\n" for row in changed), encoding="utf-8")


def name_gold(row):
    row["question"] += f" ({row['steps'][0]['gold']})"


def other_tool(row):
    row["tools"] = row["tools"][:1]


EDITS = {
    "an answer": ("graph", lambda f: edit_rows(f / "train.jsonl", lambda row: row.update(answer="7")), "answer"),
    "a gold in the question": ("graph", lambda f: edit_rows(f / "train.jsonl", name_gold), "leak"),
    "the golds that the reward counts": (
        "graph",
        lambda f: edit_rows(f / "train.jsonl", lambda row: row.update(unsolved_set={})),
        "what its steps make",
    ),
    "a row of another split": (
        "graph",
        lambda f: edit_line(f / "train.jsonl", "{", (f / "heldout.jsonl").read_text().splitlines()[0] + "\n{"),
        "another part of the split",
    ),
    "a task that stands twice": (
        "graph",
        lambda f: edit_line(f / "train.jsonl", "{", (f / "train.jsonl").read_text().splitlines()[0] + "\n{"),
        "duplicate",
    ),
    "a tool that is shown no more": ("graph", lambda f: edit_rows(f / "train.jsonl", other_tool), "does not show"),
    "code that returns one thing": (
        "graph",
        lambda f: edit_line(f / "tools.py", "    if level == 0:\n        return value", "    return 7"),
        "gold",
    ),
    "a gold of a model's task": (
        "model",
        lambda f: edit_line(f / "train.jsonl", '"gold": "Bilnar"', '"gold": "Pekvor"'),
        "gold",
    ),
    "code that reads the clock": (
        "model",
        lambda f: edit_line(
            f / "tools" / "river_of_town.py", '"value": value', '"value": value, "at": __import__("time").time()'
        ),
        "another",
    ),
    "code that knows one town": (
        "model",
        lambda f: edit_line(
            f / "tools" / "river_of_town.py", "    for key", "    return {'value': DATA['Kaldun']}\n    for key"
        ),
        "another argument",
    ),
    "a look-alike that finds the gold": (
        "model",
        lambda f: (
            shutil.copy(f / "tools" / "river_of_town.py", f / "tools" / "bridge_of_town.py")
            and edit_line(f / "tools" / "bridge_of_town.py", "def river_of_town", "def bridge_of_town")
        ),
        "distractor",
    ),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_that_breaks_a_task_is_found_and_leaves_the_certificate(copies, name):
    place, edit, words = EDITS[name]
    before = (copies / place / "certificate.json").read_bytes()
    edit(copies / place)
    proof = proof_of(copies / place)
    assert not proof.holds and proof.edited
    assert any(words in fault.reason for fault in proof.faults)
    assert (copies / place / "certificate.json").read_bytes() == before


def test_an_edit_that_breaks_nothing_is_proven_and_written_into_the_certificate(copies):
    folder = copies / "graph"
    edit_rows(folder / "train.jsonl", lambda row: row.update(question=f"Please: {row['question']}"))
    assert faults_of_spec(folder / "spec.yaml")
    proof = proof_of(folder)
    assert proof.holds and proof.edited == ("train.jsonl",)
    assert read_world(folder)[0].proven_again == ("train.jsonl",)
    assert faults_of_spec(folder / "spec.yaml") == []
