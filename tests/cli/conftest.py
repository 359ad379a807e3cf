"""Commands called as a user calls them, with the engine replaced by recorded events."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from typer.testing import CliRunner, Result

from rlf.cli import app, envelope
from rlf.lineage.reader import Reader
from rlf.lineage.recorder import Recorder
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store
from rlf.reports.verdict import read_verdict
from rlf.runs.sink import RunInfo, RunOutcome, View
from rlf.types import Notice, RunEvent, RunFinished, RunStatus

from ..reports.synthetic import events, run_record

RUN = run_record().id


def run_info(**changes: object) -> RunInfo:
    values = {
        "run_id": RUN,
        "name": "search",
        "folder": Path("runs") / RUN,
        "total_steps": 12,
        "first_step": 1,
        "seed": 0,
        "plan_hash": "cd" * 32,
        "device": "cpu",
        "model": "builtin:tiny",
        "resumed": False,
        "specs": ("specs/search.yaml",),
    }
    return RunInfo(**(values | changes))  # type: ignore[arg-type]


def play(
    *_: object,
    runs_folder: Path,
    view: View,
    command: Sequence[str],
    script: Callable[[], Sequence[RunEvent]],
    **_options: object,
) -> RunOutcome:
    """Stands in for `rlf.runs.start.run`: records and shows scripted events."""
    assert command
    with open_store(runs_folder / "rlf.db") as store, Recorder(store, RUN) as recorder:
        start_run(store, run_record())
        show = view(run_info(folder=runs_folder / RUN))
        for event in script():
            recorder(event)
            show(event)
    assert isinstance(event, RunFinished)
    with open_store(runs_folder / "rlf.db") as store:
        return RunOutcome(RUN, event.status, event.step, read_verdict(Reader(store), RUN, event.status))


def script_of(status: RunStatus, error: str | None = None) -> Callable[[], Sequence[RunEvent]]:
    """A whole run, or one that ends after its fourth step."""
    whole = list(events())
    whole.insert(-1, Notice("info", "verdict: learned: much", {"verdict": "learned", "reason": "much"}))
    if status is RunStatus.FINISHED:
        return lambda: whole
    return lambda: [*whole[:9], RunFinished(status, 4, error)]


@pytest.fixture(autouse=True)
def _every_line_of_json_has_its_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a command prints with `--json` in these tests is held against the schema of that command."""
    write = envelope._print_json

    def check(line: dict[str, Any]) -> None:
        plain = envelope.as_json(line)
        name = line["command"] + (f": {line['event']}" if "event" in line else "")
        error = best_match(validator(name).iter_errors(plain))
        assert error is None, f"{name}: {error.json_path}: {error.message}"
        write(line)

    monkeypatch.setattr(envelope, "_print_json", check)


@functools.cache
def validator(name: str) -> Draft202012Validator:
    """Of a command's result, or of an event as `command: event`."""
    from rlf.apps.schema.outputs import output_schema

    return Draft202012Validator(output_schema() | {"anyOf": [{"$ref": f"#/$defs/{name}"}]})


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets `rlf run` and `rlf resume` play a run that ends with a status."""

    def use(status: RunStatus = RunStatus.FINISHED, error: str | None = None) -> None:
        for name in ("start.run", "resume.resume"):
            monkeypatch.setattr(f"rlf.runs.{name}", functools.partial(play, script=script_of(status, error)))

    return use


def invoke(*arguments: object) -> Result:
    """Calls a command, 80 columns wide."""
    return CliRunner(env={"COLUMNS": "80"}).invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def rlf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Calls a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return invoke


@pytest.fixture(scope="session")
def recorded_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs folder that `rlf run` leaves behind when it plays a whole run."""
    folder = tmp_path_factory.mktemp("recorded")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("rlf.runs.start.run", functools.partial(play, script=script_of(RunStatus.FINISHED)))
        assert invoke("run", "search.yaml").exit_code == 0
    return folder / "runs"


@pytest.fixture
def recorded(rlf: Callable[..., Result], recorded_runs: Path, tmp_path: Path) -> Callable[..., Result]:
    """Calls a command in a folder with a copy of that run."""
    shutil.copytree(recorded_runs, tmp_path / "runs")
    return rlf
