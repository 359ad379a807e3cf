"""OpenRLHF's own supervised trainer on a CPU: `python -m benchmarks.openrlhf_sft [--rewards N]`.

`rlf rehearse --full` runs `specs/cold_start.yaml` there with every step imitating, by the unmodified `train_sft` of
OpenRLHF in the environment of rehearsals (`rlf rehearse --setup`), and `rlf eval` tries the model before and after.
With `--rewards N` a job of OpenRLHF continues from it for N steps, there too: with vLLM where it is installed. Prints
success on 128 held-out tasks, sampled, and the CPU time of each part.
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
_JOB = ["engine={kind: openrlhf}", "rollout.schedule=clock"]
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
    asked = [str(_SPEC), _ALONE, "eval.greedy=false", "--limit", "128", "-k", "1", "--json", "--runs", str(folder)]
    shown = json.loads(call("eval", model, *asked).splitlines()[-1])
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
    parser.add_argument("--folder", type=Path, default=Path("build/openrlhf_sft"))
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    print(f"base: {find_success('builtin:bookkeeper', folder):.1%}", flush=True)
    run = run_job(folder, *_IMITATES, f"train.steps={asked.steps}", "data.demonstrations.heldout=16")
    model, heldout = folder / run.id / "job" / "model", run.steps()[-1].metrics["loss/heldout"]
    print(f"after {asked.steps} steps of OpenRLHF's supervised trainer: {find_success(str(model), folder):.1%}")
    print(f"  the loss of the 16 demonstrations that are held out: {heldout:.2f}", flush=True)
    if asked.rewards:
        every = [f"{key}={asked.rewards}" for key in ("train.steps", "eval.every", "checkpoint.every")]
        tried = ["eval.limit=128", "eval.greedy=false"]
        run = run_job(folder, _ALONE, *every, *tried, f"model.path={model}")
        curve = ", ".join(f"{one.metrics['success']:.1%} after {one.step}" for one in run.evaluations())
        print(f"then by rewards, on OpenRLHF: {curve}", flush=True)


if __name__ == "__main__":
    main()
