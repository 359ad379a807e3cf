"""Rehearses OpenRLHF's job in each of its modes, with the stand-in and with vLLM, and prints what went through.

`python benchmarks/rehearsals.py [MODE]...`; exit code 1 when one fails. Needs `rlf rehearse --setup --vllm`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
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
PICTURES = "pictures"
"""A model that sees, and rows of no, one and two pictures: made in a folder of its own."""
SAMPLERS: dict[str, list[str]] = {"stand-in": [], "vLLM": ["--vllm"]}


def with_pictures(folder: Path) -> list[str]:
    """Overrides for a small random Qwen3-VL and rows with pictures, both written to a folder."""
    from PIL import Image

    from rlf.testing.vision import make_tiny_qwen_vl

    for colour in ("red", "blue"):
        Image.new("RGB", (60, 40), colour).save(folder / f"{colour}.png")
    asked = [("<image> is?", ["red.png"]), ("<image> or <image>?", ["blue.png", "red.png"]), ("What is red?", [])]
    rows = [{"question": question, "answer": "red", "images": images} for question, images in asked]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {"path": str(folder / "rows.jsonl"), "prompt": "question", "kind": None, "images": "images"}
    return [
        f"model.path={make_tiny_qwen_vl(folder / 'model')}",
        f"data.train={json.dumps(source)}",
        "~data.eval",
        "~eval",
        "+rollout.max_images=2",
    ]


def rehearse(overrides: list[str]) -> tuple[bool, str]:
    """Whether a rehearsal went through, and the stages it reached or why it failed."""
    command = [sys.executable, "-m", "rlf", "rehearse", str(SPEC), *overrides, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return False, done.stderr.strip() or f"exit code {done.returncode}"
    stages = json.loads(done.stdout.splitlines()[-1])["data"]["stages"]
    return True, ", ".join(stage["name"] for stage in stages)


def main() -> None:
    modes = sys.argv[1:] or [*MODES, PICTURES]
    all_passed = True
    print(f"{'job':<20}{'sampler':<10}{'':<8}{'seconds':>7}  stages")
    for mode in modes:
        for sampler, option in SAMPLERS.items():
            started = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                overrides = with_pictures(Path(folder)) if mode == PICTURES else MODES[mode]
                passed, words = rehearse([*overrides, *option])
            seconds = time.monotonic() - started
            print(f"{mode:<20}{sampler:<10}{'passed' if passed else 'FAILED':<8}{seconds:>7.0f}  {words}", flush=True)
            all_passed &= passed
    sys.exit(not all_passed)


if __name__ == "__main__":
    main()
