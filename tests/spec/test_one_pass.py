"""What is wrong in two places is told at once, and nothing that follows from a fault is told as another."""

from __future__ import annotations

import random
import re

import pytest

from rlf.core import SpecError
from rlf.runs.plans import check_spec

from .project import FILES, SPEC, write_project
from .test_golden_faults import CASES, filled_in

pytestmark = pytest.mark.usefixtures("few_rows")
RUN = "specs/run.yaml"
NUM_PAIRS = 40
NUM_EXACT = 36
"""Of these, pairs of which no more and no less is told; in others the changes meet in a rule that reads both."""


def list_faults(run, overrides=()):
    with pytest.raises(SpecError) as error:
        check_spec([run], overrides)
    return sorted(map(str, error.value.faults))


def is_local(case):
    """Whether a case changes a few characters of one file, which can still be read and which names no spec."""
    small = "replace" in case and not {"files", "overrides", "text", "warns"} & set(case)
    return small and case.get("says") and all(re.match(r"\S+ (?!extends)[a-z]\S*: ", line) for line in case["says"])


def sections(case):
    """The keys at the top of a file that the faults of a case are about."""
    return {(case.get("file", RUN), re.split(r"[.\[:]", line.split(" ", 1)[1])[0]) for line in case["says"]}


def both(one, other):
    """The files with two changes, or None where they are not apart."""
    files = dict(FILES)
    for case in (one, other):
        file = case.get("file", RUN)
        if files[file].count(case["replace"]) != 1:
            return None
        files[file] = files[file].replace(case["replace"], case["by"])
    return None if sections(one) & sections(other) else files


def unplaced(lines):
    """Lines without lines and columns, which the other change may move."""
    return sorted(re.sub(r"^(\S+?):\d+:\d+ ", r"\1 ", line) for line in lines)


def test_two_faults_apart_are_both_reported(tmp_path, monkeypatch):
    local = [case for case in CASES if is_local(case)]
    pairs = [(one, other) for place, one in enumerate(local) for other in local[place + 1 :] if both(one, other)]
    assert len(local) > 150 and len(pairs) > 10_000
    exact = []
    for number, (one, other) in enumerate(random.Random(0).sample(pairs, NUM_PAIRS)):
        folder = tmp_path / str(number)
        run = write_project(folder, both(one, other))
        monkeypatch.chdir(folder)
        exact.append(
            unplaced(list_faults(run))
            == unplaced(filled_in(line, folder) for case in (one, other) for line in case["says"])
        )
    assert sum(exact) >= NUM_EXACT


def test_rules_that_read_no_broken_key_speak_beside_it(tmp_path):
    """One wrong type, and rules over three other keys; the rule that the wrong key would feed says nothing."""
    wrong = ["train.learning_rate=fast", "train.mini_batches=5", "rollout.num_generations=1", "engine=openrlhf"]
    text = "\n".join(list_faults(write_project(tmp_path), [*wrong, "train.algorithm=mt_grpo"]))
    for said in (
        'train.learning_rate: got "fast"',
        "train.mini_batches: got 5; a step has 3 x 1 = 3 trajectories",
        "rollout.num_generations: got 1; mt_grpo compares",
        "train.algorithm: got mt_grpo, which OpenRLHF does not have",
    ):
        assert said in text


@pytest.mark.parametrize(
    ("wrong", "silent"),
    [
        ("train.prompts_per_step=many", "mini_batches"),
        ("train.promts_per_step=8", "mini_batches"),
        ("rollout.num_generatons=8", "mini_batches"),
        ("train.algorithm=gropo", "compares the rollouts"),
    ],
)
def test_a_rule_says_nothing_where_it_reads_a_broken_or_misspelt_key(wrong, silent, tmp_path):
    faults = list_faults(write_project(tmp_path), ["train.mini_batches=5", "rollout.num_generations=1", wrong])
    assert not any(silent in line.partition(" (known")[0] for line in faults)


def test_a_spec_without_its_sections_is_looked_at_all_the_same(tmp_path):
    text = SPEC.replace("  algorithm: grpo\n", "").replace("max_total_tokens: 100", "max_new_tokens: 5000")
    run = write_project(tmp_path, {RUN: text.replace("model: {path: builtin:tiny}\n", "") + "chat: {format: herms}\n"})
    keys = {re.split(r": | ", line)[1] for line in list_faults(run)}
    assert keys == {"train.algorithm", "chat.format", "model", "rollout.max_new_tokens"}
