"""Command lines as other programs have them are answered with what to write here."""

from pathlib import Path

import pytest
from rich.console import Console

from rlf.apps.look.tables import fitting_columns, render_overviews, shown_columns

SPEC = str(Path(__file__).parents[2] / "specs" / "search.yaml")


@pytest.mark.parametrize(
    ("arguments", "write"),
    [
        (["check", SPEC, "--train.steps", "3"], "Write train.steps=3."),
        (["check", SPEC, "--train.steps=3"], "Write train.steps=3."),
        (["run", SPEC, "--seed", "3"], "Write seed=3."),
        (["run", SPEC, "--train.steps"], "Write train.steps=VALUE."),
        (["run", SPEC, "--steps", "3"], "Write train.steps=3."),
        (["check", SPEC, "--learning-rate=1e-4"], "Write train.learning_rate=1e-4."),
        (["check", SPEC, "--lr", "1e-4"], "Write train.learning_rate=1e-4."),
        (["run", SPEC, "--every", "3"], "Write eval.every=3 or checkpoint.every=3."),
        (["check", SPEC, "train.steps", "=", "3"], "Write train.steps=3."),
        (["check", SPEC, "train.steps=", "3"], "Write train.steps=3."),
        (["check", SPEC, "train.steps", "=3"], "Write train.steps=3."),
        (["check", SPEC, "seed=0,1,2"], "To run once with each value: -m seed=0,1,2"),
        (["run", SPEC, "seed=0,1,2"], "To run once with each value: -m seed=0,1,2"),
        (["train", SPEC], "Write `rlf run SPEC`."),
        (["check", SPEC, "algorithm=ppo"], "Write `train.algorithm=gae`."),
        (["check", SPEC, "train.algorithm=ppo"], "Write gae."),
        (["check", SPEC, "~train.algorithm"], "Write e.g. `algorithm: grpo`."),
    ],
)
def test_a_command_line_of_another_program_is_answered_with_what_to_write(rlf, arguments, write):
    result = rlf(*arguments)
    assert result.exit_code == 2
    assert write in result.stderr


def test_another_wrong_option_is_answered_with_those_that_there_are(rlf):
    result = rlf("check", SPEC, "--sed")
    assert result.exit_code == 2
    assert "--sed: rlf check has no such option" in result.stderr and "--no-import" in result.stderr


def test_a_narrow_screen_shows_ids_whole(tmp_path):
    from rlf.lineage.reader import Reader
    from rlf.lineage.recorder import Recorder
    from rlf.lineage.run import start_run
    from rlf.lineage.store import open_store
    from rlf.reports.overview import read_overviews

    from ..reports.synthetic import events, run_record

    with open_store(tmp_path / "rlf.db") as store, Recorder(store, run_record().id) as recorder:
        start_run(store, run_record())
        for event in events():
            recorder(event)
        overviews = read_overviews(Reader(store))
    for width in (30, 40, 60, 80, 200):
        console = Console(width=width)
        columns = fitting_columns(overviews, shown_columns(overviews, None), width)
        with console.capture() as shown:
            console.print(render_overviews(overviews, columns))
        assert run_record().id in shown.get(), width
        assert "…" not in shown.get(), width
