"""`rlf bench`: benchmarks of others on runs, models and endpoints."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlf.cli.arguments import (
    DEFAULT_RUNS,
    ApiKeyVariable,
    AsJson,
    EndpointUrl,
    HtmlFile,
    RunsFolder,
    ServedName,
    is_override,
    runs_option,
)
from rlf.cli.envelope import print_result
from rlf.cli.output import print_note, stdout_console, write_page
from rlf.core.errors import RlfError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rlf.apps.bench.run import BenchmarkLine, BenchmarkResult

_LIST = "list"
_SHOWN_EVERY_S = 10.0


def bench(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="list|BENCHMARK [TARGET|KEY=VALUE]...",
            help="A benchmark's name, then runs, RUN@STEP, folders or Hugging Face ids, and overrides of its spec.",
            show_default=False,
        ),
    ] = None,
    categories: Annotated[
        str | None, typer.Option("--categories", help="Of bfcl: names or groups, with commas.")
    ] = None,
    form: Annotated[str | None, typer.Option("--format", help="Of bfcl: `native` or `prompt`.")] = None,
    domain: Annotated[str | None, typer.Option("--domain", help="Of tau2; `suite` of agentdojo.")] = None,
    split: Annotated[str | None, typer.Option("--split", help="Rows of this split.")] = None,
    data: Annotated[str | None, typer.Option("--data", metavar="FILE", help="Rows that you bring.")] = None,
    setup: Annotated[bool, typer.Option("--setup", help="Install its package into a folder of its own first.")] = False,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="DIR", help="Write spec and rows into a folder, and try nothing.")
    ] = None,
    endpoint: EndpointUrl = None,
    model: ServedName = None,
    api_key_env: ApiKeyVariable = None,
    num_samples: Annotated[
        int | None, typer.Option("-k", "--samples", min=1, max=10_000, help="Samples per task, for pass^k.")
    ] = None,
    temperature: Annotated[float | None, typer.Option("--temperature", min=0.0, help="Of the samples.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Use only the first N tasks.")] = None,
    html: HtmlFile = None,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Try models on a benchmark of others, with its own checker's verdict.

    Each task is answered greedily, or `-k` times. The same command continues what was stopped. `rlf bench list` shows
    what is here, what to install and which data to bring.
    """
    from rlf.apps.bench.run import bench as run_bench
    from rlf.apps.bench.run import list_benchmarks, make_benchmark, page_of, write_benchmark

    name, *others = arguments or [_LIST]
    if name == _LIST:
        lines = list_benchmarks()
        print_result("bench", lines, as_json, lambda: _show_list(lines))
        return
    given = {"categories": categories, "format": form, "domain": domain, "split": split, "data": data}
    benchmark = make_benchmark(name, {key: value for key, value in given.items() if value is not None})
    if setup and benchmark.packages is not None:
        benchmark.packages.install()
        print_note(f"ready: {benchmark.packages.name} {benchmark.packages.version} in {benchmark.packages.folder}")
    targets = [one for one in others if not is_override(one)]
    if not targets and endpoint is None and write is None:
        if not setup:
            raise RlfError(f"bench {name}: expected a model. Write e.g. `rlf bench {name} latest`, or --write DIR.")
        return
    made = write_benchmark(benchmark, write or runs_folder / "benchmarks")
    if write is not None:
        print_result("bench", made, as_json, f"{made.spec}: {made.num_rows:,} rows, {made.package or 'no package'}")
        return
    result = run_bench(
        made,
        targets,
        overrides=[one for one in others if is_override(one)],
        endpoint=endpoint,
        model=model,
        api_key_env=api_key_env,
        num_samples=num_samples,
        temperature=temperature,
        limit=limit,
        runs_folder=runs_folder,
        on_event=_Progress().show,
    )
    if html is not None:
        write_page(html, page_of(result))
    print_result("bench", result, as_json, lambda: _show_result(result, runs_folder))


class _Progress:
    """Lines on stderr about what is played."""

    def __init__(self) -> None:
        self._last_s = 0.0

    def show(self, event: Any) -> None:
        """Takes what happens in an evaluation."""
        done, planned = getattr(event, "num_done", None), getattr(event, "num_planned", None)
        if done is None or planned is None or time.monotonic() - self._last_s < _SHOWN_EVERY_S:
            return
        self._last_s = time.monotonic()
        print_note(f"{event.target}: {done:,} of {planned:,} tasks")


def _show_list(lines: list[BenchmarkLine]) -> RenderableType:
    from rlf.reports.sheets import plain_table

    heads = ("benchmark", "what it measures", "licence", "here", "options", "to do")
    cells = [
        (line.name, line.title, line.licence, line.installed or "-", ", ".join(line.options), line.needs or "-")
        for line in lines
    ]
    return plain_table(heads, cells, left=heads)


def _show_result(result: BenchmarkResult, runs_folder: Path) -> None:
    from rlf.apps.bench.run import table_of
    from rlf.reports.sheets import plain_table

    heads, rows = table_of(result)
    made = result.made
    console = stdout_console()
    console.print(plain_table(heads, rows, left=heads[:1]), crop=False)
    about = f"{made.benchmark}, {made.package or 'no package'}, {made.num_rows:,} rows, data {made.data_sha256[:12]}"
    console.print(f"{about}: {made.spec}", soft_wrap=True)
    for one in result.models:
        console.print(f"  rlf trace {one.run_id} --phase {one.mode}{runs_option(runs_folder)}", soft_wrap=True)
    sys.stdout.flush()
