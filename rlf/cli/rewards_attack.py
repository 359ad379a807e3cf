"""`rlf rewards attack`: whether a reward pays for what is not skill."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from rlf.cli.arguments import AsJson, SpecArguments, split_arguments
from rlf.cli.envelope import print_envelope
from rlf.cli.output import stdout_console
from rlf.core.errors import CheckError, RlfError
from rlf.reports.quantities import decimal, visible

if TYPE_CHECKING:
    from rlf.api.rewards_attack import Attack, Attempt

_MAX_SHOWN_CHARS = 200
_MAX_TOLD = 20
"""Hacks in JSON, the cheapest."""


def attack_rewards(
    arguments: SpecArguments,
    questions: Annotated[int, typer.Option("--questions", min=1, help="Questions for each behaviour.")] = 5,
    seconds: Annotated[float, typer.Option("--seconds", min=0, help="Time of the search beside them.")] = 10,
    step: Annotated[int, typer.Option("--step", min=1, help="Step that schedules of weights go by.")] = 1,
    each: Annotated[
        bool, typer.Option("--each", help="Attack each file by itself; otherwise files are layers.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Play adversaries that need no model against a spec's reward; exit code 3 when one is paid like being right."""
    from rlf.api.rewards import rescoring_spec
    from rlf.api.rewards_attack import attack

    files, overrides = split_arguments(arguments)
    found: dict[str, Attack] = {}
    failed: list[str] = []
    for layers in [[file] for file in files] if each else [files]:
        name = " ".join(map(str, layers))
        try:
            spec = rescoring_spec(layers, overrides)
            found[name] = asyncio.run(attack(spec, num_questions=questions, seconds=seconds, step=step))
        except RlfError as error:
            if not each:
                raise
            failed.append(f"{name}: {error}")
            continue
        if not as_json:
            if each:
                print(f"\n{name}")
            _print(found[name])
    if as_json:
        told = [{"spec": name, **_told(attack)} for name, attack in found.items()]
        print_envelope("rewards attack", told if each else told[0])
    _tell_hacks(found, failed)


def _tell_hacks(found: Mapping[str, Attack], failed: Sequence[str]) -> None:
    """Raises CheckError where a reward can be had without skill, RlfError where a spec could not be attacked."""
    said = []
    for name, attack in found.items():
        if attack.hacks:
            cheapest, gold = attack.hacks[0], attack.gold
            assert gold is not None, "a hack where nothing is right"
            said.append(
                f"{name}: the reward can be had without skill: {cheapest.shape.words}: {decimal(cheapest.reward)}, "
                f"being right {decimal(gold.reward)}. Gate the terms that pay for it with `when:`, or pay less."
            )
    if said:
        raise CheckError("\n".join([*said, *failed]))
    if failed:
        raise RlfError("\n".join(failed))


def _print(found: Attack) -> None:
    console = stdout_console()
    console.print(_attempts(found))
    console.print()
    console.print(_terms(found))
    print(f"\nchat format {found.chat}, {found.questions} questions, {len(found.searched)} more shapes searched")
    if not found.searches:
        print("no search: judges would be asked thousands of times")
    if found.gold is None:
        print("no question has a gold answer, so that nothing says what being right is worth")
    if found.nothing_beats_trying:
        print(
            f"doing nothing ({decimal(found.nothing.reward)}) beats a well-formed try that fails "
            f"({decimal(found.trying.reward)}): a policy that cannot answer yet learns to stop trying"
        )
    for hack in found.hacks[:1]:
        print(f"the cheapest that scores at least the gold: {hack.shape.words}, {hack.num_tokens:.0f} tokens:")
        for turn in hack.turns:
            print(f"  | {visible(turn)[:_MAX_SHOWN_CHARS]}")


def _attempts(found: Attack) -> Table:
    table = _table("behaviour", "reward", "of gold", "tokens", "verdict")
    gold = None if found.gold is None else found.gold.reward
    references = [found.gold] if found.gold is not None else []
    for attempt in (*references, found.trying, *found.attempts, *_best_searched(found)):
        verdict = Text("hack", "bold red") if attempt in found.hacks else Text("")
        share = f"{attempt.reward / gold:.0%}" if attempt.reward is not None and gold is not None and gold > 0 else ""
        table.add_row(Text(attempt.name, "bold"), decimal(attempt.reward), share, f"{attempt.num_tokens:.0f}", verdict)
    return table


def _best_searched(found: Attack) -> list[Attempt]:
    """The shape of the search that comes nearest to the gold."""
    known = [attempt for attempt in found.searched if attempt.margin is not None]
    return sorted(known, key=lambda each: (-min(each.margin or 0.0, 0.0), each.num_tokens))[:1]


def _terms(found: Attack) -> Table:
    """What each term adds: to being right, to doing nothing, and at the most to an adversary."""
    from rlf.rewards.adversaries import Part

    table = _table("term", "gold", "nothing", "most", "by")
    every = [attempt for attempt in (*found.attempts, *found.searched) if Part.GOLD not in attempt.shape.parts]
    for term in found.nothing.contributions:
        best = max(every, key=lambda attempt: (attempt.contributions.get(term, 0.0), -attempt.num_tokens))
        gold = None if found.gold is None else found.gold.contributions.get(term)
        told = (gold, found.nothing.contributions[term], best.contributions.get(term))
        by = best.shape.words if (told[2] or 0.0) > 0.0 else ""
        table.add_row(Text(term, "bold"), *map(decimal, told), by)
    return table


def _told(found: Attack) -> dict[str, Any]:
    return {
        "chat": found.chat,
        "questions": found.questions,
        "gold": found.gold,
        "trying": found.trying,
        "attempts": found.attempts,
        "num_searched": len(found.searched),
        "num_hacks": len(found.hacks),
        "hacks": found.hacks[:_MAX_TOLD],
        "nothing_beats_trying": found.nothing_beats_trying,
    }


def _table(*headers: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for header in headers:
        table.add_column(header, overflow="fold")
    return table
