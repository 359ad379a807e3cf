"""Evaluations of worlds show Solve-F1 with precision and recall, over all and by kind of question."""

from dataclasses import replace

from rich.console import Console

from rlf.reports.evaluations import EvaluationReport, EvaluationRow, evaluations_view


def row(**solves):
    own = dict.fromkeys(EvaluationRow.__dataclass_fields__)
    numbers = dict.fromkeys(("num_questions", "num_samples", "num_failed", "num_calls", "num_turns", "num_tokens"), 0)
    empty = {"causes": {}, "pass_at": {}, "pass_all": {}, "terms": {}, "kinds": ()}
    text = {"run_id": "r", "target": "t", "mode": "greedy", "seconds": 0.0, "cost_usd": 0.0}
    return EvaluationRow(**{**own, **numbers, **empty, **text, "solves": solves})


def shown(*rows):
    console = Console(width=160, force_terminal=False)
    with console.capture() as captured:
        console.print(evaluations_view(EvaluationReport(rows)))
    return captured.get()


def test_solve_f1_stands_with_precision_and_recall_by_kind():
    found = row(**{"p": 0.5, "r": 0.25, "f1": 0.4, "p/multi": 1.0, "r/multi": 0.5, "f1/multi": 0.6})
    page = shown(found)
    assert "Solve-F1 (P, R)" in page and "0.400 (0.50, 0.25)" in page
    assert "multi" in page and "0.600 (1.00, 0.50)" in page


def test_an_evaluation_without_sub_questions_shows_none():
    assert "Solve" not in shown(row())


def test_the_27th_target_has_a_name_of_its_own():
    lines = shown(*(replace(row(), run_id=f"run-{n}", target=f"t{n}") for n in range(27))).splitlines()
    assert any(line.startswith("AA  t26 ") for line in lines), "the legend"
    assert any(line.startswith("AA  greedy ") for line in lines), "the table"


def test_a_term_with_the_name_of_a_column_has_a_column_of_its_own():
    page = shown(replace(row(), terms={"mode": 0.25, "other": 1.0}))
    header, values = [line.split() for line in page.splitlines()][-2:]
    assert (header, values) == (["mode", "mode", "other"], ["greedy", "0.250", "1.000"])
