"""`rlf tools fuzz`: mutated calls of every tool, read by every chat format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from rlf.cli.arguments import AsJson, ToolFiles
from rlf.cli.output import plain_table, print_result, stdout_console
from rlf.core.errors import CheckError
from rlf.reports.sheets import visible

if TYPE_CHECKING:
    from rlf.apps.fuzz.fuzz import ForeignTally, Tally, ToolFuzz

_MAX_SHOWN = 3


def fuzz_tools(
    files: ToolFiles = None,
    format_name: Annotated[str, typer.Option("--format", help="One chat format.", show_default="all")] = "",
    parser: Annotated[
        str, typer.Option("--parser", help="Read with vLLM's parser instead: `vllm:NAME`.", show_default="rlf's own")
    ] = "",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed that chooses where mutations are made.")] = 0,
    seconds: Annotated[float, typer.Option("--seconds", min=0.0, help="Time for all pairs of mutations.")] = 30.0,
    as_json: AsJson = False,
) -> None:
    """Mutate canonical calls, alone and in pairs; exit code 3 when one is lost, run by mistake or breaks the parser."""
    from rlf.apps.fuzz import fuzz
    from rlf.runs.tools import load_tools

    tools, names = load_tools(files or ()), [format_name] if format_name else fuzz.FORMATS.names()
    found = fuzz.fuzz_tools(tools, names, parser, seed, seconds)
    print_result("tools fuzz", found, as_json, lambda: _print_found(found))
    num_wrong = sum(not tally.is_clean for tally in found.tallies)
    if num_wrong:
        raise CheckError(
            f"{num_wrong} of {len(found.tallies)} pairs of tool and format lose calls, run others or break"
        )
    num_odd = sum(not tally.is_clean for tally in found.foreign)
    if num_odd:
        raise CheckError(
            f"{num_odd} of {len(found.foreign)} pairs of format and foreign syntax lose calls or run others"
        )


def _print_found(found: ToolFuzz) -> None:
    console = stdout_console()
    console.print(_make_table(found.tallies))
    for tally in found.tallies:
        for finding in tally.findings[:_MAX_SHOWN]:
            how = " + ".join(finding.operators)
            console.print(f"{tally.format} {tally.tool}: {finding.outcome}: {how}: {visible(finding.text)}")
    console.print("\ncalls in other syntaxes: . a typed failure, = read as meant, ! an answer or another call")
    console.print(_foreign_table(found.foreign))
    numbered = dict.fromkeys(tally.format for tally in found.foreign)
    console.print(", ".join(f"{number} {name}" for number, name in enumerate(numbered, 1)), style="dim")
    for odd in [tally for tally in found.foreign if not tally.is_clean][:_MAX_SHOWN]:
        console.print(f"{odd.format} {odd.tool}: a call in the syntax {odd.syntax}: {visible(odd.example)}")
    if num_cut := sum(not tally.is_complete for tally in found.tallies):
        cut = f"{num_cut} of {len(found.tallies)} ran out of time before every pair: give more --seconds"
        console.print(cut, style="dim")
    for line in found.skipped:
        console.print(line, style="dim")


def _make_table(tallies: Sequence[Tally]) -> Table:
    from rlf.apps.fuzz.fuzz import WRONG, Outcome

    outcomes = [outcome.replace("_", " ") for outcome in Outcome]
    table = plain_table(["format", "tool", "verdict", "identity", *outcomes], padding=1)
    for tally in tallies:
        verdict = Text("ok", "green") if tally.is_clean else Text("failed", "bold red")
        identity = Text(str(tally.num_identity_failures), "bold red" if tally.num_identity_failures else "")
        numbers = [
            Text(str(tally.counts[outcome]), "bold red" if outcome in WRONG and tally.counts[outcome] else "")
            for outcome in Outcome
        ]
        table.add_row(Text(tally.format, "bold"), tally.tool, verdict, identity, *numbers)
    return table


def _foreign_table(tallies: Sequence[ForeignTally]) -> Table:
    """A row per syntax, a column per format: how its calls were read."""
    names = list(dict.fromkeys(tally.format for tally in tallies))
    table = plain_table(["syntax", *(str(number) for number, _ in enumerate(names, 1))], padding=1)
    for syntax in dict.fromkeys(tally.syntax for tally in tallies):
        cells = [
            _make_cell([each for each in tallies if (each.syntax, each.format) == (syntax, name)]) for name in names
        ]
        table.add_row(syntax, *cells)
    return table


def _make_cell(tallies: Sequence[ForeignTally]) -> Text:
    from rlf.apps.fuzz.fuzz import Outcome

    if not all(tally.is_clean for tally in tallies):
        return Text("!", "bold red")
    return Text("=" if any(tally.counts[Outcome.RECALLED] for tally in tallies) else "." if tallies else "")
