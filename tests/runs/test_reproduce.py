"""A run is told again from its lineage, to the same numbers; one changed line of a tool is all that differs."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import update
from typer.testing import CliRunner

from rlf.apps.keep.forks import explain_differences
from rlf.cli import app
from rlf.core import RlfError
from rlf.lineage import tables
from rlf.lineage.graph import differing, read_graph
from rlf.lineage.reader import Reader
from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.reports.verdict import read_verdict
from rlf.runs import provenance
from rlf.runs.place import open_lineage
from rlf.runs.resume import resume
from rlf.runs.sink import RunOutcome
from rlf.runs.start import run
from rlf.types import RunStatus, StepFinished

from ..lineage.builders import run_record, scored
from .conftest import ROOT, SMALL
from .test_runs import Watch

TOOL = """name: search
description: Find passages about a person, a town, a river or a company.
inputSchema:
  type: object
  properties: {query: {type: string}}
  required: [query]
target: {kind: python, callable: "search.py:search", isolation: inline}
"""
SOURCE = "from rlf.builtin import encyclopedia\n\n\ndef search(query):\n    return encyclopedia.search(query)\n"


def small_run(folder: Path, source: str) -> str:
    """A short run whose search tool is a file of its own."""
    (folder / "search.py").write_text(source)
    (folder / "search.yaml").write_text(TOOL)
    (folder / "spec.yaml").write_text(
        f"extends: {ROOT / 'specs' / 'search_no_tool.yaml'}\nname: told\ntools: [search.yaml]\n"
    )
    watch = Watch()
    run([folder / "spec.yaml"], [*SMALL, "train.steps=2"], runs_folder=folder / "runs", view=watch, command=["rlf"])
    return watch.info.run_id


def rlf(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_run_of_a_copied_project_is_reproduced_bit_for_bit_and_a_package_that_differs_is_named(tmp_path, monkeypatch):
    (tmp_path / "project").mkdir()
    run_id = small_run(tmp_path / "project", SOURCE)
    runs = shutil.move(tmp_path / "project", tmp_path / "moved") / "runs"
    again = rlf("runs", "reproduce", run_id, "--verify", "--runs", runs)
    assert again.exit_code == 0, again.output
    equals = f"equals {run_id}: every step's and evaluation's metrics, bit for bit"
    assert equals in again.stdout and "differs" not in again.stdout
    assert "finished" in rlf("runs", "list", "parent == '" + run_id + "'", "--runs", runs).stdout
    with open_lineage(runs) as store, store.write() as connection:
        packages = json.dumps(provenance.packages() | {"torch": "9.9"})
        connection.execute(update(tables.runs).where(tables.runs.c.id == run_id).values(packages=packages))
        run_id = Reader(store).get_run("latest").record.id
        reproduction = RunOutcome(run_id, RunStatus.FINISHED, 2, read_verdict(Reader(store), run_id))
    monkeypatch.setattr("rlf.apps.keep.forks.reproduce", lambda *_, **__: reproduction)
    differing = rlf("runs", "reproduce", run_id, "--verify", "--runs", runs)
    assert (differing.exit_code, equals in differing.stdout) == (3, True)
    assert f"differs: package torch  9.9 → {provenance.packages()['torch']}" in differing.stdout
    assert rlf("runs", "reproduce", run_id, "--verify", "--accept", "--runs", runs).exit_code == 0


def test_a_resumed_run_with_played_back_calls_calls_no_tool(tmp_path):
    count = "    with open(__file__ + '.calls', 'a') as calls:\n        calls.write('.')\n"
    counted = SOURCE.replace("    return", f"{count}    return")
    original = small_run(tmp_path, counted)
    calls = (tmp_path / "search.py.calls").read_text()
    assert calls

    def stop(_info):
        def see(event):
            if isinstance(event, StepFinished) and event.step == 1:
                raise RlfError("stopped here")

        return see

    sizes, runs = [*SMALL, "train.steps=2"], tmp_path / "runs"
    with pytest.raises(RlfError, match="stopped here"):
        run([tmp_path / "spec.yaml"], sizes, runs_folder=runs, view=stop, command=["rlf"], replay=original)
    assert resume("latest", runs_folder=runs, view=Watch(), command=["rlf"]).status is RunStatus.FINISHED
    assert (tmp_path / "search.py.calls").read_text() == calls


@pytest.mark.parametrize("option", [{"replay": "latest"}, {"record": True}])
def test_a_run_that_is_killed_when_it_has_just_been_registered_keeps_its_replay_and_its_recording(
    option, tmp_path, monkeypatch
):
    count = "    with open(__file__ + '.calls', 'a') as calls:\n        calls.write('.')\n"
    small_run(tmp_path, SOURCE.replace("    return", f"{count}    return"))
    calls, runs = (tmp_path / "search.py.calls").read_text(), tmp_path / "runs"

    def register(*arguments):
        start_run(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("rlf.runs.start.start_run", register)
        sizes = [*SMALL, "train.steps=2"]
        run([tmp_path / "spec.yaml"], sizes, runs_folder=runs, view=Watch(), command=["rlf"], **option)
    assert resume("latest", runs_folder=runs, view=Watch(), command=["rlf"]).status is RunStatus.FINISHED
    is_same = (tmp_path / "search.py.calls").read_text() == calls
    assert is_same is ("replay" in option) and len(list(runs.glob("*/tool_calls.jsonl"))) == ("record" in option)


def test_rows_of_the_data_that_differ_are_named_in_the_order_of_their_ids(tmp_path):
    with open_lineage(tmp_path, create=True) as store:
        for run_id, answer in (("a", "Ada"), ("b", "Bob")):
            played = [scored(1)]
            for number in range(2, 9):
                other = scored(number)
                task = replace(other.trajectory.task, id=f"q{number}", answer=[answer])
                played.append(replace(other, trajectory=replace(other.trajectory, task=task)))
            with Recorder(store, run_id) as recorder:
                start_run(store, run_record(run_id))
                recorder(StepFinished(1, {}, played, [0.0] * len(played)))
        reader = Reader(store)
        found = differing(read_graph(reader, "a"), read_graph(reader, "b"))
        rows = explain_differences(reader, "a", "b", found)
    assert [(row.kind, row.name[:8]) for row in rows] == [("row", f"train q{number}") for number in range(2, 9)]
    assert rows[0].name.startswith("train q2 'Who?Who")


def test_one_changed_line_of_a_tool_is_the_only_source_that_differs(tmp_path):
    first = small_run(tmp_path, SOURCE)
    second = small_run(tmp_path, SOURCE.replace("(query)\n", "(query).upper()\n"))
    told = rlf("runs", "compare", first, second, "--json", "--runs", tmp_path / "runs")
    assert told.exit_code == 0, told.output
    differences = json.loads(told.stdout)["data"]["differences"]
    assert [(item["cause"], Path(item["what"]).name) for item in differences] == [("file", "search.py")]
    assert "they differ in the content of" in json.loads(told.stdout)["data"]["verdicts"][0]
    lines = rlf("runs", "diff", first, second, "--runs", tmp_path / "runs").stdout.splitlines()
    sources = [line.split()[:2] for line in lines if line.split()[0] not in ("plan", "step", "evaluation")]
    assert [(kind, Path(name).name) for kind, name in sources] == [("code", "search.py")]


SPECS = ["code", "rooms_turns", "search_r1_reward", "shop", "sql"]
"""Tools and rewards in one, rewards that run the tools, a world, and terms of turns."""
TINY = [
    *("train.steps=1", "train.prompts_per_step=2", "rollout.num_generations=2", "eval.every=1", "eval.limit=2"),
    *("data.train.limit=8", "checkpoint.every=1"),
]


@pytest.mark.parametrize("name", SPECS)
def test_a_run_of_a_shipped_spec_is_reproduced_bit_for_bit(name, tmp_path):
    ran = rlf("run", ROOT / "specs" / f"{name}.yaml", *TINY, "--runs", tmp_path)
    assert ran.exit_code == 0, ran.output
    again = rlf("runs", "reproduce", "latest", "--verify", "--runs", tmp_path)
    assert again.exit_code == 0 and "bit for bit" in again.stdout, again.output
