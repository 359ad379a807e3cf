"""`rlf agent`: whether an agent of one's own can be trained."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from rlf.cli.arguments import AsJson, SpecArguments, split_arguments
from rlf.cli.envelope import print_result
from rlf.cli.output import facts_table


def certify(
    arguments: SpecArguments,
    num: Annotated[int, typer.Option("--num", min=1, max=1000, help="Rows of the training set that are played.")] = 8,
    least: Annotated[
        float, typer.Option("--least", min=0, max=1, help="Share of calls that must continue an earlier one.")
    ] = 0.9,
    as_json: AsJson = False,
) -> None:
    """Play some rows by the spec's agent and compare each token; exit code 3 when it cannot be trained as it is."""
    from rlf.apps.serve.agents.certify import certify_agent

    found = certify_agent(*split_arguments(arguments), num)
    share = f"{found.continued_share:.1%} of the calls after the first continue an earlier one"
    rows = [
        ("calls", f"{found.num_calls} in {found.num_trajectories} trajectories, {found.num_contexts} rows; {share}"),
        ("tokens", f"{found.num_wrong or 'none'} wrong; {found.trained_share:.1%} of the sampled ones are trained"),
        *((name, str(count)) for name, count in found.notes.items()),
        *(("change", cure) for cure in found.cures),
        *([("without a call", f"{found.num_without_calls} trajectories")] if found.num_without_calls else []),
        *([("broken", found.error)] if found.error else []),
    ]
    holds = found.holds(least)
    verdict = Text("can be trained as it is", "green") if holds else Text("cannot be trained as it is", "red")
    print_result("agent certify", found, as_json, Group(facts_table(rows), verdict))
    if not holds:
        raise typer.Exit(3)
