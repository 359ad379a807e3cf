"""What runs come to, for people: statistics (pure), readings of the lineage, rich renderables. No SQL, no printing."""

from rlf.reports.progress import Progress
from rlf.reports.sparkline import sparkline
from rlf.reports.statistics import Interval, mcnemar, pass_at_k, wilson_interval
from rlf.reports.summary import Summary, read_summary, summary_view
from rlf.reports.trajectory import legend, trajectory_view

__all__ = [
    "Interval",
    "Progress",
    "Summary",
    "legend",
    "mcnemar",
    "pass_at_k",
    "read_summary",
    "sparkline",
    "summary_view",
    "trajectory_view",
    "wilson_interval",
]
