"""`rlf doctor` on the sandbox: the level, why not a stronger one, and the attacks."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable

import pytest
from typer.testing import Result

from rlf.apps.doctor import findings as attacks
from rlf.apps.doctor.attacks import AttackResult
from rlf.apps.doctor.findings import Status, sandbox_finding
from rlf.sandbox import Level, LevelReport, Outcome

Rlf = Callable[..., Result]
NAMESPACES = LevelReport(Level.NAMESPACES, True, "bubblewrap")
NO_NAMESPACES = LevelReport(
    Level.NAMESPACES, False, "bubblewrap is not installed.", "Run `apt-get install bubblewrap`."
)
LANDLOCK = LevelReport(Level.LANDLOCK, True, "Landlock 7")
NO_LANDLOCK = LevelReport(Level.LANDLOCK, False, "the kernel has no Landlock")
PROCESS = LevelReport(Level.PROCESS, True, "limits alone")


@pytest.mark.parametrize(
    ("reports", "status", "found", "fix"),
    [
        ([NAMESPACES, LANDLOCK, PROCESS], Status.OK, "namespaces: bubblewrap", ""),
        (
            [NO_NAMESPACES, LANDLOCK, PROCESS],
            Status.WARN,
            "landlock: Landlock 7; namespaces: bubblewrap is not installed.",
            "Run `apt-get install bubblewrap`.",
        ),
        (
            [NO_NAMESPACES, NO_LANDLOCK, PROCESS],
            Status.WARN,
            "none that can contain model-written code; namespaces: bubblewrap is not installed.; landlock: the kernel "
            "has no Landlock",
            "Run `apt-get install bubblewrap`. Tools of kind code and sql run only with `allow_unsafe: true`.",
        ),
    ],
)
def test_the_strongest_level_is_reported_with_why_no_stronger(
    reports: list[LevelReport], status: Status, found: str, fix: str
) -> None:
    finding = sandbox_finding(reports)
    assert (finding.status, finding.found, finding.fix) == (status, found, fix)


def play(monkeypatch: pytest.MonkeyPatch, escaped: tuple[str, ...]) -> None:
    async def probe() -> tuple[LevelReport, ...]:
        return NO_NAMESPACES, LANDLOCK

    async def run_battery(level: Level) -> AsyncIterator[AttackResult]:
        yield AttackResult("fork bomb", level, Outcome.TIMEOUT, 0.5, ())
        yield AttackResult("network", level, Outcome.OK, 0.1, escaped)

    monkeypatch.setattr(attacks, "probe", probe)
    monkeypatch.setattr(attacks, "run_battery", run_battery)


def test_attacks_are_shown_level_by_level_and_all_contained_is_0(rlf: Rlf, monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, ())
    result = rlf("doctor", "--attack")
    assert result.exit_code == 0
    assert [line.split()[:3] for line in result.stdout.splitlines()[:2]] == [
        ["contained", "landlock", "fork"],
        ["contained", "landlock", "network"],
    ]
    assert result.stdout.splitlines()[2] == "2 of 2 attacks contained; levels: landlock"


def test_an_escape_exits_with_3_and_says_what_was_reached(rlf: Rlf, monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, ("reached a port of the host",))
    shown = rlf("doctor", "--attack")
    assert shown.exit_code == 3
    assert "ESCAPED" in shown.stdout and "reached a port of the host" in shown.stdout
    told = rlf("doctor", "--attack", "--json")
    data = json.loads(told.stdout)["data"]
    assert (told.exit_code, data["ok"]) == (3, False)
    assert [(row["attack"], row["contained"]) for row in data["attacks"]] == [("fork bomb", True), ("network", False)]
