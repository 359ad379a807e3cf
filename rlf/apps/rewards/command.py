"""`rlf rewards`: declared reward terms, tried on examples and on trajectories that are saved."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunsFolder, SpecArguments, split_arguments
from rlf.cli.completion import complete_reward_file, complete_run
from rlf.cli.envelope import NoImport, announced, print_result
from rlf.cli.output import plain_table, stdout_console
from rlf.core.errors import CheckError, RlfError
from rlf.reports.sheets import count, decimal, dollars, visible

if TYPE_CHECKING:
    from rlf.apps.rewards.examples import Trial
    from rlf.apps.rewards.scoring import RescoredTrajectory, Rescoring
    from rlf.types import Score

RewardFiles = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SPEC|FILE|KEY=VALUE",
        help="Specs, with overrides, or reward files; without any, every file in reward_specs/.",
        autocompletion=complete_reward_file,
    ),
]
_MOST_SHOWN = 10
_SMALLEST = 1e-9
"""A change that is one."""


def list_rewards_command(
    files: RewardFiles = None,
    kinds: Annotated[bool, typer.Option("--kinds", help="List all kinds and rules instead.")] = False,
    no_import: NoImport = False,
    as_json: AsJson = False,
) -> None:
    """List declared terms with weight, gate and tests; with --kinds what terms can be."""
    from rlf.apps.rewards.scoring import describe_terms, list_kinds
    from rlf.runs.declared import load_rewards

    if kinds:
        known = list_kinds()
        rows = ((Text(kind.name, "bold"), "rule" if kind.is_rule else "kind", kind.text) for kind in known)
        return print_result("rewards list", known, as_json, plain_table(("name", "is a", "value"), rows))
    with announced(no_import=no_import):
        found = describe_terms(load_rewards(*split_arguments(files or (), need_file=bool(files))))
    terms = (
        (str(each.file), Text(each.name, "bold"), each.kind, each.weight, each.gate, str(each.num_tests), each.text)
        for each in found
    )
    headers = ("file", "term", "kind", "weight", "gate", "tests", "what it is")
    return print_result("rewards list", found, as_json, plain_table(headers, terms))


def show_reward(
    name: Annotated[
        str, typer.Argument(metavar="NAME|SPEC", help="A kind, such as `python`, a rule, such as `ftrl`, or a spec.")
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Overrides of the spec.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a kind or a rule computes, and its keys; of a spec what its rules read of its gold answers."""
    from rlf.apps.rewards.scoring import describe_golds, describe_kind

    if name.endswith((".yaml", ".yml")):
        found = describe_golds(*split_arguments([name, *(overrides or ())]))
        golds = (
            (each.term, each.row, visible(each.gold), each.form, visible(each.value), visible(each.fault))
            for each in found.golds
        )
        parts = [plain_table(("term", "row", "gold", "is read as", "value", "fault"), golds)]
    else:
        if overrides:
            raise RlfError(f"{overrides[0]}: {name} is no spec, and overrides are of specs.")
        found = describe_kind(name)
        rows = (
            (Text(fact.name, "bold"), fact.type.replace("`", ""), fact.default, fact.range, fact.meaning)
            for fact in found.keys
        )
        parts = [plain_table(("key", "type", "default", "range", "meaning"), rows)] if found.keys else []
    end = Text("Keys of every term: `rlf schema reward`, docs/reference/reward.md.")
    print_result("rewards show", found, as_json, Group(Text(f"{found.text}\n"), *parts, end))


def test_rewards(files: RewardFiles = None, as_json: AsJson = False) -> None:
    """Try terms on their `tests:` and on gold, empty, malformed and long trajectories, of a spec's own first row.

    Exit code 3 when a trial fails, or a term is untested because nothing shows its best value.
    """
    import asyncio

    from rlf.apps.rewards.scoring import first_row, try_reward_files
    from rlf.runs.declared import load_rewards

    loaded = load_rewards(*split_arguments(files or (), need_file=bool(files)))
    for file in loaded:
        if (row := first_row(file)) is not None and any(not term.tests for term in file.terms):
            question = visible(row.question[:60])
            print(
                f"{file.file}: terms without `tests:` are tried on data.train's first row: {question}", file=sys.stderr
            )
    trials = asyncio.run(try_reward_files(loaded))
    headers = ("term", "tried on", "verdict", "expected", "value", "reason")
    print_result("rewards test", trials, as_json, plain_table(headers, map(_verdict_row, trials)))
    num_failed = sum(trial.ok is False for trial in trials)
    untested = [trial.term for trial in trials if trial.ok is None]
    failed = [f"{num_failed} of {len(trials) - len(untested)} trials failed"] if num_failed else []
    missing = [f"untested terms: {', '.join(untested)}"] if untested else []
    if failed or missing:
        raise CheckError("; ".join([*failed, *missing]))


def score_rewards(
    arguments: SpecArguments,
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="Trajectories of this run.", autocompletion=complete_run)
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", metavar="JSONL", help="Trajectories of this file.")] = None,
    phase: Annotated[
        str, typer.Option("--phase", help="With --run: `train`, or an evaluation's `sampled` or `greedy`.")
    ] = "train",
    step: Annotated[
        int | None, typer.Option("--step", min=0, help="With --run: the step.", show_default="the phase's latest")
    ] = None,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Score saved trajectories with a spec's terms: what moved, by which term, and what it does to advantages."""
    import asyncio

    from rlf.apps.rewards.scoring import rescore_saved, saved_in_file, saved_in_run
    from rlf.runs.declared import rescoring_spec

    if (run is None) == (file is None):
        raise RlfError("expected --run or --file, and one of them. Write e.g. `rlf rewards score SPEC --run latest`.")
    spec = rescoring_spec(*split_arguments(arguments))
    saved = saved_in_file(file) if file is not None else saved_in_run(run or "", runs_folder, phase=phase, step=step)
    found = asyncio.run(rescore_saved(spec, saved))
    print_result("rewards score", found, as_json, lambda: _print_rescored(found))


def _print_rescored(found: Rescoring) -> None:
    console, rescored = stdout_console(), found.trajectories
    console.print(_show_totals(rescored))
    moved = [each for each in rescored if abs(each.change or 0.0) > _SMALLEST]
    moved.sort(key=lambda each: -abs(each.change or 0.0))
    if moved:
        console.print()
        console.print(_show_moved(moved[:_MOST_SHOWN]))
    known = sum(each.change is not None for each in rescored)
    print(f"\n{found.source}: {len(moved)} of {known} rewards moved; {found.no_advantages or _show_turned(rescored)}.")
    usages = [score.usage for score in _split_scores(rescored)[1] if score.usage is not None]
    if usages:
        tokens, cost_usd = sum(usage.num_tokens for usage in usages), sum(usage.cost_usd for usage in usages)
        print(f"judges took {count(tokens)} tokens, {dollars(cost_usd)}.")


def _show_turned(rescored: Sequence[RescoredTrajectory]) -> str:
    pairs = [(each.before.advantage, each.after.advantage) for each in rescored]
    both = [(before, after) for before, after in pairs if before is not None and after is not None]
    if not both:
        return "no advantages to compare"
    return f"{sum(one * other < 0 for one, other in both)} of {len(both)} advantages change sign"


def _show_totals(rescored: Sequence[RescoredTrajectory]) -> Table:
    """The mean share of each term in the reward, before and after."""
    table = plain_table(("term", "before", "after", "moved", "no value"))
    for term in dict.fromkeys(term for each in rescored for term in each.changes):
        before, after = ([score for score in side if score.term == term] for side in _split_scores(rescored))
        means = [_show_mean([score.contribution for score in side]) for side in (before, after)]
        moved = sum(abs(each.changes.get(term, 0.0)) > _SMALLEST for each in rescored)
        table.add_row(Text(term, "bold"), *means, str(moved), str(sum(score.value is None for score in after)))
    sides = [[each.before.reward for each in rescored], [each.after.reward for each in rescored]]
    known = [[reward for reward in side if reward is not None] for side in sides]
    moved = sum(abs(each.change or 0.0) > _SMALLEST for each in rescored)
    table.add_row("reward", *map(_show_mean, known), str(moved), str(len(rescored) - len(known[1])))
    return table


def _split_scores(rescored: Sequence[RescoredTrajectory]) -> tuple[list[Score], list[Score]]:
    before = [score for each in rescored for score in each.before.scores]
    return before, [score for each in rescored for score in each.after.scores]


def _show_mean(values: Sequence[float]) -> str:
    return decimal(fmean(values)) if values else "-"


def _show_moved(rescored: Sequence[RescoredTrajectory]) -> Table:
    table = plain_table(("trajectory", "reward", "advantage", "most by", "reason"))
    for each in rescored:
        term = max(each.changes, key=lambda name: abs(each.changes[name]))
        reason = next((score.reason for score in each.after.scores if score.term == term), "no longer a term")
        reward = f"{decimal(each.before.reward)} -> {decimal(each.after.reward)}"
        advantage = f"{decimal(each.before.advantage)} -> {decimal(each.after.advantage)}"
        by = f"{visible(term)} {each.changes[term]:+.3g}"
        table.add_row(visible(each.id), reward, advantage, by, visible(reason))
    return table


def _verdict_row(trial: Trial) -> tuple[str | Text, ...]:
    verdict = Text("failed", "bold red") if trial.shortfalls else Text("ok", "green")
    if trial.is_missing:
        verdict = Text("untested", "yellow")
    reason = visible("\n".join(trial.shortfalls) or trial.reason)
    return Text(trial.term, "bold"), trial.what, verdict, trial.expected, decimal(trial.value), reason
