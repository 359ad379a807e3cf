"""`rlf doctor`: whether this machine can run rlf."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.table import Table
from rich.text import Text

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunsFolder
from rlf.cli.envelope import print_result
from rlf.cli.output import stdout_console
from rlf.reports.sheets import visible

if TYPE_CHECKING:
    from rlf.apps.doctor.findings import AttackResult

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
        _show_attacks(as_json)
    from rlf.apps.doctor.findings import examine

    found = examine(runs_folder)
    table = Table.grid(padding=(0, 2, 0, 0))
    for finding in found.findings:
        advice = (f"\n{finding.fix}" if finding.fix else "", "yellow")
        words = Text.assemble(visible(finding.found), advice)
        table.add_row(Text(finding.status, _STYLES[finding.status]), finding.name, words)
    print_result("doctor", found, as_json, table)
    raise typer.Exit(0 if found.ok else 1)


def _show_attacks(as_json: bool) -> NoReturn:
    """Runs the attacks and shows each as it ends."""
    from rlf.apps.doctor.findings import run_attacks

    console = stdout_console()

    def show(result: AttackResult) -> None:
        line = Text("contained ", "green") if result.contained else Text("ESCAPED   ", "bold red")
        line.append(f"{result.level:<11}{result.attack:<32}{result.outcome:<13}{result.wall_s:5.2f} s", "default")
        console.print(line.append("".join(f"\n  {visible(what)}" for what in result.escaped), "red"))

    found = run_attacks((lambda _: None) if as_json else show)
    num_contained, num = sum(result.contained for result in found.attacks), len(found.attacks)
    levels = ", ".join(dict.fromkeys(result.level.value for result in found.attacks)) or "none"
    print_result("doctor.attack", found, as_json, f"{num_contained} of {num} attacks contained; levels: {levels}")
    raise typer.Exit(0 if num_contained == num else 3)
