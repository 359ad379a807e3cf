"""`rlf rehearse`: the job that would go to the GPUs, run for real on this CPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunsFolder, split_arguments
from rlf.cli.completion import complete_spec
from rlf.cli.envelope import print_event, print_result
from rlf.cli.run import watch
from rlf.core.errors import RlfError

if TYPE_CHECKING:
    from rlf.apps.rehearse.rehearsals import Rehearsal, RehearsalStage


def rehearse_command(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SPEC|KEY=VALUE]...", show_default=False, autocompletion=complete_spec),
    ] = None,
    vllm: Annotated[bool, typer.Option("--vllm", help="Sample with vLLM itself, on the CPU.")] = False,
    setup: Annotated[
        bool, typer.Option("--setup", help="Make the environment first; needed once, takes some minutes.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Train the spec's own model, all its steps, and keep the run.")
    ] = False,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Run a spec's job on this CPU: its trainer, Ray, DeepSpeed, your tools and rewards, a tiny model.

    Reports each stage that works, what was replaced, and what a CPU cannot show.
    """
    from rlf.apps.rehearse import rehearsals

    if setup:
        command = rehearsals.setup(vllm=vllm, tell=lambda words: print(words, file=sys.stderr))
        print(command, file=sys.stderr if arguments else sys.stdout)
    if not arguments:
        if not setup:
            raise RlfError("rehearse: expected a spec file, or --setup. Write e.g. `rlf rehearse SPEC`.")
        return
    files, overrides = split_arguments(arguments)

    if full:
        watch("rehearse", partial(rehearsals.run_in_full, files, overrides, vllm=vllm), runs_folder, as_json=as_json)

    def tell(stage: RehearsalStage) -> None:
        if as_json:
            print_event("rehearse", "stage", stage)
        else:
            print(f"{stage.seconds:6.1f} s  {stage.name}: {stage.words}", flush=True)

    done = rehearsals.rehearse(files, overrides, vllm=vllm, tell=tell)
    print_result("rehearse", done, as_json, "\n".join(_list_ending(done)))


def _list_ending(done: Rehearsal) -> Iterator[str]:
    yield "replaced for it:"
    yield from (f"  {change.override}  ({change.reason})" for change in done.changes)
    yield "not covered:"
    yield from (f"  {words}" for words in done.not_covered)
    yield f"rehearsed in {sum(stage.seconds for stage in done.stages):.0f} s"
