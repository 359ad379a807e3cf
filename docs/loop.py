"""The algorithm of `rlf run docs/loop.yaml` in plain torch: generate, parse, invoke, mask, score, advantage, update.

It is here to be read. rlf does the same in batches, with a cache of keys and values, limits and a lineage; a test holds
tokens, advantages and losses of both equal. `python docs/loop.py` runs it, in about a minute.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlf.builtin.encyclopedia import calculator, search

SEED, STEPS, PROMPTS_PER_STEP, NUM_GENERATIONS = 0, 2, 4, 8
MAX_TURNS, MAX_TOTAL_TOKENS = 4, 320
LEARNING_RATE, CLIP, MAX_GRAD_NORM = 3e-4, 0.2, 1.0
TOOLS = {"search": search, "calculator": calculator}
BUILTIN = Path(search.__code__.co_filename).parents[1]
ASSISTANT = "<|im_start|>assistant\n"
CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)


class Trajectory:
    """Tokens, which of them the policy sampled, and with which log-probability."""

    def __init__(self, prompt: list[int]) -> None:
        self.tokens, self.action_mask, self.logprobs = list[int](), list[bool](), list[float]()
        self.reward = self.advantage = 0.0
        self.append(prompt)

    # MASK: what was sampled has log-probabilities and is in the loss, bit for bit; what tools returned is not.
    def append(self, tokens: list[int], logprobs: list[float] | None = None) -> None:
        self.tokens += tokens
        self.action_mask += [logprobs is not None] * len(tokens)
        self.logprobs += logprobs or [0.0] * len(tokens)


class Loop:
    """The policy, its tokenizer, its optimiser and the tasks in their order."""

    def __init__(self) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(BUILTIN / "tiny/checkpoint")
        self.end = self.tokenizer.convert_tokens_to_ids("<|im_end|>")
        self.model = AutoModelForCausalLM.from_pretrained(BUILTIN / "tiny/checkpoint")
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0)
        rows = (BUILTIN / "encyclopedia/data/train.jsonl").read_text().splitlines()
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(derive_seed(SEED, "order", 0)))
        self.tasks = [json.loads(rows[at]) for at in order]

    def step(self, number: int) -> tuple[list[Trajectory], float]:
        """Collects a group of trajectories for each task and updates the policy; returns them and the loss."""
        trajectories = []
        for at in range((number - 1) * PROMPTS_PER_STEP, number * PROMPTS_PER_STEP):
            group = [self.play(self.tasks[at], derive_seed(SEED, "rollout", at, n)) for n in range(NUM_GENERATIONS)]
            rewards_G = torch.tensor([each.reward for each in group])
            advantages_G = (rewards_G - rewards_G.mean()) / (rewards_G.std() + 1e-9)  # ADVANTAGE: GRPO's
            for each, advantage in zip(group, advantages_G.tolist(), strict=True):
                each.advantage = advantage
            trajectories += group
        return trajectories, self.update(trajectories)

    def play(self, task: dict[str, str], seed: int) -> Trajectory:
        """One trajectory: turns until an answer, a failure or a limit."""
        system = f"<|im_start|>system\nTools: {', '.join(TOOLS)}<|im_end|>\n<|im_start|>user\n"
        question = self.encode(task["question"], is_data=True)
        trajectory = Trajectory(self.encode(system) + question + self.encode("<|im_end|>\n" + ASSISTANT))
        uniforms = iter(np.random.Generator(np.random.Philox(key=seed)).random(MAX_TOTAL_TOKENS))
        for turn in range(1, MAX_TURNS + 1):
            tokens, logprobs = self.generate(trajectory.tokens, uniforms)
            trajectory.append(tokens, logprobs)
            has_ended = tokens[-1:] == [self.end]
            calls, answer = parse(self.tokenizer.decode(tokens[:-1] if has_ended else tokens), has_ended)
            if not calls or not has_ended or turn == MAX_TURNS:
                break
            trajectory.append(self.observation([invoke(call) for call in calls]))
        trajectory.reward = float(answer == task["answer"])  # SCORE: 1 for the right answer, else 0
        return trajectory

    # GENERATE: token after token, each drawn by a random number of the trajectory's own.
    @torch.no_grad()
    def generate(self, context: list[int], uniforms: Iterator[float]) -> tuple[list[int], list[float]]:
        tokens, logprobs = list[int](), list[float]()
        while len(context) + len(tokens) < MAX_TOTAL_TOKENS and tokens[-1:] != [self.end]:
            logits_V = self.model(torch.tensor([context + tokens]), logits_to_keep=1).logits[0, -1]
            logprobs_V = logits_V.log_softmax(-1)
            cumulative_V = logprobs_V.exp().cumsum(-1, dtype=torch.float64)
            token = int(torch.searchsorted(cumulative_V, next(uniforms) * cumulative_V[-1:], right=True))
            tokens.append(min(token, len(cumulative_V) - 1))
            logprobs.append(float(logprobs_V[tokens[-1]]))
        return tokens, logprobs

    # UPDATE: the clipped policy gradient, averaged over every sampled token of the step.
    def update(self, trajectories: list[Trajectory]) -> float:
        num_actions, loss = sum(sum(each.action_mask) for each in trajectories), torch.zeros(())
        for each in trajectories:
            logprobs_TV = self.model(torch.tensor([each.tokens])).logits[0, :-1].log_softmax(-1)
            logprobs_T = logprobs_TV.gather(-1, torch.tensor(each.tokens[1:])[:, None])[:, 0]
            logprobs = logprobs_T[torch.tensor(each.action_mask[1:])]  # token t is predicted at t - 1
            ratio = (logprobs - logprobs.detach()).exp()  # to the policy before the update: 1, with one update a step
            loss -= torch.minimum(ratio * each.advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * each.advantage).sum()
        (loss / num_actions).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), MAX_GRAD_NORM)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(loss.detach()) / num_actions

    def observation(self, results: list[str]) -> list[int]:
        tokens, before = list[int](), "\n<|im_start|>user"
        for result in results:
            tokens += self.encode(before + "\n<tool_response>\n") + self.encode(result, is_data=True)
            before = "\n</tool_response>"
        return tokens + self.encode(before + "<|im_end|>\n" + ASSISTANT)

    def encode(self, text: str, *, is_data: bool = False) -> list[int]:
        return self.tokenizer(text, split_special_tokens=is_data).input_ids  # no data can open a role


def parse(text: str, has_ended: bool) -> tuple[list[dict], str | None]:
    """PARSE: a turn's calls, or its answer; a malformed call, or a turn that was cut off, is neither."""
    try:
        calls = [json.loads(found) for found in CALL.findall(text)]
    except ValueError:
        return [], None
    return calls, text.strip() if has_ended and not calls and "<tool_call" not in text else None


def invoke(call: dict) -> str:
    """INVOKE: a tool's result, or what went wrong, as text for the policy."""
    try:
        return str(TOOLS[call["name"]](**call["arguments"]))
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        return f"error: {error}"


def derive_seed(*parts: int | str) -> int:
    """A seed for each purpose, so that no random number depends on what else is drawn."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


if __name__ == "__main__":
    loop = Loop()
    for number in range(1, STEPS + 1):
        trajectories, loss = loop.step(number)
        print(f"step {number}: mean reward {np.mean([each.reward for each in trajectories]):.3f}, loss {loss:.6f}")
