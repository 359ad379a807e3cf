"""Times of tools' calls in earlier runs, read from the lineage of a runs folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlf.core.errors import RlfError
from rlf.plan.pace import Latency, waits_for_tools
from rlf.spec.models import RunSpec

_MAX_RUNS = 20
"""Newest runs that are looked at."""


def measured_latencies(spec: RunSpec, runs_folder: Path | None) -> dict[str, Latency]:
    """By tool, the newest run's figures; empty where the schedule waits for no tool, or no lineage can be read."""
    url = os.environ.get("RLF_DB") or spec.lineage.url
    if runs_folder is None or not waits_for_tools(spec) or not (url or (runs_folder / "rlf.db").is_file()):
        return {}
    try:
        targets = {tool.name: tool.model_dump(mode="json", by_alias=True)["target"] for tool in spec.tools}
        return _read_latencies(targets, runs_folder, spec.lineage.url)
    except RlfError:  # a spec is right or wrong whatever the state of a lineage
        return {}


def _read_latencies(targets: Mapping[str, Any], runs_folder: Path, url: str | None) -> dict[str, Latency]:
    from rlf.api.lineage import open_lineage
    from rlf.lineage.reader import Reader

    found: dict[str, Latency] = {}
    with open_lineage(runs_folder, url=url) as store:
        reader = Reader(store)
        newest = [line.id for line in reader.run_lines(limit=_MAX_RUNS)]
        for run in reader.list_runs(newest):
            declared = run.record.plan.get("spec", {}).get("tools", [])
            same = {tool["name"] for tool in declared if tool["target"] == targets.get(tool["name"])} - found.keys()
            for tool in reader.tool_call_summary(run.record.id) if same else ():
                if tool.name in same and tool.num_calls > tool.num_cached:
                    mean_s = tool.mean_run_s * tool.num_calls / (tool.num_calls - tool.num_cached)
                    found[tool.name] = Latency(mean_s, tool.num_calls - tool.num_cached, run.record.id)
    return found
