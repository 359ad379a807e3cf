"""`rlf rewards calibrate`: a judge with known faults, and what is found of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import Result

from ..rewards.judges import Judge, judging

Rlf = Callable[..., Result]


def write(folder: Path, judge: Judge, items: Sequence[Mapping[str, Any]], **keys: Any) -> tuple[str, ...]:
    """The files of a calibration; the command's arguments."""
    endpoint = judge.endpoint("me", prices={"prompt_usd": 1.0, "completion_usd": 10.0})
    term = {"kind": "judge", "name": "good", "endpoints": [endpoint], **keys}
    (folder / "good.yaml").write_text(yaml.safe_dump(term))
    (folder / "labels.jsonl").write_text("\n".join(map(json.dumps, items)))
    return ("rewards", "calibrate", "good.yaml", "--labels", "labels.jsonl")


def by_length(body: Mapping[str, Any]) -> str:
    """A judge that gives a point for each character."""
    text = body["messages"][1]["content"].split("Answer to judge:\n")[1].split("\n")[1]
    return "?" if text == "!" else json.dumps({"score": min(10, len(text))})


def items(*facts: tuple[int, Any]) -> list[dict[str, Any]]:
    return [{"question": "Q", "answer": "a" * length, "label": label} for length, label in facts]


def test_agreement_length_bias_and_cost_are_reported(rlf: Rlf, tmp_path: Path) -> None:
    labelled = [*items((10, 10), (9, 10), (8, 10), (2, 1), (1, 1), (7, 1)), {"answer": "!", "label": 5}]
    with judging(by_length) as judge:
        arguments = write(tmp_path, judge, labelled)
        table, told = rlf(*arguments), rlf(*arguments, "--json")
    assert (table.exit_code, told.exit_code) == (0, 0), table.output + told.output
    found = json.loads(told.stdout)["data"]
    assert (found["num_items"], len(found["failures"])) == (7, 1)
    # right but for the one of 7 characters; kappa: p_o = 5/6, p_e = 4/6 x 3/6 + 2/6 x 3/6 = 1/2, (5/6 - 1/2) / (1/2)
    assert found["accuracy"]["value"] == pytest.approx(5 / 6)
    assert found["kappa"]["value"] == pytest.approx(2 / 3)
    assert found["kappa"]["interval"][0] < 2 / 3 < found["kappa"]["interval"][1]
    assert found["length_bias"] == pytest.approx(1.0)
    assert found["spearman"] == pytest.approx(0.878, abs=1e-3)
    assert found["cost_usd"] == pytest.approx((100 * 1.0 + 10 * 10.0) / 1e6)
    assert found["position_bias"] is None and found["self_preference"]["value"] is None
    assert "Cohen's kappa" in table.stdout and "no verdict: 1 of 1 verdicts failed" in table.stdout


def test_liking_for_a_place_is_reported_of_pairs(rlf: Rlf, tmp_path: Path) -> None:
    pairs = [{"question": "Q", "answer": "x", "other": "y", "label": label} for label in ("first", "second", "tie")]
    with judging('{"winner": "A"}') as judge:
        told = rlf(*write(tmp_path, judge, pairs, compare="pairwise"), "--json")
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)["data"]
    assert found["position_bias"] == {"flipped": 1.0, "first": 1.0}
    assert found["accuracy"]["value"] == pytest.approx(1 / 3)  # both orders together are a tie


def test_liking_of_its_own_answers_is_reported_by_author(rlf: Rlf, tmp_path: Path) -> None:
    told_by = [("me", 9, 5), ("me", 8, 4), ("you", 5, 5), ("you", 4, 4)]
    authored = [{"answer": "a" * length, "label": label, "author": who} for who, length, label in told_by]
    with judging(by_length) as judge:
        found = json.loads(rlf(*write(tmp_path, judge, authored), "--json").stdout)["data"]
    assert found["self_preference"]["value"] == pytest.approx(4 / 9)
    assert found["num_own"] == 2


def test_groups_are_calibrated_by_the_order_of_their_labels(rlf: Rlf, tmp_path: Path) -> None:
    def longest(body: Mapping[str, Any]) -> str:
        texts = [part.split("\n")[2] for part in body["messages"][1]["content"].split("Answer ")[1:]]
        return json.dumps({"ranking": sorted(range(1, len(texts) + 1), key=lambda n: -len(texts[n - 1]))})

    with judging(longest) as judge:
        arguments = write(tmp_path, judge, items((1, 1), (5, 4), (9, 10)), compare="group")
        found = json.loads(rlf(*arguments, "--json").stdout)["data"]
    assert found["spearman"] == pytest.approx(1.0)
    assert found["accuracy"]["value"] is None


def test_what_cannot_be_calibrated_is_reported(rlf: Rlf, tmp_path: Path) -> None:
    with judging("?") as judge:
        arguments = write(tmp_path, judge, items((3, 5)))
        assert "none of 1 items could be judged" in (result := rlf(*arguments)).stderr and result.exit_code == 2
        (tmp_path / "labels.jsonl").write_text('{"answer": "a", "label": 99}\n{"answer": "a"}')
        result = rlf(*arguments)
        assert result.exit_code == 2
        assert "labels.jsonl:1:1" in result.stderr and "labels.jsonl:2:1 label: field required" in result.stderr
        (tmp_path / "good.yaml").write_text("kind: rule\nname: right\nrule: exact_match\n")
        assert "has no judge (known: none)" in rlf(*arguments).stderr
