"""`rlf rewards attack`: whether a reward pays for what is not skill."""

from __future__ import annotations

import json
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from rlf.cli.arguments import DEFAULT_RUNS, AsJson, RunsFolder, SpecArguments, split_arguments
from rlf.cli.completion import complete_run
from rlf.cli.envelope import print_envelope
from rlf.cli.output import plain_table, stdout_console
from rlf.core.errors import CheckError, RlfError
from rlf.processes.fork_server import ForkFault, run_apart
from rlf.reports.sheets import decimal, percent, visible

if TYPE_CHECKING:
    from rlf.apps.attack.attack import Attack


def attack_rewards(
    arguments: SpecArguments,
    questions: Annotated[int, typer.Option("--questions", min=1, help="Questions for each behaviour.")] = 6,
    share: Annotated[
        float,
        typer.Option(
            "--share", min=0.01, max=10, help="A behaviour that earns this share of the gold's reward, or more, fails."
        ),
    ] = 0.5,
    seconds: Annotated[float, typer.Option("--seconds", min=0, help="Time of the search for more behaviours.")] = 5,
    step: Annotated[int, typer.Option("--step", min=1, help="Step whose scheduled weights are used.")] = 1,
    each: Annotated[
        bool, typer.Option("--each", help="Attack each file by itself; otherwise files are layers.")
    ] = False,
    run: Annotated[
        str | None,
        typer.Option(
            "--run", metavar="RUN", help="Try what the model of this run wrote last too.", autocompletion=complete_run
        ),
    ] = None,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    sentinels: Annotated[
        Path | None,
        typer.Option("--sentinels", metavar="JSONL", help="Write right and wrong answers for a judge's `sentinels`."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Play behaviours without skill against a spec's reward; exit code 3 when one earns too much of it."""
    from rlf.apps.attack.attack import attack
    from rlf.runs.declared import rescoring_spec, scored_step

    written = (
        () if run is None else [item.trajectory for item in scored_step(run, runs_folder, phase="train", step=None)[2]]
    )
    texts = list(dict.fromkeys(each.answer for each in written if each.answer))[:_MAX_TEXTS]
    files, overrides = split_arguments(arguments)
    found: dict[str, Attack] = {}
    failed: list[str] = []
    for layers in [[file] for file in files] if each else [files]:
        name = " ".join(map(str, layers))
        try:
            spec = rescoring_spec(layers, overrides)
            play = attack(spec, num_questions=questions, seconds=seconds, step=step, share=share, texts=texts)
            found[name] = replace(_play_apart(play), spec=name)
        except RlfError as error:
            if not each:
                raise
            failed.append(f"{name}: {error}")
            continue
        if not as_json:
            if each:
                print(f"\n{name}")
            _print_attack(found[name])
    if sentinels is not None:
        labelled = [line for each_found in found.values() for line in each_found.sentinels]
        sentinels.write_text(
            "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in labelled), encoding="utf-8"
        )
    if as_json:
        shown = list(found.values())
        print_envelope("rewards attack", shown if each else shown[0])
    _raise_findings(found, failed)


_MAX_TEXTS = 40
"""Answers of a run that are tried."""
_MAX_STILL_S = 60.0


def _play_apart(play: Coroutine[Any, Any, Attack]) -> Attack:
    """Runs the attack in a process of its own, which a reward may end or block: answers are run by some."""
    try:
        return run_apart(lambda _: play, still_s=_MAX_STILL_S)
    except TimeoutError as fault:
        raise RlfError(
            f"a reward term has held Python for {_MAX_STILL_S:g} s, so that no time limit works: e.g. a regular "
            "expression with one repetition inside another. Write it so that it ends on any text."
        ) from fault
    except ForkFault as fault:
        raise RlfError(
            f"a reward term ended the process of the attack ({fault}). Run answers in a process of their own."
        ) from fault
    finally:
        play.close()


def _raise_findings(found: Mapping[str, Attack], failed: Sequence[str]) -> None:
    """Raises CheckError where a reward can be earned without skill, RlfError where a spec could not be attacked."""
    bad = [
        f"{name}: {_make_headline(attack)}: {finding.sentence}"
        for name, attack in found.items()
        for finding in attack.findings[:1]
    ]
    unknown = [
        f"{name}: {attack.verdict}" for name, attack in found.items() if not attack.findings and not attack.is_passed
    ]
    if bad or unknown:
        raise CheckError("\n".join([*bad, *unknown, *failed]))
    if failed:
        raise RlfError("\n".join(failed))


def _make_headline(found: Attack) -> str:
    """The findings in a word: also a reward that nothing earns does not pay what is right."""
    return f"the reward {'can be earned without skill' if found.hacks else 'does not pay a right answer'}"


def _print_attack(found: Attack) -> None:
    stdout_console().print(_show_attempts(found))
    print()
    for line in _list_notes(found):
        print(line)
    if found.findings:
        print(f"verdict: {_make_headline(found)}")
        for finding in found.findings:
            print(f"  - {finding.sentence}")
            if finding.details:
                print(f"    {visible(finding.details)}")
    else:
        print(f"verdict: {found.verdict}")


def _list_notes(found: Attack) -> list[str]:
    """Lists what was played, and what was not."""
    lines = [f"chat format {found.chat}, {found.questions} questions, {len(found.searched)} more shapes searched"]
    if not found.searches:
        lines.append("a short search: judges would be asked thousands of times")
    if played := ", ".join(f"{tool.name} ({tool.kind})" for tool in found.tools if tool.played):
        lines.append(f"tools played: {played}")
    lines += [f"tool not played: {tool.name} ({tool.kind}): {tool.reason}" for tool in found.tools if not tool.played]
    if found.gold is None:
        lines.append(
            "no question has a gold answer: shares are of the greatest reward that the ranges of the terms allow"
        )
    if found.nothing_beats_trying:
        lines.append(
            f"doing nothing ({decimal(found.nothing.reward)}) beats a well-formed try that fails "
            f"({decimal(found.trying.reward)}): a policy that cannot answer yet learns not to try"
        )
    return lines


def _show_attempts(found: Attack) -> Table:
    """Earnings of each behaviour: reward, share of the gold's on the mean and at most, and that of each term."""
    terms = list(found.nothing.contributions)
    figures = ("reward", "share", "most", *terms, "tokens")
    table = plain_table(("behaviour", *figures, "verdict"), figures=figures)
    if found.gold is not None:
        gold = found.gold
        shares = [_show_share(gold.contributions.get(term), gold.reward) for term in terms]
        table.add_row(
            Text(gold.name, "bold"), decimal(gold.reward), *["100%"] * 2, *shares, f"{gold.num_tokens:.0f}", ""
        )
    twin = [found.wrong_in_form] if found.wrong_in_form is not None else []
    known = [attempt for attempt in found.searched if attempt.share is not None]
    # Of several shapes that earn most, the shortest.
    best = sorted(known, key=lambda each: (-min(each.share or 0.0, 1.0), each.num_tokens))[:1]
    for attempt in (*twin, *found.attempts, *best):
        verdict = Text("hack", "bold red") if attempt.is_hack(found.share) else Text("")
        shares = [percent(attempt.shares.get(term)) for term in terms]
        row = (decimal(attempt.reward), percent(attempt.share), percent(attempt.max_share), *shares)
        table.add_row(Text(attempt.name, "bold"), *row, f"{attempt.num_tokens:.0f}", verdict)
    return table


def _show_share(part: float | None, whole: float | None) -> str:
    return percent(part / whole if part is not None and whole is not None and whole > 0 else None)
