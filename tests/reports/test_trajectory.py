"""A trajectory in the terminal: who wrote what must be plain, whatever was written."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from rlf.reports.trajectory import FED_MARK, SAMPLED_MARK, legend, trajectory_view
from rlf.types import Score, ScoreState, Turn

from .rendering import rendered
from .synthetic import PASSAGE, broken, scored


def marked(text: str, mark: str) -> list[str]:
    return [line.partition(mark)[2] for line in text.splitlines() if mark in line]


def test_sampled_text_and_what_was_fed_in_have_different_margins() -> None:
    text = rendered(trajectory_view(scored(0, succeeds=True)))
    assert "Fenpus<|im_end|>" in marked(text, SAMPLED_MARK)
    assert "</tool_call><|im_end|>" in marked(text, SAMPLED_MARK)
    fed = " ".join(marked(text, FED_MARK))
    assert PASSAGE in fed
    assert "What is the employer of Bitbal?" in fed
    assert 'search({"query": "Bitbal employer"}) → ok, 0.4 ms' in fed


def test_each_score_has_its_weight_and_reason() -> None:
    text = rendered(trajectory_view(scored(0, succeeds=False)))
    assert "exact_match  0.000 × 1  got 'Zuller', gold is 'Fenpus'" in text
    assert "well_formed  1.000 × 0.1  every turn parses" in text
    assert "answered after 1 turn · 14 tokens, 4 sampled · reward 0.100" in text


def test_colour_tells_the_two_apart_too_and_mutes_special_tokens() -> None:
    console = Console(width=80, force_terminal=True, color_system="standard", highlight=False)
    lines = console.render_lines(trajectory_view(scored(0, succeeds=True)))
    styles = {segment.text: segment.style for line in lines for segment in line if segment.style is not None}
    assert styles["Fenpus"].color.name == "green"
    assert not styles["Fenpus"].dim
    assert styles["<|im_end|>"].dim
    assert next(style for text, style in styles.items() if "Nekwys" in text).color.name == "cyan"


def test_what_broke_is_reported_and_unscorable_is_no_zero() -> None:
    text = rendered(trajectory_view(broken(1)))
    assert "infra_failure after 3 turns" in text
    assert "· unscorable" in text
    assert "judge  unscorable × 1  the judge did not answer" in text
    assert "broken      no host" in text
    assert "parse failure: bad_json" in text


def test_a_term_that_was_not_asked_is_distinguished_from_one_that_could_not_say() -> None:
    gated = Score("brief", None, 0.0, "not computed: 'right' is 0, below 1", state=ScoreState.GATED)
    text = rendered(trajectory_view(replace(scored(0, succeeds=False), scores=(gated,))))
    assert "brief  gated × 0  not computed: 'right' is 0, below 1" in text


def test_a_result_that_never_reached_the_model_is_not_shown_as_an_observation() -> None:
    text = rendered(trajectory_view(broken(1)))
    assert text.count("not seen    ┊") == 1
    assert text.count("observation ┊") == 2


def test_hostile_text_is_shown_and_does_nothing() -> None:
    text = rendered(trajectory_view(broken(1)))
    assert "\\x1b[31mred\\u202e \\ud800 [bold]not markup[/] :smile:" in text
    assert "\x1b" not in text


def test_long_texts_are_cut_when_asked_and_whole_otherwise() -> None:
    long = scored(0, succeeds=False)
    turn = Turn(10, 14, 14, "\n".join(f"line {n}" for n in range(40)))
    long = replace(long, trajectory=replace(long.trajectory, turns=(turn,)))
    assert "line 39" in rendered(trajectory_view(long))
    cut = rendered(trajectory_view(long, max_lines=5))
    assert marked(cut, SAMPLED_MARK) == ["line 0", "line 1", "line 2", "line 3", "… 36 more lines"]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_one_unbroken_string_wraps_within_the_width(width: int) -> None:
    long = scored(0, succeeds=False)
    turn = Turn(10, 14, 14, "x" * 500)
    text = rendered(trajectory_view(replace(long, trajectory=replace(long.trajectory, turns=(turn,)))), width)
    assert "".join(marked(text, SAMPLED_MARK)) == "x" * 500


def test_the_legend_names_both_marks() -> None:
    text = rendered(legend())
    assert f"{SAMPLED_MARK}sampled by the policy" in text
    assert f"{FED_MARK}observation" in text
