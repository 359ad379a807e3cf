"""A trainer that trains nothing: draws the rows of its dataset, lets the job's own agent play them, and prints what
OpenRLHF prints. FAKE_TRAINER says where it stops: `hang:2`, `fail:2` at step 2, `cut:2` in it; `gate:2` until there
is a file `gate` in the folder of checkpoints; `die:2` in the middle of saving step 2, when the policy alone is whole,
or where it is alone half of it.
"""

import argparse
import asyncio
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

from rlf.chat.on_disk import read_tokenizer
from tests.apps.openrlhf.fakes import FakeEngine, Params

parser = argparse.ArgumentParser()
for name in ("actor.model_name_or_path", "train.agent_func_path", "data.prompt_dataset", "eval.dataset", "ckpt.path"):
    parser.add_argument(f"--{name}")
for name in ("rollout.batch_size", "rollout.n_samples_per_prompt", "eval.steps", "ckpt.save_steps", "ckpt.max_num"):
    parser.add_argument(f"--{name}", type=int)
parser.add_argument("--ckpt.output_dir")
parser.add_argument("--critic.adam.lr")
args = vars(parser.parse_known_args()[0])
trained = [
    Path(args["ckpt.path"]) / name for name in ("_actor", "_critic") if name == "_actor" or args["critic.adam.lr"]
]
what, _, at = os.environ.get("FAKE_TRAINER", ":0").partition(":")
if "FAKE_RAY" not in os.environ:  # a cluster's actors end with their job
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)  # rlf-test-actor"], start_new_session=True)


def rows(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


async def play(agent, row, engine, number):
    calls = (agent.execute(row["input"], row["label"], Params(), 320, tokenizer, engine) for _ in range(number))
    return await asyncio.gather(*calls)


def metric(folder):
    """The result for which OpenRLHF removes a checkpoint last."""
    file = folder / "metric.json"
    return json.loads(file.read_text())["metric_value"] if file.exists() else None


def save(step):
    """As OpenRLHF does: each model makes room first, then writes, and says last that all is there."""
    for folder in trained:
        folder.mkdir(parents=True, exist_ok=True)
        saved = sorted(folder.glob("global_step*"), key=lambda path: (metric(path) is not None, path.stat().st_mtime))
        for old in saved[: max(0, len(saved) - args["ckpt.max_num"] + 1)]:
            shutil.rmtree(old)
    for folder in trained:
        new = folder / f"global_step{step}"
        new.mkdir(exist_ok=True)
        if (what, step) == ("die", int(at or 0)) and folder == trained[-1]:
            os.kill(os.getpid(), signal.SIGKILL)
        with ZipFile(new / "weights.pt", "w") as shard:  # the form that torch writes
            shard.writestr("data", "w")
        (new / "metric.json").write_text(json.dumps({"metric_key": None, "metric_value": None}))
        (folder / "latest").write_text(new.name)


def loaded_step():
    """The step of the checkpoint that every model loads; 0 without one."""
    found = {(folder / "latest").read_text() for folder in trained if (folder / "latest").exists()}
    assert len(found) < 2, f"models of different steps: {found}"
    for folder in trained:
        assert not found or (folder / min(found) / "weights.pt").is_file(), f"{folder} lacks {found}"
    return int(min(found).removeprefix("global_step")) if found else 0


async def train():
    agent = module.AgentExecutor()
    size, step = args["rollout.batch_size"], loaded_step()
    train_rows = rows(args["data.prompt_dataset"])
    print("(PPOTrainer pid=7) Episode [1/1]:   0%|          | 0/8", flush=True)
    while step * size < len(train_rows):
        drawn = train_rows[step * size : (step + 1) * size]
        engine = FakeEngine(tokenizer, ["Fentes<|im_end|>", "nowhere<|im_end|>"])
        await asyncio.gather(*(play(agent, row, engine, args["rollout.n_samples_per_prompt"]) for row in drawn))
        step += 1
        if step == int(at or 0) and what == "cut":
            print("(PPOTrainer pid=7) ValueError: the GPUs are on fire", flush=True)
            sys.exit(1)
        told = {"policy_loss": 0.5 / step, "actor_grad_norm": 1.0, "kl": float("nan"), "timing/generation": 0.25}
        print(f"\x1b[36m(PPOTrainer pid=7)\x1b[0m INFO x.py:1] ✨ Global step {step}: {told}", flush=True)
        if step % args["ckpt.save_steps"] == 0:
            save(step)
        if args["eval.dataset"] and step % args["eval.steps"] == 0:
            for row in rows(args["eval.dataset"]):
                await play(agent, row, engine, 1)
            print(
                f"INFO x.py:2] ✨ Evaluation completed in 0:00:01, global_step {step}, eval_metrics: {{}}", flush=True
            )
        if step == int(at or 0) and what == "hang":
            await asyncio.sleep(600)
        if step == int(at or 0) and what == "gate":
            while not (trained[0].parent / "gate").exists():  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(0.05)
        if step == int(at or 0) and what == "fail":
            print("(PPOTrainer pid=7) Traceback (most recent call last):\nValueError: the GPUs are on fire", flush=True)
            sys.exit(1)


tokenizer = read_tokenizer(Path(args["actor.model_name_or_path"]))  # without the seconds that transformers takes
spec = importlib.util.spec_from_file_location("agent_module", args["train.agent_func_path"])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
asyncio.run(train())
Path(args["ckpt.output_dir"]).mkdir(parents=True, exist_ok=True)
