"""`rlf env prove` finds every planted fault of a world and names it, and passes every sound world."""

import json
import re
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlf.apps.worlds import conditions, worlds
from rlf.apps.worlds.trial import first_difference
from rlf.apps.worlds.worlds import examine_apart
from rlf.core import RlfError
from rlf.environments.playing import Played
from rlf.runs.worlds import world_spec

from ...warm import warm_python
from . import ledgers, lockers, planted

SOURCE = Path(planted.__file__)
CORPUS = {Path(module.__file__): module for module in (planted, ledgers, lockers)}
ROWS = [{"prompt": "Please.", "item": item, "answer": planted.ITEMS[item]} for item in ("lamp", "drum")]
LIMITS = {"reset_s": 4, "step_s": 2, "score_s": 4}
"""Seconds; what hangs is waited for less long."""


def prove(folder, name, source=SOURCE, limit_s=120, **keys):
    """The verdicts on a class of the corpus that do not hold, by point."""
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    least = -1.0 if name == "Costs" else 0.0
    times = {"reset_s": 1, "step_s": 1, "score_s": 1} if name.startswith("Hangs") else LIMITS
    spec = {
        "env": {"kind": "python", "callable": f"{source}:{name}", "limits": times},
        "rewards": [{"kind": "env", "name": "done", "score": "done", "range": [least, 1.0]}],
        "data": {"train": {"path": "rows.jsonl", "prompt": "prompt", "answer": "answer"}},
    } | keys
    (folder / "spec.yaml").write_text(json.dumps(spec))
    try:
        page = examine_apart(world_spec([folder / "spec.yaml"], []), 2, attack=False, tolerance=0.2, limit_s=limit_s)
    except RlfError as refused:  # by the checks that every command makes
        return {"refused": str(refused)}
    return {verdict.name: verdict.words for verdict in page.failed}


@pytest.fixture(scope="module")
def _elsewhere(tmp_path_factory):
    """The other process of a proof is forked from one with its hashes of texts and its clock."""
    folder = tmp_path_factory.mktemp("elsewhere")
    conditions._write_order(folder, b"")
    python = folder / "python"
    variables = f"PYTHONHASHSEED=4242 PYTHONPATH={folder}:$PYTHONPATH"
    python.write_text(f'#!/bin/sh\n{variables} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    used = ("rlf.apps.worlds.trial", "rlf.processes.child", "rlf.environments.kinds.python")
    warm = warm_python(*used, python=str(python))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conditions, "sys", SimpleNamespace(**{**vars(sys), "executable": warm}))
        yield


PLANTED = [(source, *fault) for source, module in CORPUS.items() for fault in module.FAULTS.items()]
FIRST = {points: (source, name) for source, name, points in reversed(PLANTED)}
ALONE = worlds.TRIALS.keys() - {"deadlines"}
"""Points that look at what they play themselves, or at any episode, and not at all that was played."""


@pytest.mark.usefixtures("_elsewhere")
@pytest.mark.parametrize(("source", "name", "points"), PLANTED)
def test_a_planted_fault_is_found_and_named(tmp_path, monkeypatch, source, name, points):
    """By the whole proof for the first fault of each point, else by the points that may name it."""
    tried = set(points.split("|"))
    if tried <= ALONE and FIRST[points] != (source, name):
        least = tried | {"close", "reset"} | ({"gold", "no-op"} if "range" in tried else set())
        alone = {point: check for point, check in worlds.TRIALS.items() if point in least}
        monkeypatch.setattr(worlds, "TRIALS", alone)
    # The slow one is cut off at the proof's own limit, whatever that is.
    failed = prove(tmp_path, name, source, limit_s=6 if name == "Sluggish" else 120)
    assert tried & failed.keys(), failed


@pytest.mark.usefixtures("_elsewhere")
@pytest.mark.parametrize(
    ("source", "name"), [(source, name) for source, module in CORPUS.items() for name in module.SOUND]
)
def test_a_sound_world_has_no_fault(tmp_path, source, name):
    assert prove(tmp_path, name, source) == {}


@pytest.mark.parametrize(("name", "failed"), [("Depot", []), ("GoldWrong", ["gold"])])
def test_a_function_of_the_spec_counts_as_its_reward(tmp_path, name, failed):
    rewards = [{"kind": "python", "name": "right", "callable": f"{SOURCE}:right_code", "range": [0, 1]}]
    assert list(prove(tmp_path, name, rewards=rewards)) == failed


def test_a_proof_ends_at_its_limit(tmp_path):
    failed = prove(tmp_path, "HangsReset", limit_s=1)
    assert "within the limit of 1 s" in " ".join(failed.values()) or "stood still" in failed["contained"]


def test_the_guide_counts_the_corpus_as_it_is():
    guide = Path(__file__).parents[3].joinpath("docs", "guides", "worlds.md").read_text()
    table = re.search(r"^\| point \| faults .*?\n\n", guide, re.DOTALL | re.MULTILINE)[0]
    shown = {name: int(num) for name, num in re.findall(r"`([\w -]+)` \| (\d+)", table)}
    counted = Counter(point.split("|")[0] for module in CORPUS.values() for point in module.FAULTS.values())
    assert shown == {"check" if name == "refused" else name: num for name, num in counted.items()}
    assert f"**{counted.total()}**" in table
    assert f"sound worlds | {sum(len(module.SOUND) for module in CORPUS.values())} |" in table


def test_an_episode_that_failed_differs_by_its_failure_first():
    went, failed = Played("Go.", "{}", (), (("done", 1.0),), None), Played(None, "", (), (), "reset: it is full")
    assert first_difference(went, failed) == "failure: None, then 'reset: it is full'"
