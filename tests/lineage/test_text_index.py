"""The index of words finds exactly what looking through every trajectory finds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlf.apps.look.trace import find
from rlf.lineage.reader import Reader
from rlf.lineage.recorder import Recorder
from rlf.lineage.records import TrajectoryFilter
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store
from rlf.lineage.upkeep import Keep, thin
from rlf.types import RunFinished, RunStatus, StepFinished

from .builders import run_record, scored


@pytest.fixture
def reader(tmp_path):
    texts = ["Novbyl was founded", "by Romwin_x in 1203", 'énovbyl K <tool_call>{"a": 1}', "", "two  spaces", "NOVBYL!"]
    made = []
    for number, text in enumerate(texts):
        one = scored(number, num_tokens=8, text_bytes=8)
        turns = tuple(replace(turn, text=text, calls=()) for turn in one.trajectory.turns)
        made.append(replace(one, trajectory=replace(one.trajectory, turns=turns)))
    with open_store(tmp_path / "rlf.db") as store:
        start_run(store, run_record())
        with Recorder(store, run_record().id) as recorder:
            recorder(StepFinished(1, {}, made, [0.0] * len(made)))
        yield Reader(store)


TEXTS = ["novbyl", "Novbyl was", "ovby", "vbyl", "was founded", "s found", "romwin_x", "_x", "tool_call", "call>{", "{"]
TEXTS += ["1203", "120", "énov", "é", "two  spaces", "two spaces", "K", "nothing here", "x in", '"a": 1', "%", "_", "'"]
TEXTS += ['"', ""]


def places(reader, text):
    return [match.summary.k for match in find(reader, run_record().id, TrajectoryFilter(), text, 100)]


@pytest.mark.parametrize("text", TEXTS)
def test_the_same_trajectories_are_found_with_and_without_the_index(reader, text, monkeypatch):
    first, second = places(reader, text), places(reader, text)
    assert reader.store.index_file.is_file()
    monkeypatch.setattr("rlf.apps.look.trace._with_words", lambda reader, run_id, heads, text: heads)
    assert first == second == places(reader, text)


def test_what_the_index_leaves_out_is_not_decoded(reader, monkeypatch):
    places(reader, "novbyl")
    read = []
    wholes = Reader.wholes

    def note(self, run_id, heads):
        read.extend(head.k for head in heads)
        return wholes(self, run_id, heads)

    monkeypatch.setattr(Reader, "wholes", note)
    assert places(reader, "founded") == [0] == read


def test_a_damaged_index_is_no_reason_to_find_nothing(reader):
    reader.store.index_file.write_bytes(b"no database" * 500)
    assert places(reader, "founded") == [0]


def test_no_word_of_a_thinned_trajectory_stays_in_the_index(reader):
    places(reader, "novbyl")
    with Recorder(reader.store, run_record().id) as recorder:
        recorder(RunFinished(RunStatus.FINISHED, 1))
    assert thin(reader.store, run_record().id, Keep()) == 6
    assert not reader.store.index_file.exists()
    assert places(reader, "novbyl") == []
    assert b"novbyl" not in reader.store.index_file.read_bytes()
