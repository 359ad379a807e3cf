"""Rollouts of the embedded model: rlf's sampler beside transformers' `generate` with a barrier per turn.

Both play the same questions with the same tools, sampling settings and limits; the two take turns in one process and
the medians are printed with their ratio. The baseline generates a whole left-padded batch until its last row stops and
runs every tool call. It keeps keys and values over turns, drops rows that are over, and appends results on the right;
with --feed-again it feeds the whole conversation for each turn, as simple loops do.

    python benchmarks/peers/rollout.py --model runs/ID/model [--trajectories 128] [--rounds 5] [--tool-latency 0.0]
"""

from __future__ import annotations

import argparse
import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from transformers import AutoModelForCausalLM

from rlf.chat.encoding import load_tokenizer
from rlf.core.identity import derive_seed
from rlf.engines.engine import load_inputs
from rlf.engines.local.host import PolicyHost
from rlf.engines.local.model import load_model
from rlf.rollout.collect import collect
from rlf.rollout.rollout import Rollout
from rlf.runs.plans import check_spec
from rlf.spec.models import Schedule
from rlf.training.harness import build_harness

ROOT = Path(__file__).parents[2]


@dataclass
class Played:
    """One collection."""

    wall_s: float
    cpu_s: float
    num_sampled: int
    success: float


class SlowTools:
    """The spec's tools, each call slowed by the same latency."""

    def __init__(self, tools, latency_s):
        self.tools, self.latency_s = tools, latency_s

    @property
    def descriptions(self):
        return self.tools.descriptions

    async def invoke(self, call, *, trajectory_id):
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        return await self.tools.invoke(call, trajectory_id=trajectory_id)

    async def end_trajectory(self, trajectory_id):
        await self.tools.end_trajectory(trajectory_id)


async def play_rlf(harness, tools, sampler, rollouts):
    setting = harness.setting(sampler, harness.training)
    object.__setattr__(setting, "tools", tools)
    started, cpu_s = time.perf_counter(), time.process_time()
    scored = await collect(rollouts, setting, harness.reward, step=1)
    sampled = sum(item.trajectory.num_sampled for item in scored)
    return Played(
        time.perf_counter() - started,
        time.process_time() - cpu_s,
        sampled,
        sum(s.reward or 0 for s in scored) / len(scored),
    )


async def play_barrier(harness, tools, model, rollouts, pad_id, *, feeds_again):
    chat, limits = harness.chat, harness.limits
    started, cpu_s = time.perf_counter(), time.process_time()
    rows = [chat.prompt(r.task.messages, tools.descriptions) for r in rollouts]
    active, num_sampled, right = list(range(len(rows))), 0, 0
    batch = Padded(pad_id, [rows[i] for i in active])
    for turn in range(limits.max_turns):
        new = batch.generate(model, limits, chat)
        results = []
        for place, (i, tokens) in enumerate(zip(active, new, strict=True)):
            rows[i] = rows[i] + tokens
            num_sampled += len(tokens)
            parsed = chat.parse(chat.decode(tokens), truncated=tokens[-1] not in chat.stop_token_ids)
            if parsed.answer is not None:
                right += parsed.answer.strip().lower() == str(rollouts[i].task.answer).strip().lower()
            elif turn + 1 < limits.max_turns and tokens[-1] in chat.stop_token_ids:
                results.append((place, i, parsed))
        calls = [tools.invoke(call, trajectory_id=str(i)) for _, i, parsed in results for call in parsed.calls]
        replies = iter(await asyncio.gather(*calls))  # the barrier: everyone waits for the slowest call
        places, active, observations = [], [], []
        for place, i, parsed in results:
            texts = [next(replies).text if hasattr(item, "arguments") else item.message for item in parsed.observed]
            observation = chat.observation(texts, closed=True)
            if len(rows[i]) + len(observation) < limits.max_total_tokens:
                rows[i] = rows[i] + observation
                places.append(place)
                active.append(i)
                observations.append(observation)
        if not active:
            break
        if feeds_again:
            batch = Padded(pad_id, [rows[i] for i in active])
        else:
            batch.extend(places, observations)
    return Played(time.perf_counter() - started, time.process_time() - cpu_s, num_sampled, right / len(rollouts))


class Padded:
    """Conversations of a batch with holes of padding, and the keys and values of what was fed of them."""

    def __init__(self, pad_id, rows):
        self.pad_id, self.cache = pad_id, None
        self.tokens = self.mask = torch.zeros((len(rows), 0), dtype=torch.long)
        self.append(rows)

    def append(self, rows):
        """Appends tokens, padded on their left."""
        width = max(map(len, rows))
        tokens = torch.full((len(rows), width), self.pad_id)
        mask = torch.zeros_like(tokens)
        for row, ids in enumerate(rows):
            tokens[row, width - len(ids) :] = torch.tensor(ids)
            mask[row, width - len(ids) :] = 1
        self.tokens, self.mask = torch.cat([self.tokens, tokens], 1), torch.cat([self.mask, mask], 1)

    def extend(self, places, observations):
        """Keeps some rows, and appends to each."""
        kept = torch.tensor(places)
        self.tokens, self.mask = self.tokens[kept], self.mask[kept]
        self.cache.batch_select_indices(kept)
        self.append(observations)

    def generate(self, model, limits, chat):
        """Samples a turn of every row."""
        width = self.tokens.shape[1]
        out = model.generate(
            self.tokens,
            attention_mask=self.mask,
            past_key_values=self.cache,
            return_dict_in_generate=True,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            max_new_tokens=max(1, limits.max_total_tokens - int(self.mask.sum(1).max())),
            eos_token_id=list(chat.stop_token_ids),
            pad_token_id=self.pad_id,
        )
        new = [until_stop(ids.tolist(), chat.stop_token_ids) for ids in out.sequences[:, width:]]
        self.tokens, self.cache = out.sequences, out.past_key_values
        lengths = torch.tensor([len(ids) for ids in new])
        sampled = torch.arange(out.sequences.shape[1] - width) < lengths[:, None]
        self.mask = torch.cat([self.mask, sampled.long()], 1)
        return new


def until_stop(ids, stops):
    return next((ids[: i + 1] for i, token in enumerate(ids) if token in stops), ids)


async def main(arguments):
    plan = check_spec([ROOT / "specs" / "search.yaml"], []).plan
    inputs = load_inputs(plan)
    tokenizer = load_tokenizer(inputs.model_path)
    harness = build_harness(plan.spec, tokenizer, lambda level, text: print(f"{level}: {text}"))
    path = arguments.model or inputs.model_path
    ours = load_model(path, dtype=torch.float32, device=torch.device("cpu"))
    theirs = AutoModelForCausalLM.from_pretrained(path, attn_implementation="sdpa")
    theirs.generation_config.max_length = None
    async with harness.opened():
        tools = SlowTools(harness.tools, arguments.tool_latency)
        played = {"rlf": [], "barrier": []}
        for round_ in range(arguments.rounds + 1):
            size = arguments.trajectories // 8
            tasks = inputs.train[round_ * size : (round_ + 1) * size]
            rollouts = [
                Rollout(f"{round_}/{task.id}/{k}", task, k, derive_seed(round_, task.id, k))
                for task in tasks
                for k in range(8)
            ]
            sampler = PolicyHost(
                ours,
                harness.chat.decode,
                num_slots=len(rollouts),
                max_tokens=harness.limits.max_total_tokens,
                schedule=Schedule.CLOCK if arguments.tool_latency else Schedule.LOGICAL,
            )
            async with sampler:
                one = await play_rlf(harness, tools, sampler, rollouts)
            torch.set_num_threads(arguments.cores)
            torch.manual_seed(round_)
            other = await play_barrier(
                harness, tools, theirs, rollouts, tokenizer.pad_token_id, feeds_again=arguments.feed_again
            )
            if round_:  # the first round warms both up
                played["rlf"].append(one)
                played["barrier"].append(other)
    report(played)


def report(played):
    """Prints medians of rlf and of another side, and the other's cost per token over rlf's."""
    print(f"{'':8} {'wall s':>8} {'CPU s':>8} {'sampled':>8} {'success':>8}   medians of {len(played['rlf'])} rounds")
    for name, runs in played.items():
        wall, cpu = median(p.wall_s for p in runs), median(p.cpu_s for p in runs)
        sampled, success = median(p.num_sampled for p in runs), median(p.success for p in runs)
        print(f"{name:8} {wall:8.3f} {cpu:8.3f} {sampled:8.0f} {success:8.3f}")
    _, peer = played
    for name, cost in (("wall", lambda p: p.wall_s), ("CPU", lambda p: p.cpu_s)):
        ratios = sorted(
            (cost(b) / b.num_sampled) / (cost(a) / a.num_sampled)
            for a, b in zip(played["rlf"], played[peer], strict=True)
        )
        print(f"{peer} / rlf, {name} per token: median {median(ratios):.2f}, from {ratios[0]:.2f} to {ratios[-1]:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trajectories", type=int, default=128, help="per round, a multiple of 8")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tool-latency", type=float, default=0.0, help="seconds added to each tool call")
    parser.add_argument("--cores", type=int, default=1, help="threads of the baseline; small models are slower on two")
    parser.add_argument("--model", help="a folder with trained weights; without: the untrained built-in model")
    parser.add_argument("--feed-again", action="store_true", help="the baseline keeps no keys over turns")
    asyncio.run(main(parser.parse_args()))
