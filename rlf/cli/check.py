"""`rlf check`: whether a spec, or every member of a sweep, is right. Trains nothing; names foreign code before it
imports or starts it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlf.cli.arguments import AsJson, SpecArguments, load_part, split_arguments, suggest_sweep
from rlf.cli.envelope import NoImport, announced, print_envelope, print_result
from rlf.core.errors import RlfError, SpecError

if TYPE_CHECKING:
    from rlf.runs.plans import CheckedSpec


def check_command(
    arguments: SpecArguments,
    multirun: Annotated[
        bool, typer.Option("-m", "--multirun", help="Check once for each value of overrides such as `seed=0,1,2`.")
    ] = False,
    sweep: Annotated[
        Path | None, typer.Option("--sweep", metavar="FILE", help="Check each member of a sweep file.")
    ] = None,
    no_import: NoImport = False,
    as_json: AsJson = False,
) -> None:
    """Report every fault of a spec and of what it names. Nothing is trained, and no tool is called.

    Python that the spec names is imported and its MCP servers are started, unless `--no-import` is given; each is named
    on stderr before it runs. Warnings go to stderr too and are no failure.
    """
    from rlf.python.specs import Check, CheckedMember
    from rlf.runs.plans import check_spec

    files, overrides = split_arguments(arguments)
    many = multirun or sweep is not None
    word, axes = "-m" if multirun else "--sweep", "apps.sweep.axes"
    members = load_part(f"{axes}:members_of", word)(overrides, sweep, commas=multirun) if many else ()
    try:
        with announced(no_import=no_import):
            if many:
                checked = load_part(f"{axes}:check_members", word)(files, *members)
            else:
                checked = [((), check_spec(files, overrides))]
    except SpecError as raised:
        error = raised if many else suggest_sweep(raised, overrides)
        if as_json:
            print_envelope("check", Check(error.faults))
        raise error from raised
    warnings = tuple(dict.fromkeys(warning for _, found in checked for warning in found.warnings))
    right = tuple(CheckedMember(found.plan.spec.name, found.plan.plan_hash, own) for own, found in checked)
    about = Check((), warnings, members=right) if many else Check((), warnings, right[0].name, right[0].plan_hash)
    for warning in () if as_json else warnings:
        print(f"warning: {warning}", file=sys.stderr)
    lines = [f"{shlex.join([*map(str, files), *own])}: ok: {_summarize_check(found)}" for own, found in checked]
    print_result("check", about, as_json, "\n".join(lines))


def _summarize_check(checked: CheckedSpec) -> str:
    plan, spec = checked.plan, checked.plan.spec
    size = f"{_count_noun(spec.train.steps, 'step')} of {plan.num_trajectories_per_step} trajectories"
    try:
        num_tools = len(spec.tool_names)
    except RlfError:  # a world whose tools only running it shows
        num_tools = len(spec.tools)
    world = [] if spec.env is None else [f"{spec.env.kind} world"]
    numbers = [_count_noun(num_tools, "tool"), _count_noun(len(spec.rewards), "reward term")]
    return ", ".join([spec.name, *world, *numbers, size, f"plan {plan.plan_hash[:12]}"])


def _count_noun(number: int, noun: str) -> str:
    """`1 tool`, `2 tools`: as `rlf.reports` has it, which a check does not load."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
