"""`rlf env list`, `prove`, `attack` and `play`: worlds of specs, tried without a model."""

from __future__ import annotations

import json
import re
import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunsFolder, SpecArguments, split_arguments
from rlf.cli.envelope import print_result
from rlf.cli.output import facts_table, plain_table, stdout_console
from rlf.core import nearest
from rlf.core.errors import CheckError
from rlf.core.text import clean_value
from rlf.reports.sheets import visible

if TYPE_CHECKING:
    from rlf.apps.worlds.trial import Page, PointVerdict
    from rlf.apps.worlds.worlds import DescribedWorld
    from rlf.core.readings import Readings
    from rlf.environments.playing import Action, Happened, Scene

NumTasks = Annotated[int, typer.Option("--tasks", min=1, help="Tasks of the training data to try.")]
Tolerance = Annotated[
    float,
    typer.Option(
        "--tolerance", min=0, max=1, help="Share of the reward that a policy without skill may earn by chance."
    ),
]
LIMIT_S = 600.0
"""How long a proof or an attack may take."""
_STYLES = {"ok": "green", "failed": "bold red", "unknown": "yellow"}


def list_worlds_command(as_json: AsJson = False) -> None:
    """List the kinds of worlds, and the specs in the folder `specs` that have one."""
    from rlf.apps.worlds import worlds

    found = worlds.list_worlds()
    rows = [(one.kind, visible(one.summary), ", ".join(map(str, one.files))) for one in found]
    print_result("env list", found, as_json, lambda: plain_table(("kind", "what it is", "specs"), rows))


def show_spec_world(files: list[Path], overrides: list[str], task: int | None, as_json: bool) -> None:
    """Shows the world of a spec as the model meets it."""
    from rlf.apps.worlds import worlds

    shown = worlds.describe_world(files, overrides)
    print_result("env show", shown, as_json, lambda: _show_description(shown))


def _show_description(shown: DescribedWorld) -> Any:
    scores = "only playing shows them" if shown.scores is None else ", ".join(shown.scores)
    limits = ", ".join(f"{name} {value:g}" for name, value in shown.limits.items())
    facts = [("kind", shown.kind), ("speaks", "yes" if shown.speaks else "no"), ("scores", scores)]
    facts += [("tasks", str(shown.num_tasks)), ("limits", limits), ("source", shown.source[:16])]
    tools = [(tool.name, visible(tool.description)) for tool in shown.tools]
    return Group(facts_table(facts), plain_table(("tool", "description"), tools), Text(visible(shown.prompt)))


def prove_spec_world(
    files: list[Path], overrides: list[str], num_tasks: int, tolerance: float, limit_s: float, as_json: bool
) -> None:
    """Proves the world of a spec; exit code 3 where a point fails."""
    page = _examine_world(files, overrides, num_tasks, tolerance, limit_s, as_json, attack=False)
    print_result("env prove", page, as_json, lambda: _summarize_page(page))
    _refuse_unsound(page)


def attack_world(
    arguments: SpecArguments,
    num_tasks: NumTasks = 8,
    tolerance: Tolerance = 0.2,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Play policies that solve nothing in a world, and look for leaks; exit code 3 when one earns or leaks.

    The page of verdicts is kept with the runs; runs of that world as it is then are recorded with its hash.
    """
    from rlf.apps.worlds import worlds
    from rlf.runs.worlds import world_spec

    files, overrides = split_arguments(arguments)
    page = _examine_world(files, overrides, num_tasks, tolerance, LIMIT_S, as_json, attack=True)
    kept = worlds.keep_page(world_spec(files, overrides), page, runs_folder)
    print_result(
        "env attack", page, as_json, lambda: f"{_summarize_page(page)}\npage {page.sha256[:16]}, kept as {kept}"
    )
    _refuse_unsound(page)


def _examine_world(
    files: list[Path],
    overrides: list[str],
    num_tasks: int,
    tolerance: float,
    limit_s: float,
    as_json: bool,
    *,
    attack: bool,
) -> Page:
    from rlf.apps.worlds import worlds
    from rlf.runs.worlds import world_spec

    spec = world_spec(files, overrides)
    console = stdout_console()

    def show(verdict: PointVerdict) -> None:
        sign = Text.assemble((f"{verdict.sign:<9}", _STYLES[verdict.sign]), (f"{verdict.name:<16}", "bold"))
        console.print(sign + Text(visible(verdict.words)), soft_wrap=True)

    return worlds.examine_apart(
        spec, num_tasks, attack=attack, tolerance=tolerance, limit_s=limit_s, seen=bool if as_json else show
    )


def _summarize_page(page: Page) -> str:
    held = sum(verdict.sign == "ok" for verdict in page.verdicts)
    return f"{held} of {len(page.verdicts)} points hold, {len(page.failed)} failed; {page.num_episodes} episodes"


def _refuse_unsound(page: Page) -> None:
    if not page.is_sound:
        names = ", ".join(verdict.name for verdict in page.failed)
        raise CheckError(f"the world is not ready for training; these checks failed: {names}.")


_HOW_TO_PLAY = "TOOL name=value or TOOL {JSON} calls, other lines are answers, an empty line ends, /undo takes back"


def play_world_command(
    arguments: SpecArguments,
    task: Annotated[int, typer.Option("--task", metavar="N", min=0, help="Which task of the training data.")] = 0,
    show_prompt: Annotated[bool, typer.Option("--prompt", help="Show the prompt as the model reads it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Play a world in the terminal: you are the policy.

    A line `TOOL {JSON}` or `TOOL name=value ...` is a call, any other one is what you say; an empty line or the end of
    the input ends the episode; `/undo` takes the last action back, `/help` repeats this.
    """
    import asyncio

    from rlf.apps.worlds import worlds
    from rlf.runs.worlds import world_spec

    spec = world_spec(*split_arguments(arguments))
    chosen = worlds.pick_task(spec, task)
    console = sys.stderr if as_json else sys.stdout

    def tell(text: str) -> None:
        print(visible(text), file=console, flush=True)

    num_shown = 0

    async def act(scene: Scene) -> Action | None:
        nonlocal num_shown
        if not scene.past:
            for line in _opening_lines(
                scene, worlds.render_world_prompt(spec, chosen, scene.observation) if show_prompt else None
            ):
                tell(line)
        for line in (line for step in scene.past[num_shown:] for line in _show_happened(step)):
            tell(line)
        num_shown = len(scene.past)
        while True:
            print("> ", end="", file=console, flush=True)
            line = (await asyncio.to_thread(sys.stdin.readline)).rstrip("\n")
            if line == "/undo" and scene.past:
                num_shown -= 1
                tell("  taken back")
                raise worlds.Undone
            if line.startswith("/"):
                tell(f"  {'there is nothing to take back' if line == '/undo' else _HOW_TO_PLAY}")
                continue
            try:
                return _read_action(line, scene) if line else None
            except ValueError as fault:
                tell(f"  {fault}")

    with redirect_stdout(sys.stderr):  # where the world prints
        played = asyncio.run(worlds.play_episode(spec, chosen, act))
    for line in (line for step in played.steps[num_shown:] for line in _show_happened(step)):
        tell(line)
    scores = ", ".join(f"{name} {value:g}" for name, value in played.scores)
    print_result("env play", played, as_json, f"{len(played.steps)} actions; scores: {scores or 'none'}")
    if played.failure is not None:
        raise CheckError(played.failure)


def _opening_lines(scene: Scene, prompt: str | None) -> list[str]:
    if prompt is not None:
        return [prompt, _HOW_TO_PLAY]
    lines = [message.content for message in scene.task.messages] + ([scene.observation] if scene.observation else [])
    for tool in scene.tools:
        names = ", ".join(tool.input_schema.get("properties") or ())
        lines.append(f"  {tool.name}({names}): {tool.description}")
    return [*lines, _HOW_TO_PLAY]


def _show_happened(step: Happened) -> list[str]:
    lines = [step.said] if step.said else []
    lines += [f"  {change.difference}" for change in step.changes if change.difference]
    return lines + ([] if step.reward is None else [f"  reward {step.reward:g}"])


def _read_action(line: str, scene: Scene) -> Action:
    """A call where the line begins with a tool's name, else words. Raises ValueError for a call that cannot be read."""
    from rlf.core.readings import Readings
    from rlf.types import ToolCall

    name, _, rest = line.partition(" ")
    tool = next((tool for tool in scene.tools if tool.name == name), None)
    if tool is None and re.match(r"\s*(\{|\w+=)", rest):
        known = [tool.name for tool in scene.tools]
        raise ValueError(f"there is no tool {name!r}{nearest(name, known)} (known: {', '.join(known) or 'none'})")
    if tool is None:
        return line
    if rest.lstrip().startswith("{"):
        return ToolCall(name, clean_value(json.loads(rest)))
    pairs = [word.partition("=") for word in shlex.split(rest)]
    if any(not sign for _, sign, _ in pairs):
        raise ValueError(f"write {name} {{JSON}}, or {name} name=value ...")
    readings = Readings(tool.input_schema)
    return ToolCall(name, {key: _read_argument(readings, key, text) for key, _, text in pairs})


def _read_argument(readings: Readings, name: str, text: str) -> Any:
    try:
        return readings.read_text(name, text)
    except ValueError:  # the tool's own check says what it takes
        return text
