"""The beginning of a job on a cluster: `python -m ...checked COMMAND ...` looks at the nodes, then becomes the command.

The driver may see none of them, so what each has is checked there, before a model is loaded.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlf.core.errors import RlfError
from rlf.engines.openrlhf.launch.cluster import LOOK, PINS, find_version_complaints
from rlf.engines.openrlhf.settings import Package, openrlhf_settings
from rlf.plan import plan_from_json

COMMAND = ("python", "-m", "rlf.engines.openrlhf.launch.checked")


def main(command: Sequence[str]) -> None:
    """Runs in the job folder. Raises RlfError with what is wrong on which node."""
    accepted = openrlhf_settings(plan_from_json(Path("plan.json").read_text()).spec).accept_versions
    if complaints := list(_find_complaints(accepted)):
        raise RlfError(f"the nodes cannot run the job: {'; '.join(complaints)}.")
    os.execvp(command[0], [*command])


def _find_complaints(accepted: Mapping[Package, str]) -> Iterator[str]:
    """Of the nodes with GPUs; of all where none has one."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray.init()
    nodes: list[dict[str, Any]] = [node for node in ray.nodes() if node["Alive"]]
    task = ray.remote(look)
    for node in [node for node in nodes if node.get("Resources", {}).get("GPU")] or nodes:
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        found = ray.get(task.options(num_cpus=0, scheduling_strategy=there).remote())
        yield from (f"{node.get('NodeManagerAddress', 'a node')}: {words}" for words in found_words(found, accepted))
    ray.shutdown()


def look() -> str:
    """What this node has, as `preflight.LOOK` prints it; or the last line of the error."""
    done = subprocess.run([sys.executable, "-c", LOOK, *PINS], capture_output=True, text=True, check=False)
    return (done.stdout if done.returncode == 0 else done.stderr).strip().rpartition("\n")[2]


def found_words(found: str, accepted: Mapping[Package, str]) -> list[str]:
    """The complaints about what a node reports."""
    return find_version_complaints(found, accepted) if found.startswith("{") else [found]


if __name__ == "__main__":
    main(sys.argv[1:])
