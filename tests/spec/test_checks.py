"""Checks between keys: they see what they declare, run where that is sound, and hide no error of their own."""

from __future__ import annotations

import pytest

from rlf.core import SpecError
from rlf.plan import checks
from rlf.runs.plans import check_spec
from rlf.spec import inputs, load_spec
from rlf.spec.load import PartlyWrong, reads

from .project import write_project

HEALTHY: list[str] = []
BROKEN = ["train.learning_rate=fast"]


def part_of(run, overrides):
    with pytest.raises(PartlyWrong) as error:
        load_spec([run], overrides)
    return error.value.part


@pytest.mark.parametrize("overrides", [HEALTHY, BROKEN], ids=["healthy", "broken"])
@pytest.mark.parametrize("where", ["plan", "looking"])
def test_an_error_in_a_check_is_a_traceback(where, overrides, tmp_path, monkeypatch):
    @reads("rollout")
    def misspells(loaded):
        yield loaded.spec.rollout.num_generatons

    if where == "plan":
        monkeypatch.setattr(checks, "CHECKS", (*checks.CHECKS, misspells))
    else:
        monkeypatch.setattr(inputs, "_check_context", misspells)
    with pytest.raises(AttributeError, match="num_generatons"):
        check_spec([write_project(tmp_path)], overrides)


@pytest.mark.parametrize("overrides", [HEALTHY, BROKEN], ids=["healthy", "broken"])
def test_a_check_that_reads_what_it_does_not_declare_is_an_error_on_every_spec(overrides, tmp_path, monkeypatch):
    @reads("rollout.num_generations")
    def reads_more(loaded):
        yield loaded.spec.rollout.max_turns

    monkeypatch.setattr(checks, "CHECKS", (*checks.CHECKS, reads_more))
    with pytest.raises(AttributeError, match="max_turns"):
        check_spec([write_project(tmp_path)], overrides)


def test_what_the_files_say_is_declared_too(tmp_path):
    loaded = load_spec([write_project(tmp_path)]).only((("train", "steps"),))
    assert loaded.value(("train", "steps")) == 2
    with pytest.raises(AssertionError, match=r"train\.algorithm, which it does not declare"):
        loaded.value(("train", "algorithm"))


@pytest.mark.parametrize(
    ("key", "overrides", "runs"),
    [
        ("train.steps", ["train.steps=many"], False),
        ("train", ["train.steps=many"], False),
        ("train.algorithm.lam", ["train.algorithm=gropo"], False),
        ("train.epochs", ["train.steps=many"], True),
        ("tools", ["tools.0.limits.timeout_s=no"], False),
        ("tools[]", ["tools.0.limits.timeout_s=no"], True),
        ("rewards", ["tools.0.limits.timeout_s=no"], True),
    ],
)
def test_a_check_runs_where_the_keys_that_it_declares_are_sound(key, overrides, runs, tmp_path):
    seen = []
    check = reads(key)(lambda loaded: seen.append(loaded) or [])
    assert list(check(part_of(write_project(tmp_path), overrides))) == []
    assert bool(seen) is runs


def test_a_broken_item_is_left_out_of_the_items(tmp_path):
    part = part_of(write_project(tmp_path), ["+tools={name: other}"])
    names = []
    list(reads("tools[]")(lambda loaded: names.extend(tool.name for tool in loaded.spec.tools) or [])(part))
    assert names == ["look"]


def test_faults_of_a_healthy_part_stay_with_their_keys(tmp_path):
    with pytest.raises(SpecError) as error:
        check_spec([write_project(tmp_path)], [*BROKEN, "train.mini_batches=5"])
    assert [fault.path for fault in error.value.faults] == ["train.learning_rate", "train.mini_batches"]
