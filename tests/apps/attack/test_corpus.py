"""Nearly all bad rewards of six corpora are found, and no sound one is accused.

A fortieth of them is tried here; `benchmarks/attack.py` tries all.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

FIXED = ("b_any_box", "b_evaluates_with_its_locals", "b_percent_or_share", "s_citation_is_checked", "s_runs_it")
"""Those that the first run on the second author's rewards missed, accused, or found for a wrong reason."""
HERE = Path(__file__).parent
BENCHMARK = HERE.parents[2] / "benchmarks" / "attack.py"


@pytest.fixture(scope="module")
def attacks(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    spec = importlib.util.spec_from_file_location("attack_benchmark", BENCHMARK)
    assert spec is not None and spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    found: dict[str, Any] = {}
    for path in benchmark.CORPORA:
        names = [*sorted(benchmark.read_corpus(path).CASES)[10::40], *FIXED]
        found |= asyncio.run(benchmark.attack_cases(path, tmp_path_factory.mktemp(path.stem), names=names))
    return found


def test_nearly_all_bad_rewards_are_found(attacks: Mapping[str, Any]) -> None:
    bad = {name: attack for name, (case, attack, _) in attacks.items() if case.is_bad}
    missed = {name: attack.verdict for name, attack in bad.items() if not attack.findings}
    assert len(bad) >= 8 and missed == {}


def test_no_sound_reward_is_accused(attacks: Mapping[str, Any]) -> None:
    sound = {name: attack for name, (case, attack, _) in attacks.items() if not case.is_bad}
    assert len(sound) >= 3
    assert {name: attack.verdict for name, attack in sound.items() if not attack.is_passed} == {}


def test_what_was_missed_is_found_by_what_is_wrong_with_it(attacks: Mapping[str, Any]) -> None:
    shown = {name: {finding.adversary for finding in attacks[name][1].findings} for name in FIXED}
    assert any("several" in name or "others" in name for name in shown["b_any_box"])
    assert any("'expected'" in name for name in shown["b_evaluates_with_its_locals"])
    assert "gold of another size" in shown["b_percent_or_share"]
    assert shown["s_citation_is_checked"] == shown["s_runs_it"] == set()


def test_a_finding_names_the_text_what_it_earns_and_what_in_the_reward_it_uses(attacks: Mapping[str, Any]) -> None:
    findings = [finding for case, attack, _ in attacks.values() if case.is_bad for finding in attack.findings]
    read = [finding for finding in findings if finding.cause == "wording"]
    assert read and all(finding.text and finding.uses and finding.reward is not None for finding in read)
    assert any(".py:" in use for finding in read for use in finding.uses)
    assert any(finding.lines for finding in read)
    assert all(finding.honest is not None for finding in findings if finding.attempt is not None)


def test_a_part_of_the_reward_for_a_number_near_the_gold_is_no_finding_and_the_verdict_says_on_what_it_rests(
    tmp_path: Path,
) -> None:
    spec = importlib.util.spec_from_file_location("attack_benchmark", BENCHMARK)
    assert spec is not None and spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    path, name = HERE / "fourth_hand.py", "b4_within_a_half"
    ((_, attack, _),) = asyncio.run(benchmark.attack_cases(path, tmp_path, names=[name])).values()
    assert attack.verdict.startswith(
        "No behaviour earns 50% of the reward of being right without the gold; the nearest is 'gold of another size'"
    )
