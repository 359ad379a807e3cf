"""`rlf judge`: judges served on this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlf.cli.arguments import AsJson, CertificateFile, Host, KeyFile
from rlf.cli.completion import complete_reward_file
from rlf.cli.envelope import print_result
from rlf.cli.output import plain_table
from rlf.core.errors import RlfError
from rlf.reports.sheets import decimal, visible

if TYPE_CHECKING:
    from rlf.apps.judges.calibration import Calibration
    from rlf.apps.judges.servers import JudgeEndpoints
    from rlf.reports.statistics import Estimate


def serve_judge(
    what: Annotated[
        str,
        typer.Argument(
            metavar="SPEC|MODEL",
            help="A spec or reward file with judges that have `serve`; or a folder, Hugging Face id or builtin name.",
            autocompletion=complete_reward_file,
        ),
    ],
    args: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGS...]", help="For a MODEL: further arguments of `vllm serve`.")
    ] = None,
    num: Annotated[int, typer.Option("--num", min=1, max=64, help="For a MODEL: number of servers.")] = 1,
    gpus: Annotated[
        str,
        typer.Option(
            "--gpus", help="For a MODEL: GPUs that the servers share, e.g. 0,1.", show_default="those visible"
        ),
    ] = "",
    host: Host = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            "--port", min=0, max=65535, help="Port of the first server, the others follow; 0 takes free ports."
        ),
    ] = 8100,
    start_s: Annotated[float, typer.Option("--start-s", min=1, help="For a MODEL: time limit of loading it.")] = 900.0,
    certificate: CertificateFile = None,
    key: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Serve judges behind the OpenAI protocol until Ctrl-C: by vLLM where it is installed, else by transformers."""
    import asyncio

    from rlf.apps.judges.servers import Serve, judges_of, serve_judges
    from rlf.core.servers import certificate_of

    numbers = [number.strip() for number in gpus.split(",") if number.strip()]
    if not all(number.isdigit() for number in numbers):
        raise RlfError(f"--gpus: got {gpus!r}; expected numbers. Write e.g. `--gpus 0,1`.")
    declared = Serve(model=what, num=num, gpus=tuple(map(int, numbers)), args=tuple(args or ()), start_s=start_s)

    def tell(served: JudgeEndpoints) -> None:
        lines = [f"  - {{url: {server.url}, model: {server.model!r}}}" for server in served.endpoints]
        print_result("judge serve", served, as_json, "\n".join(["endpoints:", *lines]))
        sys.stdout.flush()

    asyncio.run(serve_judges(judges_of(what, declared), host, port, tell, certificate_of(certificate, key)))
    raise KeyboardInterrupt  # nothing else ends it


# `rlf rewards calibrate`: compares a judge with people's labels.

_MOST_SHOWN = 3


def calibrate_rewards(
    spec: Annotated[
        Path,
        typer.Argument(metavar="SPEC|FILE", help="Spec or reward file.", autocompletion=complete_reward_file),
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

    judge, seed = judge_in(spec, term)
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
