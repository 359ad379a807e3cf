"""The costs of a run for people: by tool and judged term, from the sums that the lineage keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlf.reports.quantities import count, dollars, visible
from rlf.reports.sheets import plain_table

if TYPE_CHECKING:
    from rich.table import Table

    from rlf.lineage.records import Cost

COLUMNS = ("spent on", "requests", "without usage", "tokens", "cached", "cost")


def cost_rows(costs: Sequence[Cost]) -> list[tuple[str, ...]]:
    """A row for each name, then the sum where there are several."""
    rows: list[tuple[str, ...]] = [
        (
            f"{cost.kind} {visible(cost.name)}",
            f"{cost.num_requests:,}",
            f"{cost.num_without_usage:,}",
            count(cost.num_tokens),
            count(cost.num_cached_tokens),
            dollars(cost.cost_usd),
        )
        for cost in costs
    ]
    if len(costs) > 1:
        sums = [sum(cost.num_requests for cost in costs), sum(cost.num_without_usage for cost in costs)]
        tokens = [sum(cost.num_tokens for cost in costs), sum(cost.num_cached_tokens for cost in costs)]
        total = dollars(sum(cost.cost_usd for cost in costs))
        rows.append(("all", *(f"{number:,}" for number in sums), *map(count, tokens), total))
    return rows


def costs_table(costs: Sequence[Cost]) -> Table:
    """The costs as a table."""
    return plain_table(COLUMNS, cost_rows(costs), left=COLUMNS[:1])
