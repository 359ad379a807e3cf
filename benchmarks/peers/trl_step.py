"""One training step: rlf's local engine beside TRL's GRPOTrainer with its own tool loop.

Both train the same weights on the same questions with the same tools, turn limit, batch and temperature, in float32 on
all cores, and take turns in one process: after each of TRL's steps rlf makes one. The medians of wall and CPU seconds
are printed with the median of the ratios, and both rewards. `--plain` turns rlf's shared prefixes off.

TRL takes the tokens of tool results from rlf. Its own are those of the rendered template, where the end of a result can
merge with what follows it (here `.` and a line break, one token); rlf encodes the result by itself. A model trained on
one of the two answers worse on the other: 0.80 in place of 1.00 with `--template-tokens`.

    pip install trl==1.16.0 datasets
    python benchmarks/peers/trl_step.py --model runs/ID/model [--rounds 5] [--prompts 16] [--plain]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from statistics import median

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen3_template

from rlf.builtin.encyclopedia import calculator as rlf_calculator
from rlf.builtin.encyclopedia import search as rlf_search
from rlf.chat.encoding import load_tokenizer
from rlf.core.identity import derive_seed
from rlf.engines.engine import load_inputs
from rlf.engines.local.host import PolicyHost
from rlf.engines.local.model import load_model
from rlf.engines.local.update import Updater
from rlf.rollout.collect import collect
from rlf.rollout.rollout import Rollout
from rlf.runs.plans import check_spec
from rlf.spec.models import Schedule
from rlf.training.batch import make_batch
from rlf.training.harness import build_harness

ROOT = Path(__file__).parents[2]
GENERATIONS = 8


def search(query: str) -> str:
    """Find passages about a person, a town, a river or a company.

    Args:
        query: what to look for.
    """
    return rlf_search(query=query)


def calculator(expression: str) -> str:
    """Work out an arithmetic expression.

    Args:
        expression: numbers and operators.
    """
    return str(rlf_calculator(expression=expression))


class Ours:
    """rlf's step: collect, then update. Tools and the sampler's memory stay from step to step, as in a run."""

    def __init__(self, model_path, num_prompts, share_prefixes, cores):
        self.spec = check_spec([ROOT / "specs" / "search.yaml"], []).plan.spec
        inputs = load_inputs(check_spec([ROOT / "specs" / "search.yaml"], []).plan)
        self.tasks, self.num_prompts = inputs.train, num_prompts
        self.model = load_model(model_path, dtype=torch.float32, device=torch.device("cpu"))
        self.harness = build_harness(self.spec, load_tokenizer(model_path), lambda *_: None)
        workers = ThreadPoolExecutor(cores, initializer=torch.set_num_threads, initargs=(1,))
        self.updater = Updater(
            self.model, self.spec.train, temperature=1.0, seed=0, workers=workers, share_prefixes=share_prefixes
        )
        self.steps, self.open = [], AsyncExitStack()
        limits = self.harness.limits
        self.host = PolicyHost(
            self.model,
            self.harness.chat.decode,
            num_slots=num_prompts * GENERATIONS,
            max_tokens=limits.max_total_tokens,
            schedule=Schedule.LOGICAL,
        )

    async def begin(self):
        await self.open.enter_async_context(self.harness.opened())
        await self.open.enter_async_context(self.host)

    async def step(self, number):
        tasks = self.tasks[number * self.num_prompts : (number + 1) * self.num_prompts]
        rollouts = [
            Rollout(f"{number}/{task.id}/{k}", task, k, derive_seed(number, task.id, k))
            for task in tasks
            for k in range(GENERATIONS)
        ]
        clock, setting = Clock(), self.harness.setting(self.host, self.harness.training)
        scored = await collect(rollouts, setting, self.harness.reward, step=1)
        sampled = clock.read()
        await self.host.change_weights(partial(self.updater.update, make_batch(scored), 1), 1)
        self.steps.append((*clock.read(), sum(s.reward for s in scored) / len(scored), *sampled))


class Clock:
    """Wall and CPU seconds of this process."""

    def __init__(self):
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def read(self):
        return time.perf_counter() - self.wall, time.process_time() - self.cpu


class TakeTurns(TrainerCallback):
    """Times each of TRL's steps, and makes one of rlf's after it."""

    def __init__(self, ours, runner):
        self.ours, self.runner, self.steps, self.clock = ours, runner, [], None

    def on_step_begin(self, *_, **__):
        self.clock = Clock()

    def on_step_end(self, arguments, state, *_, **__):
        self.steps.append(self.clock.read())
        self.runner.run(self.ours.step(state.global_step))
        if state.global_step == 1:  # both are warm: looks for garbage pass through neither side's code and model
            gc.collect()
            gc.freeze()


def is_right(completions, answer, **_):
    """The reward of specs/search.yaml: the last message is the answer."""
    texts = [messages[-1].get("content") or "" for messages in completions]
    return [float(text.strip().lower() == str(gold).strip().lower()) for text, gold in zip(texts, answer, strict=True)]


def new_trainer(model_path, tasks, turns, num_prompts, rounds, folder):
    tokenizer = AutoTokenizer.from_pretrained(model_path)
    tokenizer.response_template = qwen3_template
    rows = [{"prompt": prompt, "answer": answer} for prompt, answer in tasks]
    batch = num_prompts * GENERATIONS
    config = GRPOConfig(
        output_dir=folder, use_cpu=True, bf16=False, gradient_checkpointing=False, report_to=[], logging_steps=1,
        save_strategy="no", disable_tqdm=True, max_steps=rounds, learning_rate=3e-4, beta=0.0, loss_type="dapo",
        num_generations=GENERATIONS, generation_batch_size=batch, per_device_train_batch_size=batch // 4,
        gradient_accumulation_steps=4, max_completion_length=300, temperature=1.0, top_p=1.0, top_k=0,
        max_tool_calling_iterations=3, shuffle_dataset=False, seed=0, model_init_kwargs=None,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32)
    return GRPOTrainer(
        model, is_right, config, Dataset.from_list(rows), processing_class=tokenizer, tools=[search, calculator],
        callbacks=[turns],
    )  # fmt: skip


def main(arguments):
    torch.set_num_threads(arguments.cores)
    ours = Ours(arguments.model, arguments.prompts, not arguments.plain, arguments.cores)
    runner = asyncio.Runner()
    runner.run(ours.begin())
    turns = TakeTurns(ours, runner)
    tasks = [
        ([{"role": str(m.role), "content": m.content} for m in task.messages], str(task.answer)) for task in ours.tasks
    ]
    with tempfile.TemporaryDirectory() as folder:
        trainer = new_trainer(
            arguments.model, tasks[arguments.prompts :], turns, arguments.prompts, arguments.rounds + 1, folder
        )
        if not arguments.template_tokens:
            chat = ours.harness.chat
            trainer._get_tool_suffix_ids = lambda messages: chat.observation(
                [m["content"] for m in messages], closed=True
            )
        trainer.train()
    runner.run(ours.open.aclose())
    runner.close()
    rewards = [log["reward"] for log in trainer.state.log_history if "reward" in log]
    report(ours.steps[1:], turns.steps[1:], rewards[1:])  # the first warms both up


def report(ours, theirs, rewards):
    print(f"{'':5} {'wall s':>8} {'CPU s':>8} {'reward':>8}   medians of {len(ours)} steps")
    wall, cpu, reward, sampling_s, sampling_cpu_s = (median(column) for column in zip(*ours, strict=True))
    print(f"{'rlf':5} {wall:8.3f} {cpu:8.3f} {reward:8.3f}   sampling {sampling_s:.3f} wall, {sampling_cpu_s:.3f} CPU")
    print(f"{'TRL':5} {median(s[0] for s in theirs):8.3f} {median(s[1] for s in theirs):8.3f} {median(rewards):8.3f}")
    for place, name in ((0, "wall"), (1, "CPU")):
        ratios = sorted(t[place] / o[place] for o, t in zip(ours, theirs, strict=True))
        print(f"TRL / rlf, {name}: median {median(ratios):.2f}, from {ratios[0]:.2f} to {ratios[-1]:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a folder with a trained model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument(
        "--cores", type=int, default=os.cpu_count() or 1, help="of each side; 1 where others use the rest"
    )
    parser.add_argument("--template-tokens", action="store_true", help="TRL encodes tool results itself")
    parser.add_argument("--plain", action="store_true", help="without shared prefixes in rlf's update")
    main(parser.parse_args())
