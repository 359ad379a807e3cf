"""Rehearses OpenRLHF's job in each of its modes, with the stand-in and with vLLM, and prints what went through.

`python benchmarks/rehearsals.py [MODE]...`; exit code 1 when one fails. Needs `rlf rehearse --setup --vllm`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

SPEC = Path(__file__).parents[1] / "specs" / "search_openrlhf.yaml"
MODES = {
    "grpo": ["train.algorithm=grpo"],
    "reinforce_baseline": ["train.algorithm=reinforce_baseline"],
    "gae": ["train.algorithm=gae"],
    "colocated": ["train.algorithm=grpo", "engine.colocate=all"],
    "partial": ["train.algorithm=grpo", "engine.mode=partial", "train.loss.correction.level=token"],
}
SAMPLERS: dict[str, list[str]] = {"stand-in": [], "vLLM": ["--vllm"]}


def rehearse(overrides: list[str]) -> tuple[bool, str]:
    """Whether a rehearsal went through, and the stages it reached or why it failed."""
    command = [sys.executable, "-m", "rlf", "rehearse", str(SPEC), *overrides, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return False, done.stderr.strip() or f"exit code {done.returncode}"
    stages = json.loads(done.stdout.splitlines()[-1])["data"]["stages"]
    return True, ", ".join(stage["name"] for stage in stages)


def main() -> None:
    modes = sys.argv[1:] or list(MODES)
    all_passed = True
    print(f"{'job':<20}{'sampler':<10}{'':<8}{'seconds':>7}  stages")
    for mode in modes:
        for sampler, option in SAMPLERS.items():
            started = time.monotonic()
            passed, words = rehearse([*MODES[mode], *option])
            seconds = time.monotonic() - started
            print(f"{mode:<20}{sampler:<10}{'passed' if passed else 'FAILED':<8}{seconds:>7.0f}  {words}", flush=True)
            all_passed &= passed
    sys.exit(not all_passed)


if __name__ == "__main__":
    main()
