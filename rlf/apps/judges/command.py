"""`rlf rewards calibrate`: a judge compared with people's labels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlf.cli.arguments import AsJson, split_arguments
from rlf.cli.completion import complete_reward_file
from rlf.cli.envelope import print_result
from rlf.cli.output import plain_table
from rlf.reports.sheets import decimal, visible

if TYPE_CHECKING:
    from rlf.apps.judges.calibration import Calibration
    from rlf.reports.statistics import Estimate


_MOST_SHOWN = 3


def calibrate_rewards(
    spec: Annotated[
        list[str],
        typer.Argument(
            metavar="SPEC|FILE|KEY=VALUE",
            help="A spec, with overrides, or a reward file.",
            autocompletion=complete_reward_file,
        ),
    ],
    labels: Annotated[Path, typer.Option("--labels", metavar="JSONL", help="Trajectories with a `label`.")],
    term: Annotated[
        str | None, typer.Option("--term", metavar="NAME", help="The judge, where there are several.")
    ] = None,
    threshold: Annotated[
        float,
        typer.Option("--threshold", min=0, max=1, help="A verdict of this value, from 0 to 1, or more is a good one."),
    ] = 0.5,
    as_json: AsJson = False,
) -> None:
    """Compare a judge with human labels: agreement, bias by position, length and authorship, cost."""
    import asyncio

    from rlf.apps.judges.calibration import calibrate, judge_in

    judge, seed = judge_in(*split_arguments(spec), term)
    found = asyncio.run(calibrate(judge, labels, seed=seed, threshold=threshold))
    headers = (found.term, "value", "95 % interval", "without bias or chance")
    print_result("rewards calibrate", found, as_json, plain_table(headers, _calibration_rows(found)))
    for reason in () if as_json else found.failures[:_MOST_SHOWN]:
        print(f"no verdict: {visible(reason)}")


def _calibration_rows(found: Calibration) -> Iterator[tuple[str, ...]]:
    yield "items", str(found.num_items)
    yield "without a verdict", str(len(found.failures))
    yield "accuracy", *_show_estimate(found.accuracy)
    yield "Cohen's kappa", *_show_estimate(found.kappa), "1 is agreement, 0 chance"
    yield "Spearman's rho", decimal(found.spearman), "", "1 is the same order"
    yield "length bias", decimal(found.length_bias), "", "0: rank correlation at equal label"
    if found.position_bias is not None:
        yield "flipped by order", decimal(found.position_bias.flipped), "", "0"
        yield "value of the first", decimal(found.position_bias.first), "", "0.5"
    if found.self_preference.value is not None:
        yield (
            "self-preference",
            *_show_estimate(found.self_preference),
            f"0: {found.num_own} answers are the judge's own",
        )
    yield "US dollars an item", f"{found.cost_usd:.3g}"
    yield "tokens an item", f"{found.num_tokens:.0f}"
    yield "seconds an item", f"{found.elapsed_s:.2f}"


def _show_estimate(estimate: Estimate) -> tuple[str, str]:
    interval = estimate.interval
    return decimal(estimate.value), "" if interval is None else f"{interval.low:.3f} to {interval.high:.3f}"
