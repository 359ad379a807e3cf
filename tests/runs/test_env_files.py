"""A `.env` beside a spec, through a run and its resumption: used, and recorded nowhere."""

import os
import signal

from rlf.lineage.reader import Reader
from rlf.runs.place import open_lineage
from rlf.runs.resume import resume
from rlf.runs.start import run
from rlf.spec.reader import forget_env_files
from rlf.types import RunStatus, StepFinished

VALUE = "https://me:sesame-9000@host"


def test_a_value_of_env_is_used_and_resumed_with_and_stored_nowhere(small, tmp_path):
    files, overrides = small
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        f"extends: {files[0]}\nname: secretive\ntools: [{{name: search, description: 'At ${{oc.env:RLF_PLACE}}.'}}]\n"
    )
    (tmp_path / ".env").write_text(f"RLF_PLACE={VALUE}\n")
    seen = []

    def interrupt(event):
        seen.append(os.environ["RLF_PLACE"])
        if isinstance(event, StepFinished):
            signal.raise_signal(signal.SIGINT)

    overrides = [*overrides, "train.steps=2", "checkpoint.every=1", "eval.limit=2", "eval.every=null"]
    command = ["rlf", "run", "--key", VALUE]
    outcome = run([spec], overrides, runs_folder=tmp_path / "runs", view=lambda info: interrupt, command=command)
    assert outcome.status is RunStatus.INTERRUPTED
    forget_env_files()
    assert "RLF_PLACE" not in os.environ
    resumed = resume(outcome.run_id, runs_folder=tmp_path / "runs", view=lambda info: seen.append, command=command)
    forget_env_files()
    assert resumed.status is RunStatus.FINISHED and seen[0] == VALUE
    with open_lineage(tmp_path / "runs") as store:
        record = Reader(store).get_run(outcome.run_id).record
    assert record.plan["spec"]["tools"][0]["description"] == "At ${oc.env:RLF_PLACE}."
    assert record.command == "rlf run --key [redacted]"
    stored = b"".join(path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file())
    assert b"sesame" not in stored
