"""A trainer that trains nothing: draws the rows of its dataset, lets the job's own agent play them, and prints what
OpenRLHF prints. FAKE_TRAINER says where it stops: `hang:2`, `fail:2` at step 2; `gate:2` until there is a file `gate`
in the folder of checkpoints.
"""

import argparse
import asyncio
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

from rlf.chat.on_disk import read_tokenizer
from tests.engines.openrlhf.fakes import FakeEngine, Params

parser = argparse.ArgumentParser()
for name in ("actor.model_name_or_path", "train.agent_func_path", "data.prompt_dataset", "eval.dataset", "ckpt.path"):
    parser.add_argument(f"--{name}")
for name in ("rollout.batch_size", "rollout.n_samples_per_prompt", "eval.steps", "ckpt.save_steps"):
    parser.add_argument(f"--{name}", type=int)
parser.add_argument("--ckpt.output_dir")
args = vars(parser.parse_known_args()[0])
what, _, at = os.environ.get("FAKE_TRAINER", ":0").partition(":")
if "FAKE_RAY" not in os.environ:  # a cluster's actors end with their job
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)  # rlf-test-actor"], start_new_session=True)


def rows(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


async def play(agent, row, engine, number):
    calls = (agent.execute(row["input"], row["label"], Params(), 320, tokenizer, engine) for _ in range(number))
    return await asyncio.gather(*calls)


async def train():
    agent = module.AgentExecutor()
    actor, size = Path(args["ckpt.path"]) / "_actor", args["rollout.batch_size"]
    latest = actor / "latest"
    step = int(latest.read_text().removeprefix("global_step")) if latest.exists() else 0
    train_rows = rows(args["data.prompt_dataset"])
    print("(PPOTrainer pid=7) Episode [1/1]:   0%|          | 0/8", flush=True)
    while step * size < len(train_rows):
        drawn = train_rows[step * size : (step + 1) * size]
        engine = FakeEngine(tokenizer, ["Fentes<|im_end|>", "nowhere<|im_end|>"])
        await asyncio.gather(*(play(agent, row, engine, args["rollout.n_samples_per_prompt"]) for row in drawn))
        step += 1
        told = {"policy_loss": 0.5 / step, "actor_grad_norm": 1.0, "kl": float("nan"), "timing/generation": 0.25}
        print(f"\x1b[36m(PPOTrainer pid=7)\x1b[0m INFO x.py:1] ✨ Global step {step}: {told}", flush=True)
        if step % args["ckpt.save_steps"] == 0:
            (actor / f"global_step{step}").mkdir(parents=True)
            with ZipFile(actor / f"global_step{step}" / "weights.pt", "w") as shard:  # the form that torch writes
                shard.writestr("data", "w")
            latest.write_text(f"global_step{step}")
        if args["eval.dataset"] and step % args["eval.steps"] == 0:
            for row in rows(args["eval.dataset"]):
                await play(agent, row, engine, 1)
            print(
                f"INFO x.py:2] ✨ Evaluation completed in 0:00:01, global_step {step}, eval_metrics: {{}}", flush=True
            )
        if step == int(at or 0) and what == "hang":
            await asyncio.sleep(600)
        if step == int(at or 0) and what == "gate":
            while not (actor.parent / "gate").exists():  # noqa: ASYNC110 - another process makes it
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
