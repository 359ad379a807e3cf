"""No secret of the environment reaches the database."""

import json
from dataclasses import replace

import pytest

from rlf.core.redact import Redactor
from rlf.lineage.reader import Reader
from rlf.lineage.recorder import Recorder
from rlf.lineage.records import FileRecord
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store
from rlf.types import (
    CallRecord,
    CheckpointSaved,
    EvaluationFinished,
    FailureClass,
    Message,
    Notice,
    Outcome,
    ParseFailure,
    RunFinished,
    RunStatus,
    Score,
    Scored,
    StepFinished,
    Task,
    ToolCall,
    ToolResult,
    Turn,
)
from rlf.types.trajectory import MissingRewardCause

from .builders import run_record, trajectory

CANARY = 'canary"é/7f3a'
FORMS = [
    CANARY,
    json.dumps(CANARY)[1:-1],
    'canary\\"é/7f3a',
    "canary%22%C3%A9%2F7f3a",
    "canary%22%C3%A9/7f3a",
    "canary",
]


def leaky():
    """A trajectory with the secret in every text."""
    said = f"I say {CANARY} and {json.dumps(CANARY)}"
    call = CallRecord(
        ToolCall(said, {"q": said, said: [said]}),
        ToolResult(Outcome.OK, f"{said} http://x?k=canary%22%C3%A9%2F7f3a&l=canary%22%C3%A9/7f3a"),
    )
    failure = ParseFailure(FailureClass.BAD_JSON, said, said, 0, True)
    known = trajectory(1)
    return Scored(
        replace(
            known,
            id=said,
            task=Task(said, (Message("user", said),), {"gold": said}, said),
            turns=(Turn(0, 1, 2, said, (call,), (failure,)),),
            answer=said,
            broken=MissingRewardCause(said, said),
        ),
        (Score(said, 1.0, 1.0, said),),
        1.0,
        1.0,
    )


def test_no_form_of_a_secret_is_stored(path, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", CANARY)
    said = f"it is {CANARY}"
    with open_store(path) as store:
        fields = {"name": said, "plan": {"x": [said]}, "host": {"h": said}, "packages": {"p": said}, "command": said}
        start_run(store, run_record("r", **fields, folder=said, files=(FileRecord("spec", said, "a"),)))
        with Recorder(store, "r") as recorder:
            recorder(StepFinished(1, {said: 1.0}, [leaky()], [0.0]))
            recorder(EvaluationFinished(1, "greedy", {said: 1.0}, [leaky()]))
            recorder(CheckpointSaved(1, said, "c"))
            recorder(Notice("info", said, {said: said}))
            recorder(RunFinished(RunStatus.FAILED, 1, said))
        reader = Reader(store)
        stored = repr(
            [
                reader.list_runs(),
                reader.steps("r"),
                reader.evaluations("r"),
                reader.checkpoints("r"),
                reader.events("r"),
                reader.trajectory("r", k=0),
                reader.trajectory("r", k=0, phase="greedy"),
            ]
        )
        assert stored.count("[redacted]") > 40
        with store.read() as connection:
            dump = "\n".join(connection.connection.driver_connection.iterdump())
    for form in FORMS:
        assert form not in stored
        assert form not in dump
    files = b"".join(file.read_bytes() for file in path.parent.iterdir() if file.is_file())
    assert b"canary" not in files


def test_only_long_values_of_secret_names_are_struck(tmp_path):
    redactor = Redactor(
        {
            "DB_PASSWORD": "correct horse",
            "hf_token": "hf_abcdefgh",
            "MY_SECRET": "short",
            "HOME": "/home/somebody",
            "SSH_KEY_FILE": str(tmp_path),
        }
    )
    text = f"correct horse, hf_abcdefgh, short, /home/somebody, {tmp_path}"
    assert redactor.text(text) == f"[redacted], [redacted], short, /home/somebody, {tmp_path}"


def test_numbers_stay_numbers():
    redactor = Redactor({"MAX_TOKENS": "100000000"})
    assert json.loads(redactor.json({"a": 100000000, "b": "at 100000000"})) == {"a": 100000000, "b": "at [redacted]"}


def test_the_longer_of_two_secrets_is_struck_whole():
    redactor = Redactor({"A_KEY": "12345678", "B_KEY": "1234567890"})
    assert redactor.text("1234567890 12345678") == "[redacted] [redacted]"


def test_what_json_cannot_say_becomes_text():
    assert Redactor({}).json({"a": {1}, "b": Redactor}) == json.dumps(
        {"a": "{1}", "b": str(Redactor)}, separators=(",", ":")
    )


def test_a_variable_that_a_tool_is_filled_in_with_is_struck_whatever_its_name(path, monkeypatch):
    monkeypatch.setenv("SEARCH_ADDRESS", "https://me:sesame@host")
    with open_store(path) as store:
        assert store.redactor.text("at https://me:sesame@host") == "at https://me:sesame@host"
        store.hide({"SEARCH_ADDRESS"})
        assert store.redactor.text("at https://me:sesame@host") == "at [redacted]"


@pytest.mark.parametrize("cuts", [(3, 4), (0, 6, 10, 14), (16,), (4, 24), tuple(range(29))])
def test_a_secret_that_lies_across_pieces_is_in_none_of_them(cuts):
    text = "say correct-horse-battery !\0?"
    pieces = [text[start:end] for start, end in zip((0, *cuts), (*cuts, len(text)), strict=True)]
    shown = Redactor({"SOME_KEY": "correct-horse-battery"}).pieces(pieces)
    assert len(shown) == len(pieces) and "".join(shown) == "say [redacted] !\ufffd?"
