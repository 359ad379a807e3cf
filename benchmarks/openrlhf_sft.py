"""OpenRLHF's own supervised trainer on a CPU: `python -m benchmarks.openrlhf_sft [--rewards N]`.

`rlf demos --for openrlhf` writes the demonstrations of `specs/cold_start.yaml`, the unmodified `train_sft` of OpenRLHF
learns them in the environment of rehearsals (`rlf rehearse --setup`), and `rlf eval` tries the model before and after.
With `--rewards N` a job of OpenRLHF continues from it for N steps, there too: with vLLM where it is installed. Prints
success on 128 held-out tasks, sampled, and the CPU time of each part.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from rlf.apps.openrlhf.rehearsal_place import CpuPlace, rehearsal_environment
from rlf.runs.place import open_reader
from rlf.runs.plans import check_spec
from rlf.spec.model_files import folder_on_disk

_SPEC = Path(__file__).parents[1] / "specs" / "cold_start.yaml"
_ALONE = "data.demonstrations=null"
_JOB = ["engine={kind: openrlhf}", "rollout.schedule=clock", "eval.limit=128", "eval.greedy=false"]


def call(command: list[str], variables: Mapping[str, str] | None = None) -> str:
    """What a command prints, after its CPU time is shown; all that it reports where it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=os.environ | dict(variables or {}), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"  {Path(command[0]).name} {' '.join(command[1:4])}: {cpu_s:.0f} s of CPU", flush=True)
    return done.stdout


def find_success(model: str, folder: Path) -> float:
    """Held-out success of a model, sampled."""
    asked = [str(_SPEC), _ALONE, "eval.greedy=false", "--limit", "128", "-k", "1", "--json", "--runs", str(folder)]
    shown = json.loads(call([sys.executable, "-m", "rlf", "eval", model, *asked]).splitlines()[-1])
    success: float = shown["data"]["rows"][0]["success"]
    return success


def imitate(folder: Path, epochs: int) -> Path:
    """The model that OpenRLHF's trainer makes of the spec's base."""
    rows, model = folder / "demonstrations.jsonl", folder / "imitated"
    asked = ["--gold", "--closing", "done", "--limit", "96", "--for", "openrlhf", "-o", str(rows)]
    call([sys.executable, "-m", "rlf", "demos", str(_SPEC), *asked])
    spec = check_spec([_SPEC], [_ALONE, *_JOB]).plan.spec
    place = CpuPlace(rehearsal_environment(), vllm=False).for_job(spec)
    one = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29611"}
    template = rows.with_suffix(".jinja").read_text()
    settings = {
        "model.model_name_or_path": str(folder_on_disk(spec.model.path)),
        "data.dataset": str(rows),
        "data.input_key": "messages",
        "data.tokenizer_chat_template": template,
        "data.max_len": str(spec.rollout.max_total_tokens),
        "train.batch_size": "32",
        "train.max_epochs": str(epochs),
        "adam.lr": "2e-3",
        "ds.zero_stage": "0",
        "ds.attn_implementation": "eager",
        "ckpt.output_dir": str(model),
    }
    flags = [part for key, value in settings.items() for part in (f"--{key}", value)]
    command = [place.python, "-m", "openrlhf.cli.train_sft", "--data.multiturn", "--data.apply_chat_template", *flags]
    call(command, place.environment(one))
    # The trainer saves the tokenizer with the template that it read the rows with, and with its bound on tokens.
    for name in ("chat_template.jinja", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(settings["model.model_name_or_path"]) / name, model)
    return model


def main() -> None:
    """Imitates, and on request continues by rewards."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--epochs", type=int, default=20, help="Of three steps each.")
    parser.add_argument("--rewards", type=int, default=0, metavar="STEPS")
    parser.add_argument("--folder", type=Path, default=Path("build/openrlhf_sft"))
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    print(f"base: {find_success('builtin:bookkeeper', folder):.1%}", flush=True)
    model = imitate(folder, asked.epochs)
    print(f"after OpenRLHF's supervised trainer: {find_success(str(model), folder):.1%}", flush=True)
    if asked.rewards:
        vllm = ["--vllm"] if rehearsal_environment().is_ready(vllm=True) else []
        steps = [f"train.steps={asked.rewards}", f"eval.every={asked.rewards}", f"checkpoint.every={asked.rewards}"]
        job = [str(_SPEC), _ALONE, *_JOB, *steps, f"model.path={model}", "--full", *vllm, "--runs", str(folder)]
        call([sys.executable, "-m", "rlf", "rehearse", *job])
        with open_reader(folder) as reader:
            found = reader.evaluations(reader.get_run("latest").record.id)
        curve = ", ".join(f"{one.metrics['success']:.1%} after {one.step}" for one in found)
        print(f"then by rewards, on OpenRLHF{' with vLLM' if vllm else ''}: {curve}", flush=True)


if __name__ == "__main__":
    main()
