"""`rlf doctor` on the sandbox: the level, and why not a stronger one."""

from __future__ import annotations

import pytest

from rlf.apps.doctor.findings import Status, sandbox_finding
from rlf.sandbox.spec import Level, LevelReport

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
