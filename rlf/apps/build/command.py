"""`rlf env build`: worlds made from a file; and what `rlf env show` shows of them, tasks as graphs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Group

from rlf.cli.arguments import AsJson
from rlf.cli.envelope import print_result
from rlf.cli.output import facts_table, plain_table
from rlf.core.errors import CheckError
from rlf.reports.sheets import decimal, visible

if TYPE_CHECKING:
    from rlf.apps.build.build import Built, ShownTask, ShownWorld

_MOST_REASONS = 8


def build_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Build file, e.g. specs/builds/towns.yaml.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE...]", help="Overrides such as `build.count=100`.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show counts and cost; build nothing.")] = False,
    form: Annotated[
        Literal["world", "ftrl"],
        typer.Option("--format", help="ftrl: also write FTRL's rows, in the world's folder `ftrl`."),
    ] = "world",
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start over instead of continuing an interrupted build.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Build a world: tasks with their tools, each proven before it is written; continues a build that was cut off."""
    from rlf.apps.build import build

    if dry_run:
        estimate = build.estimate_build(file, overrides or [])
        counts = estimate.counts.items()
        rows = [(name, decimal(value) if value % 1 else f"{value:.0f}") for name, value in counts]
        print_result("env build", estimate, as_json, facts_table([("out", str(estimate.out)), *rows]))
        return
    built = build.build_env(file, overrides or [], _print_progress, ftrl=form == "ftrl", fresh=fresh)
    lines = "\n".join([f"{built.out}: {built.num_tasks} tasks", *map(str, built.ftrl)])
    print_result("env build", built, as_json, lambda: Group(lines, *_show_certificate(built)))
    failed = [gate.name for gate in built.certificate.gates if not gate.holds]
    if failed:
        raise CheckError(
            f"{built.out}: the gates {', '.join(failed)} do not hold; `rlf env show {built.out}` shows them."
        )


def _print_progress(done: int, total: int, num_tasks: int, dropped: Mapping[str, int]) -> None:
    """One line on stderr, written over in a terminal."""
    stages: dict[str, int] = {}
    for reason, number in dropped.items():
        stage = reason.partition(":")[0]
        stages[stage] = stages.get(stage, 0) + number
    left_out = f"; dropped: {', '.join(f'{stage} {number}' for stage, number in stages.items())}" if stages else ""
    line = f"part {done} of {total}: {num_tasks} tasks{left_out}"
    _print_line(line, done, total)


def _print_line(line: str, done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="\n" if done == total else "", file=sys.stderr, flush=True)
    elif done == total or done % max(1, total // 10) == 0:
        print(line, file=sys.stderr, flush=True)


def prove_built_world(folder: Path, as_json: bool) -> None:
    """Proves each task of a built world again, as its files are; exit code 3 where one does not hold."""
    from rlf.apps.build.build import prove_folder

    proof = prove_folder(folder, lambda done, total: _print_line(f"task {done} of {total}", done, total))
    num_faulty = len({fault.id for fault in proof.faults})
    lines = [f"{folder}: {proof.num_tasks - num_faulty} of {proof.num_tasks} tasks hold"]
    lines += [f"{fault.id}: {fault.reason}. {fault.detail}" for fault in proof.faults]
    if proof.edited:
        written = "its certificate stays as it is" if proof.faults else "its certificate is written again"
        lines.append(f"edited since it was proven: {', '.join(proof.edited)}; {written}")
    print_result("env prove", proof, as_json, "\n".join(map(visible, lines)))
    if not proof.holds:
        failed = f"{num_faulty} tasks do not hold" if proof.faults else "gates do not hold"
        raise CheckError(f"{folder}: {failed}. Correct their files, or build the folder again.")


def show_built_world(files: list[Path], overrides: list[str], task: int | None, as_json: bool) -> None:
    """Shows a built world's certificate, or one of its tasks."""
    from rlf.apps.build import build

    shown = build.show_world(files[0], task)
    view = Group(*_show_certificate(shown)) if shown.task is None else "\n".join(_show_graph(shown.task))
    print_result("env show", shown, as_json, view)


def _show_certificate(world: Built | ShownWorld) -> Iterator[Any]:
    certificate = world.certificate
    policies = ("gold", "null", "random", "spam")
    figures = ["tasks", "calls", *policies, "guess"]
    rows = [
        (
            name,
            f"{means['tasks']:.0f}",
            decimal(means["calls"]),
            *(f"{means[f'{one}/f1']:.3f} ({means[f'{one}/p']:.2f}, {means[f'{one}/r']:.2f})" for one in policies),
            decimal(means["no_tool"]),
        )
        for name, means in certificate.figures.items()
    ]
    yield "Solve-F1 (P, R) of policies, by scenario; the chance of the best constant guess:"
    yield plain_table(["scenario", *figures], rows, figures=figures)
    gates = [
        (gate.name, decimal(gate.measured), decimal(gate.bound), "ok" if gate.holds else "BROKEN")
        for gate in certificate.gates
    ]
    yield plain_table(("gate", "measured", "bound", ""), gates, figures=("measured", "bound"))
    dropped = list(certificate.dropped.items())
    for reason, number in dropped[:_MOST_REASONS]:
        yield f"dropped {number}: {reason}"
    if len(dropped) > _MOST_REASONS:
        yield f"dropped {sum(number for _, number in dropped[_MOST_REASONS:])} for other reasons"
    if meaning := certificate.meaning:
        yield (
            f"a second model refused {meaning.get('refused', 0):g} of {meaning['judged']:g} tasks for what they mean, "
            f"and caught {meaning.get('caught', 0):g} of {meaning.get('planted', 0):g} with a planted fault"
        )
    elif certificate.spent:
        yield "no second model has judged what the tasks mean (`build.reviewers`)"
    if certificate.proven_again:
        yield f"proven again after an edit of {', '.join(certificate.proven_again)}; the figures are the build's"
    for name, value in certificate.spent.items():
        yield f"spent {value:g} {name}"


def _show_graph(task: ShownTask) -> Iterator[str]:
    """The calls, each below those that it needs."""
    yield f"task {task.number}: {task.id}, {task.scenario}"
    yield task.question
    yield ""
    depths: list[int] = []
    for number, step in enumerate(task.steps):
        depths.append(max((depths[need] + 1 for need in step.needs), default=0))
        indent = "   " * depths[-1] + ("└─ " if depths[-1] else "")
        yield f"{indent}[{number}] {step.question}"
        yield f"{'   ' * (depths[-1] + 1)}{step.tool}({json.dumps(step.arguments, ensure_ascii=False)}) -> {step.gold}"
    yield ""
    yield f"answer ({task.join}): {task.answer}"
    yield ""
    needed = {step.tool for step in task.steps}
    for name, description in task.tools.items():
        yield f"{'*' if name in needed else ' '} {name}: {description}"
