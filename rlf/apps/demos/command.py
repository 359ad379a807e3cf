"""`rlf demos`: writes demonstrations for `data.demonstrations`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlf.apps.demos.trainers import TrainerForm
from rlf.cli.arguments import (
    DEFAULT_RUNS,
    ApiKeyVariable,
    AsJson,
    EndpointUrl,
    RequestTime,
    RunsFolder,
    ServedName,
    SpecArguments,
    split_arguments,
)
from rlf.cli.envelope import print_result
from rlf.core.errors import RlfError

if TYPE_CHECKING:
    from rlf.apps.demos.demos import DemosReport


def demos(
    arguments: SpecArguments,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The file to write, .jsonl by default.")],
    gold: Annotated[bool, typer.Option("--gold", help="Solutions that the tasks' rows or worlds know.")] = False,
    run: Annotated[list[str] | None, typer.Option("--run", metavar="RUN", help="Trajectories of a run.")] = None,
    teacher: Annotated[
        str | None, typer.Option("--teacher", metavar="TARGET", help="A model of this machine that plays the tasks.")
    ] = None,
    endpoint: EndpointUrl = None,
    model: ServedName = None,
    api_key_env: ApiKeyVariable = None,
    timeout: RequestTime = 120.0,
    samples: Annotated[int, typer.Option("-k", "--samples", min=1, help="Of the teacher: tries at each task.")] = 1,
    max_usd: Annotated[float | None, typer.Option("--max-usd", help="Of the teacher: what its play may cost.")] = None,
    file: Annotated[
        list[Path] | None, typer.Option("--file", metavar="FILE", help="Conversations of any form, with calls.")
    ] = None,
    where: Annotated[
        str, typer.Option("--where", metavar="CONDITION", help="Which are kept, e.g. 'success == 1 and turns < 4'.")
    ] = "success >= 1",
    best: Annotated[int | None, typer.Option("--best", min=1, help="Of one question, the best so many.")] = None,
    balance: Annotated[bool, typer.Option("--balance", help="As many of each kind as of the rarest.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="At most so many.")] = None,
    closing: Annotated[
        str, typer.Option("--closing", metavar="TEXT", help="The answer after a solution that ends with a call.")
    ] = "Done.",
    trainer: Annotated[
        TrainerForm | None, typer.Option("--for", help="Another trainer that is to read the file, token for token.")
    ] = None,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Write conversations that solve a spec's tasks, for `data.demonstrations`: steps that imitate them.

    They are scored by the spec's own rewards, but for files; questions of its evaluation set are left out, and so is
    what its chat format cannot write. What is left out is counted by why.
    """
    from rlf.apps.demos.demos import DemosOptions, Teacher, write_demos
    from rlf.runs.targets import endpoint_of

    files, overrides = split_arguments(arguments)
    served = endpoint_of(endpoint, model, api_key_env, timeout)
    plays = Teacher(teacher, served, samples, max_usd) if teacher is not None or served is not None else None
    if not gold and not run and not file and plays is None:
        raise RlfError("rlf demos: nothing to write. Add --gold, --run, --teacher, --endpoint or --file.")
    asked = DemosOptions(gold, (*(run or ()),), (*(file or ()),), plays, where, best, balance, limit, closing, trainer)
    done = write_demos(files, overrides, asked, out, runs_folder=runs_folder)
    print_result("demos", done, as_json, lambda: _describe(done))


def _describe(done: DemosReport) -> str:
    origins = ", ".join(f"{number} from {kind}" for kind, number in done.kept_by_origin.items())
    tokens = "" if done.num_tokens is None else f", {done.num_tokens:,} tokens"
    lines = [f"{done.path}: {done.num_kept} demonstrations ({origins}{tokens})"]
    if len(done.kept_by_kind) > 1:
        lines.append("  kinds: " + ", ".join(f"{kind} {number}" for kind, number in done.kept_by_kind.items()))
    lines += [f"  left out: {number:>6}  {why}" for why, number in done.left_out.items()]
    if done.settings is not None:
        lines.append(f"  read it with: {done.settings}")
    return "\n".join(lines)
