"""Collects records and checkpoints from a cluster's nodes after a job, if this machine does not see their disks.

A Ray job of its own, which runs in the job folder: on every node, one after the other, records that nobody took before
are sent, what a stop left half-written of a checkpoint is removed, and the checkpoints are reported.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path

import aiohttp

from rlf.core.errors import RunError
from rlf.engines.openrlhf.job.folder import (
    Job,
    checkpoint_hash,
    latest_checkpoint,
    point_to,
    read_attempt,
    step_of,
    whole_checkpoints,
)
from rlf.engines.openrlhf.settings import openrlhf_settings
from rlf.engines.openrlhf.spool.pool import SUFFIX
from rlf.engines.openrlhf.spool.send import NotTaken, send_files
from rlf.plan import plan_from_json
from rlf.types.events import CheckpointSaved

COMMAND = ("python", "-m", "rlf.engines.openrlhf.launch.nodes")
_ANSWER = "rlf-nodes: "


def main() -> None:
    """Asks every node, and prints the answers in one line."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray.init()
    found: list[object] = []
    plan_text = Path("plan.json").read_text()
    task = ray.remote(settle)
    for node in ray.nodes():
        if node["Alive"]:
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            options = {"num_cpus": 0, "scheduling_strategy": there}
            found += ray.get(task.options(**options).remote(plan_text))
    sys.stdout.write(f"{_ANSWER}{json.dumps(found)}\n")


def settle(plan_text: str) -> list[tuple[int, str, str]]:
    """Sends this node's remaining records; returns its checkpoints: step, path and hash."""
    ingest = openrlhf_settings(plan_from_json(plan_text).spec).ingest
    here = Job(Path.cwd(), Path.cwd())
    attempt = read_attempt(here)
    assert ingest is not None, "a disk that rlf's machine can read"
    with contextlib.suppress(aiohttp.ClientError, TimeoutError, NotTaken):  # rlf names what did not come
        asyncio.run(send_files(sorted(Path(attempt.spool).glob(f"*{SUFFIX}")), ingest, attempt, here.certificate))
    job = Job(Path.cwd(), Path(attempt.spool).parents[1])
    point_to(job, latest_checkpoint(job))
    return [(step_of(path), str(path), checkpoint_hash(path)) for path in whole_checkpoints(job)]


def read_answer(lines: Iterable[str]) -> list[CheckpointSaved]:
    """The checkpoints that the nodes have, oldest first. Raises RunError where they did not answer."""
    for line in lines:
        if line.startswith(_ANSWER):
            items = sorted({tuple(item) for item in json.loads(line.removeprefix(_ANSWER))})
            return [CheckpointSaved(step, path, sha256) for step, path, sha256 in items]
    raise RunError("the nodes do not report what they have")


if __name__ == "__main__":
    main()
