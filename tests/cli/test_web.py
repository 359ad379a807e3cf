"""`rlf web`: what it serves, where, and what it refuses. The server itself is tested in tests/apps/web."""

import pytest

from rlf.apps.web.settings import WebSettings

SERVE = "rlf.apps.web.app.serve_page"


@pytest.fixture
def served(monkeypatch):
    """Settings of every page that a command serves; each page ends at once."""
    found = []

    def serve(settings, announce):
        found.append(settings)
        announce("http://127.0.0.1:8642/?token=t")

    monkeypatch.setattr(SERVE, serve)
    return found


def test_a_page_of_this_machine_can_write_and_has_a_token_of_its_own(rlf, served: list[WebSettings], tmp_path):
    result = rlf("web", str(tmp_path), "--port", "0")
    (settings,) = served
    assert result.exit_code == 130 and "rlf web: open http://127.0.0.1:8642/?token=t" in result.stdout
    assert (settings.project, settings.read_only) == (tmp_path, False)
    assert settings.token is not None and len(settings.token) >= 18
    assert settings.runs_folder == tmp_path / "runs"


def test_a_folder_of_runs_is_named_from_the_current_folder_as_for_every_command(rlf, served, tmp_path):
    (tmp_path / "mine/runs").mkdir(parents=True)
    rlf("web", "mine", "--runs", "mine/runs")
    assert served[0].runs_folder == tmp_path / "mine/runs"


def test_a_page_for_others_is_read_only_and_warns_that_nothing_is_encrypted(rlf, served, tmp_path):
    result = rlf("web", str(tmp_path), "--host", "0.0.0.0", "--json")
    assert served[0].read_only and "unencrypted" in result.stderr and '"event": "open"' in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "is not a folder"),
        (
            [".", "--runs", "nowhere"],
            "--runs: nowhere is not a folder. Name one that has runs, or leave",
        ),
        ([".", "another"], "expected one project folder"),
        ([".", "--host", "0.0.0.0", "--token", ""], "everybody who reaches 0.0.0.0 could read the project"),
        (["export", "latest"], "expected a run and a folder"),
    ],
)
def test_what_cannot_be_served_is_refused(rlf, served, words, message):
    result = rlf("web", *words)
    assert (result.exit_code, served) == (2, []) and message in result.stderr
