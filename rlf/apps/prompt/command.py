"""`rlf prompt`: searches system message and tool descriptions."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlf.cli.arguments import (
    DEFAULT_RUNS,
    ApiKeyVariable,
    AsJson,
    EndpointUrl,
    Force,
    RequestTime,
    RunsFolder,
    ServedName,
    SpecArguments,
    split_arguments,
)
from rlf.cli.envelope import print_result
from rlf.cli.output import stdout_console
from rlf.core.errors import RlfError
from rlf.reports.sheets import counted

if TYPE_CHECKING:
    from rlf.apps.prompt.search import PromptResult


def prompt(
    arguments: SpecArguments,
    endpoint: EndpointUrl = None,
    model: ServedName = None,
    api_key_env: ApiKeyVariable = None,
    timeout: RequestTime = 120.0,
    writer_endpoint: Annotated[
        str | None,
        typer.Option(
            "--writer-endpoint", metavar="URL", help="Server of the model that rewrites.", show_default="--endpoint"
        ),
    ] = None,
    writer_model: Annotated[
        str | None,
        typer.Option("--writer-model", metavar="NAME", help="The server's name of that model.", show_default="--model"),
    ] = None,
    writer_key_env: Annotated[
        str | None,
        typer.Option(
            "--writer-key-env",
            metavar="VARIABLE",
            help="Environment variable with its key.",
            show_default="--api-key-env",
        ),
    ] = None,
    rollouts: Annotated[int, typer.Option("--rollouts", min=2, help="Rollouts of all texts together.")] = 300,
    tasks: Annotated[
        int,
        typer.Option(
            "--tasks", min=2, help="Tasks of the training set: half are shown to the rewriting model, half choose."
        ),
    ] = 40,
    write: Annotated[Path, typer.Option("--write", metavar="FILE", help="The spec that is written.")] = Path(
        "prompt.yaml"
    ),
    force: Force = False,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Search system message and tool descriptions on the spec's own tasks and rewards; the best become a spec.

    Nothing is trained. The evaluation set is not touched. The same command continues what was stopped.
    """
    from rlf.apps.prompt.search import SearchOptions, search
    from rlf.runs.targets import WRITER, endpoint_of

    files, overrides = split_arguments(arguments)
    played = endpoint_of(endpoint, model, api_key_env, timeout)
    key_env = writer_key_env or api_key_env
    writer = endpoint_of(writer_endpoint or endpoint, writer_model or model, key_env, timeout, WRITER)
    if writer is None:
        raise RlfError("prompt: no model rewrites the texts. Write `--writer-endpoint URL --writer-model NAME`.")
    if write.exists() and not force:
        raise RlfError(f"--write: {write} exists. Name another file, or add --force.")
    found = search(
        files,
        overrides,
        SearchOptions(rollouts, tasks),
        endpoint=played,
        writer=writer,
        file=write,
        runs_folder=runs_folder,
        notify=lambda line: typer.echo(line, err=True),
    )
    print_result("prompt", found, as_json, lambda: _show_result(found, overrides))


def _show_result(found: PromptResult, overrides: Sequence[str]) -> None:
    console = stdout_console()
    for name, text in found.texts.items():
        console.print(f"{name}:\n{text}\n")
    console.print(
        f"mean reward on tasks that no rewriting saw: {found.before:.3f} before, {found.after:.3f} with the best of "
        f"{counted(found.num_texts, 'set')} of texts; {counted(found.num_rollouts, 'rollout')}, "
        f"{counted(found.num_rewrites, 'rewrite')}, {found.cost_usd:.2f} US$"
    )
    if found.file is None:
        console.print("The first texts are the best; nothing was written.")
        return
    console.print(f"wrote {found.file}")
    changes = " ".join(map(shlex.quote, overrides))
    console.print(f"  rlf eval MODEL {shlex.quote(str(found.file))} {changes}".rstrip() + "   on the evaluation set")
