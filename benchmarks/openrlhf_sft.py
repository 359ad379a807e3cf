"""OpenRLHF's own supervised trainer on a CPU: `python -m benchmarks.openrlhf_sft [--rewards N]`.

`rlf rehearse --full` runs `specs/cold_start.yaml` there with every step imitating, by the unmodified `train_sft` of
OpenRLHF in the environment of rehearsals (`rlf rehearse --setup`), and `rlf eval` tries the model before and after.
With `--rewards N` a job of OpenRLHF continues from it for N steps, there too: with vLLM where it is installed. Prints
success on 256 held-out tasks, sampled, and the CPU time of each part, but for processes of Ray that no one waits for.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path

from rlf import Run, load_run
from rlf.apps.openrlhf.rehearsal_place import rehearsal_environment

_SPEC = Path(__file__).parents[1] / "specs" / "cold_start.yaml"
_ALONE = "data.demonstrations=null"
_QUESTIONS = 256
"""As many as `benchmarks/cold_start.py` asks."""
_JOB = [
    "engine={kind: openrlhf, gradient_checkpointing: false}",
    "rollout.schedule=clock",
    "train.micro_batch_tokens=8192",
]
_IMITATES = ["train.algorithm=supervised", "data.demonstrations.steps=null", "data.eval=null", "~eval"]


def call(*words: str) -> str:
    """What a command of rlf prints, after its CPU time is shown; all that it reports where it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-m", "rlf", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"  rlf {words[0]}: {cpu_s:.0f} s of CPU", flush=True)
    return done.stdout


def find_success(model: str, folder: Path) -> float:
    """Held-out success of a model, sampled."""
    asked = [str(_SPEC), _ALONE, "eval.greedy=false", "--limit", str(_QUESTIONS), "-k", "1", "--json"]
    shown = json.loads(call("eval", model, *asked, "--runs", str(folder)).splitlines()[-1])
    success: float = shown["data"]["rows"][0]["success"]
    return success


def run_job(folder: Path, *changes: str) -> Run:
    """The run of the spec's job on this CPU."""
    vllm = ["--vllm"] if rehearsal_environment().is_ready(vllm=True) else []
    print(f"  vLLM {'samples' if vllm else 'is not installed: a stand-in samples'} where a job samples", flush=True)
    call("rehearse", str(_SPEC), *_JOB, *changes, "--full", *vllm, "--runs", str(folder))
    return load_run("latest", runs_folder=folder)


def main() -> None:
    """Imitates, and on request continues by rewards."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--steps", type=int, default=100, help="That imitate.")
    parser.add_argument("--rewards", type=int, default=0, metavar="STEPS")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("build/openrlhf_sft"))
    asked = parser.parse_args()
    folder, seed = asked.folder.resolve(), f"seed={asked.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    print(f"base: {find_success('builtin:bookkeeper', folder):.1%}", flush=True)
    run = run_job(folder, *_IMITATES, f"train.steps={asked.steps}", seed)
    model = folder / run.id / "job" / "model"
    words = f"after {asked.steps} steps of OpenRLHF's supervised trainer"
    print(f"{words}: {find_success(str(model), folder):.1%}", flush=True)
    if asked.rewards:
        every = [f"{key}={asked.rewards}" for key in ("train.steps", "eval.every", "checkpoint.every")]
        tried = [f"eval.limit={_QUESTIONS}", "eval.greedy=false"]
        run = run_job(folder, _ALONE, *every, *tried, f"model.path={model}", seed)
        curve = ", ".join(f"{one.metrics['success']:.1%} after {one.step}" for one in run.evaluations())
        print(f"then by rewards, on OpenRLHF: {curve}", flush=True)


if __name__ == "__main__":
    main()
