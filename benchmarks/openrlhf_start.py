"""What rlf adds to the start of a job on OpenRLHF: a run in the environment of rehearsals, stage by stage.

    python benchmarks/openrlhf_start.py        (needs `rlf rehearse --setup`)

Seconds since the command by the clock, CPU seconds of rlf's own process, and those of its children that have ended.
Up to `tools and rewards are open` all of it is rlf's; what then follows, Ray and the models, a job has that is started
by hand.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from rlf.apps.openrlhf.rehearsal_place import rehearsal_environment  # noqa: E402

SIZES = ["train.steps=1", "train.prompts_per_step=4", "~data.eval", "~eval"]
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> tuple[float, float]:
    """CPU seconds of a process, and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own_user, own_system, user, system = (int(field) / TICKS for field in fields[11:15])
    return own_user + own_system, user + system


def main() -> None:
    command = [rehearsal_environment().command, "run", ROOT / "specs" / "search_openrlhf.yaml", *SIZES]
    print(f"{'s':>7} {'CPU s':>6} {'children':>9}")
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as runs:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        run = subprocess.Popen([*command, "--runs", runs], **pipes)
        for line in run.stdout:
            if "info: " in line or "warning: " in line or line.startswith("step"):
                own_s, children_s = cpu_s(run.pid) if run.poll() is None else (0.0, 0.0)
                print(
                    f"{time.monotonic() - started:7.1f} {own_s:6.2f} {children_s:9.2f}  {line.strip()[:90]}", flush=True
                )
        sys.exit(run.wait())


if __name__ == "__main__":
    main()
