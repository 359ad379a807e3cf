"""`rlf doctor`: whether this machine can run rlf."""

from __future__ import annotations

import typer
from rich.table import Table
from rich.text import Text

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunsFolder
from rlf.cli.envelope import print_result
from rlf.reports.sheets import visible

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(runs_folder: RunsFolder = DEFAULT_RUNS, as_json: AsJson = False) -> None:
    """Look at Python, packages, machine, lineage and sandbox; exit code 1 when something keeps runs from working."""
    from rlf.apps.doctor.findings import examine

    found = examine(runs_folder)
    table = Table.grid(padding=(0, 2, 0, 0))
    for finding in found.findings:
        advice = (f"\n{finding.fix}" if finding.fix else "", "yellow")
        words = Text.assemble(visible(finding.found), advice)
        table.add_row(Text(finding.status, _STYLES[finding.status]), finding.name, words)
    print_result("doctor", found, as_json, table)
    raise typer.Exit(0 if found.ok else 1)
