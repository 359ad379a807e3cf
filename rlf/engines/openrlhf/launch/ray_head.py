"""`ray start` with the time that a busy machine takes: `python ray_head.py SECONDS OPTIONS ...`.

Ray 2.55 gives its raylet 30 s to report, in a local variable of `Node.__init__` that no option and no variable of the
environment reaches. Its loop calls `services.get_node`, which here returns only when there is an answer, or none will
come. Run by the interpreter that has Ray, and imports nothing else beside the standard library.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_POLL_S = 0.1
_NEEDED = ("gcs_server", "raylet")
"""Ray's names of the processes without which no node reports; it runs without the others."""


def main(patience_s: float, options: Sequence[str]) -> None:
    """Starts Ray, and stays until it ends."""
    from ray._private import node, services
    from ray.scripts.scripts import cli

    started: list[Any] = []
    start_processes, get_node = node.Node.start_ray_processes, services.get_node
    deadline = time.monotonic() + patience_s

    def start(self: Any) -> None:
        started.append(self)
        start_processes(self)

    def wait_for_node(*address: Any) -> Any:
        while True:
            try:
                return get_node(*address)
            except RuntimeError:
                for one in started:
                    _end_if_dead(one)
                if time.monotonic() > deadline:
                    raise
            time.sleep(_POLL_S)

    node.Node.start_ray_processes, services.get_node = start, wait_for_node
    cli(args=["start", *options])


def _end_if_dead(node: Any) -> None:
    """Ends this process where one that Ray started has ended: its part would be waited for in vain."""
    for name, process in node.dead_processes():
        if name not in _NEEDED:
            continue
        logs = Path(node.get_logs_dir_path())
        texts = [(logs / f"{name}{ending}") for ending in (".err", ".out")]
        lines = [line for path in texts if path.is_file() for line in path.read_text(errors="replace").splitlines()]
        words = next((f": {line.strip()}" for line in reversed(lines) if line.strip()), "")
        sys.exit(f"Ray's {name} ended with code {process.returncode} before it reported{words}")


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2:])
