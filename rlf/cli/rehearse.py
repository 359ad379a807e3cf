"""`rlf rehearse`: the job that would go to the GPUs, run for real on this CPU."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunsFolder, split_arguments
from rlf.cli.completion import complete_spec
from rlf.cli.envelope import print_envelope, print_event
from rlf.cli.run import watch
from rlf.cli.view import RunView
from rlf.core.errors import RlfError

if TYPE_CHECKING:
    from rlf.api.running.start import RunOutcome
    from rlf.api.specs.rehearsals import Rehearsal, Stage


def rehearse(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SPEC|KEY=VALUE]...", show_default=False, autocompletion=complete_spec),
    ] = None,
    vllm: Annotated[bool, typer.Option("--vllm", help="Sample with vLLM itself, on the CPU.")] = False,
    setup: Annotated[bool, typer.Option("--setup", help="Make the environment first: once, some minutes.")] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Train the spec's own model, all its steps, and keep the run.")
    ] = False,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Run a spec's job on this CPU: its trainer, Ray, DeepSpeed, your tools and rewards, a tiny model.

    Reports each stage that works, what was replaced, and what a CPU cannot show.
    """
    from rlf.api.specs import rehearsals

    if setup:
        place = rehearsals.setup(vllm=vllm, tell=lambda words: print(words, file=sys.stderr))
        print(f"ready: {place.folder}; to run a spec of engine `{place.engine}` in it:", file=sys.stderr)
        print(f"{place.command} run SPEC engine.kind={place.engine}", file=sys.stderr if arguments else sys.stdout)
    if not arguments:
        if not setup:
            raise RlfError("rehearse: expected a spec file, or --setup. Write e.g. `rlf rehearse SPEC`.")
        return
    files, overrides = split_arguments(arguments)

    def work(view: RunView) -> RunOutcome:
        command = ["rlf", *sys.argv[1:]]
        return rehearsals.run_in_full(
            files, overrides, vllm=vllm, runs_folder=runs_folder, view=view.open, command=command
        )

    if full:
        watch("rehearse", work, runs_folder, as_json=as_json)
    done = rehearsals.rehearse(files, overrides, vllm=vllm, tell=_tell_json if as_json else _tell)
    if as_json:
        print_envelope("rehearse", done)
    else:
        _print_end(done)


def _tell(stage: Stage) -> None:
    print(f"{stage.seconds:6.1f} s  {stage.name}: {stage.words}", flush=True)


def _tell_json(stage: Stage) -> None:
    print_event("rehearse", "stage", stage)


def _print_end(done: Rehearsal) -> None:
    print("replaced for it:")
    for change in done.changes:
        print(f"  {change.override}  ({change.reason})")
    print("not covered:")
    for words in done.not_covered:
        print(f"  {words}")
    print(f"rehearsed in {sum(stage.seconds for stage in done.stages):.0f} s")
