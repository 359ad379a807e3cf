"""Tables of reports in other forms than the terminal's."""

from __future__ import annotations

from rlf.reports.report import sheet_markdown
from rlf.reports.sheets import Sheet, sheet_tex

SHEET = Sheet("held-out, 95 %", "a_b & c", ("", "A|1"), (("success_rate", "71.4 % (65–77 %)"), ("cost", r"\$<2")), True)


def test_no_cell_of_a_table_for_latex_is_a_command() -> None:
    assert sheet_tex(SHEET).splitlines() == [
        r"\begin{table}",
        r"\centering",
        r"\caption{held-out, 95 \%: a\_b \& c}",
        r"\begin{tabular}{lr}",
        r"\toprule",
        r" & A|1 \\",
        r"\midrule",
        r"success\_rate & 71.4 \% (65--77 \%) \\",
        r"cost & \textbackslash{}\$$<$2 \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]


def test_no_cell_of_a_table_in_markdown_is_two() -> None:
    assert r"|  | A\|1 |" in sheet_markdown(SHEET).splitlines()
