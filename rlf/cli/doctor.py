"""`rlf doctor`: whether this machine can run rlf."""

from __future__ import annotations

import typer
from rich.table import Table
from rich.text import Text

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunsFolder
from rlf.cli.envelope import print_envelope
from rlf.cli.output import stdout_console
from rlf.reports.quantities import visible

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(runs_folder: RunsFolder = DEFAULT_RUNS, as_json: AsJson = False) -> None:
    """Look at Python, packages, machine, lineage and git; exit code 1 when something keeps runs from working."""
    from rlf.api.doctor import examine

    findings = examine(runs_folder)
    failed = any(finding.status == "fail" for finding in findings)
    if as_json:
        print_envelope("doctor", {"ok": not failed, "findings": findings})
    else:
        table = Table.grid(padding=(0, 2, 0, 0))
        for finding in findings:
            said = Text(visible(finding.found))
            if finding.mend:
                said.append(f"\n{finding.mend}", "yellow")
            table.add_row(Text(finding.status, _STYLES[finding.status]), finding.name, said)
        stdout_console().print(table)
    raise typer.Exit(1 if failed else 0)
