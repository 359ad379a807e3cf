"""`rlf bench` as a command."""

from rlf.apps.bench.command import _Progress
from rlf.types import Notice


def test_a_warning_of_an_evaluation_is_printed_and_what_is_no_warning_is_not(capsys):
    progress = _Progress()
    for level in ("warning", "info"):
        progress.show(Notice(level, f"{level} of a limit", {}))
    assert capsys.readouterr().err == "warning: warning of a limit\n"
