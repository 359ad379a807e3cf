"""`rlf doctor`: whether this machine can run rlf."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.table import Table
from rich.text import Text

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunsFolder
from rlf.cli.envelope import print_envelope
from rlf.cli.output import stdout_console
from rlf.reports.quantities import visible

if TYPE_CHECKING:
    from rlf.api.doctor.attacks import AttackResult

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(
    runs_folder: RunsFolder = DEFAULT_RUNS,
    attack: Annotated[
        bool, typer.Option("--attack", help="Attack the sandbox as hostile code would; exit code 3 when it escapes.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Look at Python, packages, machine, lineage and sandbox; exit code 1 when something keeps runs from working."""
    if attack:
        _attack(as_json)
    from rlf.api.doctor.findings import examine

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


def _attack(as_json: bool) -> NoReturn:
    """Runs the attacks and shows each as it ends."""
    from rlf.api.doctor.attacks import run_attacks

    console = stdout_console()

    def show(result: AttackResult) -> None:
        said = Text("contained ", "green") if result.contained else Text("ESCAPED   ", "bold red")
        said.append(f"{result.level:<11}{result.attack:<32}{result.outcome:<13}{result.wall_s:5.2f} s", "default")
        console.print(said.append("".join(f"\n  {visible(what)}" for what in result.escaped), "red"))

    results = run_attacks((lambda _: None) if as_json else show)
    escaped = [result for result in results if not result.contained]
    if as_json:
        print_envelope("doctor.attack", {"ok": bool(results) and not escaped, "attacks": results})
    else:
        levels = ", ".join(dict.fromkeys(result.level.value for result in results)) or "none"
        console.print(f"{len(results) - len(escaped)} of {len(results)} attacks contained; levels: {levels}")
    raise typer.Exit(3 if escaped else 0)
