"""`rlf bench`: benchmarks of others on runs, models and endpoints."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlf.cli import arguments as words
from rlf.cli.envelope import print_result
from rlf.cli.output import print_note, stdout_console, write_page
from rlf.core.errors import RlfError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rlf.apps.bench.run import BenchmarkFolder, BenchmarkLine, TrialOptions

_LIST, _ROBUST = "list", "robust"
_SHOWN_EVERY_S = 10.0


def bench_command(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="list|robust|BENCHMARK [TARGET|SPEC|KEY=VALUE]...",
            help="A benchmark's name, then runs, RUN@STEP, folders or Hugging Face ids, and overrides of its spec; "
            "`robust` takes also a spec to use instead of their run's own.",
            show_default=False,
        ),
    ] = None,
    categories: Annotated[
        str | None, typer.Option("--categories", help="Of bfcl: names or groups, with commas; classes of robust.")
    ] = None,
    form: Annotated[str | None, typer.Option("--format", help="Of bfcl: `native` or `prompt`.")] = None,
    domain: Annotated[str | None, typer.Option("--domain", help="Of tau2; `suite` of agentdojo.")] = None,
    split: Annotated[str | None, typer.Option("--split", help="Rows of this split.")] = None,
    data: Annotated[str | None, typer.Option("--data", metavar="FILE", help="Rows that you bring.")] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="Any option that `list` shows.")
    ] = None,
    setup: Annotated[bool, typer.Option("--setup", help="Install its package into a folder of its own first.")] = False,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="DIR", help="Write spec and rows into a folder, and try nothing.")
    ] = None,
    endpoint: words.EndpointUrl = None,
    model: words.ServedName = None,
    api_key_env: words.ApiKeyVariable = None,
    timeout: words.RequestTime = 120.0,
    num_samples: Annotated[
        int | None, typer.Option("-k", "--samples", min=1, max=10_000, help="Samples per task, for pass^k.")
    ] = None,
    temperature: Annotated[float | None, typer.Option("--temperature", min=0.0, help="Of the samples.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Use only the first N tasks.")] = None,
    html: words.HtmlFile = None,
    runs_folder: words.RunsFolder = words.DEFAULT_RUNS,
    as_json: words.AsJson = False,
) -> None:
    """Try models on a benchmark of others, with its own checker's verdict.

    Each task is answered greedily, or `-k` times. The same command continues what was stopped. `rlf bench list` shows
    what is here, what to install and which data to bring; `rlf bench robust` tries a run's own tasks under disturbed
    tools.
    """
    from rlf.apps.bench.run import TrialOptions, known_benchmarks, make_benchmark, write_benchmark

    name, *others = arguments or [_LIST]
    if name == _LIST:
        lines = known_benchmarks()
        print_result("bench", lines, as_json, lambda: _show_list(lines))
        return
    given = {"categories": categories, "format": form, "domain": domain, "split": split, "data": data}
    options: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    options |= dict(_split_option(one) for one in option or ())
    overrides = [one for one in others if words.is_override(one)]
    targets = [one for one in others if one not in overrides]
    served = (endpoint, model, api_key_env)
    asked = TrialOptions(runs_folder, _Progress().show, *served, num_samples, temperature, limit, timeout)
    if name == _ROBUST:
        if wrong := [*(set(options) - {"categories"}), *["setup"] * setup, *["write"] * (write is not None)]:
            raise RlfError(f"--{wrong[0]}: robust has no such option (it has: categories). Remove it.")
        _try_robust(targets, overrides, categories, asked, html, as_json)
        return
    benchmark = make_benchmark(name, options)
    if setup and benchmark.packages is not None:
        benchmark.packages.install()
        print_note(f"ready: {benchmark.packages.name} {benchmark.packages.version} in {benchmark.packages.folder}")
    if not targets and endpoint is None and write is None:
        if not setup:
            raise RlfError(f"bench {name}: expected a model. Write e.g. `rlf bench {name} latest`, or --write DIR.")
        return
    made = write_benchmark(benchmark, write or runs_folder / "benchmarks")
    if write is not None:
        print_result("bench", made, as_json, f"{made.spec}: {made.num_rows:,} rows, {made.package or 'no package'}")
        return
    _try_benchmark(made, targets, overrides, asked, html, as_json)


def _split_option(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found:
        raise RlfError(f"--option: got {text!r}; expected NAME=VALUE, e.g. `--option scenario=free`.")
    return name, value


def _try_benchmark(
    made: BenchmarkFolder,
    targets: list[str],
    overrides: list[str],
    asked: TrialOptions,
    html: Path | None,
    as_json: bool,
) -> None:
    from rlf.apps.bench.run import about_of, bench, page_of, table_of

    result = bench(made, targets, asked, overrides)
    if html is not None:
        write_page(html, page_of(made.benchmark, about_of(made), *table_of(result)))
    runs = [(one.run_id, one.mode) for one in result.models]
    about = f"{about_of(made)}: {made.spec}"
    print_result("bench", result, as_json, lambda: _show_table(*table_of(result), about, runs, asked.runs_folder))


def _try_robust(
    targets: list[str], overrides: list[str], classes: str | None, asked: TrialOptions, html: Path | None, as_json: bool
) -> None:
    from rlf.apps.bench.robust import robust, robust_table
    from rlf.apps.bench.run import page_of

    files = [Path(one) for one in targets if one.endswith((".yaml", ".yml"))]
    models = [one for one in targets if Path(one) not in files]
    if not models and asked.endpoint is None:
        raise RlfError("bench robust: expected a model. Write e.g. `rlf bench robust latest`.")
    rows = robust(models, files, overrides, classes, asked)
    if html is not None:
        write_page(html, page_of("robust", "success by class of disturbance", *robust_table(rows)))
    runs = [(one.run_id, one.mode) for one in rows if one.run_id]
    print_result("bench", rows, as_json, lambda: _show_table(*robust_table(rows), "", runs, asked.runs_folder))


class _Progress:
    """Prints lines about what is played, on stderr."""

    def __init__(self) -> None:
        self._last_s = 0.0

    def show(self, event: Any) -> None:
        """Takes what happens in an evaluation: a warning is printed, such as that of a limit which ended it."""
        from rlf.types import Notice

        if isinstance(event, Notice) and event.level != "info":
            print_note(f"{event.level}: {event.text}")
            return
        done, planned = getattr(event, "num_done", None), getattr(event, "num_planned", None)
        if done is None or planned is None or time.monotonic() - self._last_s < _SHOWN_EVERY_S:
            return
        self._last_s = time.monotonic()
        print_note(f"{event.target}: {done:,} of {planned:,} tasks")


def _show_list(lines: list[BenchmarkLine]) -> RenderableType:
    from rlf.reports.sheets import text_table

    heads = ("benchmark", "what it measures", "licence", "here", "options", "to do")
    cells = [
        (line.name, line.title, line.licence, line.installed or "-", ", ".join(line.options), line.needs or "-")
        for line in lines
    ]
    return text_table(heads, cells, left=heads)


def _show_table(
    heads: list[str], rows: list[list[str]], about: str, runs: list[tuple[str, str]], runs_folder: Path
) -> None:
    from rlf.reports.sheets import text_table

    console = stdout_console()
    console.print(text_table(heads, rows, left=heads[:1]), crop=False)
    if about:
        console.print(about, soft_wrap=True)
    for run_id, mode in runs:
        console.print(f"  rlf trace {run_id} --phase {mode}{words.runs_option(runs_folder)}", soft_wrap=True)
    sys.stdout.flush()
