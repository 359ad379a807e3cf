"""Success of a tiny model on questions with the true tools, over several turns, in batches.

The loop is small and plain on purpose: the figures of the card come from here, apart from any training engine.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import torch
from transformers import DynamicCache, PreTrainedTokenizerFast, Qwen3ForCausalLM

from benchmarks.embedded.places import place_of
from benchmarks.embedded.tiny.layout import ToolCallTextError, observation_ids, parse_calls, prompt_ids
from benchmarks.embedded.tiny.tokenizer import END_OF_TURN

Tool = Callable[[str], str]
_MAX_TURNS = 4
_MAX_TURN_TOKENS = 40
_BATCH_SIZE = 256


class EvaluationQuestion(NamedTuple):
    """One row of a question file."""

    text: str
    answer: str
    kind: str


def read_questions(name: str) -> list[EvaluationQuestion]:
    """The shipped questions of a file such as `encyclopedia/validation`."""
    rows = map(json.loads, place_of(name).read_text(encoding="utf-8").splitlines())
    return [EvaluationQuestion(row["question"], row["answer"], row["kind"]) for row in rows]


@dataclass(slots=True)
class Episode:
    """One question and what the model made of it."""

    question: EvaluationQuestion
    token_ids: list[int]
    """Of the prompt at first."""
    run_call: Callable[[str, dict[str, str]], str]
    """The text of a result, of a tool's name and arguments; raises ToolCallTextError where a call ends the episode."""
    num_actions: int = 0
    """Tokens sampled so far."""
    num_calls: int = 0
    answer: str | None = None
    """None: no final answer, because a call could not be read or the turns ran out."""
    is_done: bool = False
    turn_ids: list[int] = field(default_factory=list)
    """The latest turn."""

    @property
    def is_success(self) -> bool:
        """Exact match."""
        return self.answer == self.question.answer


def play(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    tools: Mapping[str, Tool],
    questions: Sequence[EvaluationQuestion],
    *,
    sample_seed: int | None,
) -> list[Episode]:
    """Play each question once, with `tools` declared; greedily where `sample_seed` is None, else at temperature 1."""
    run = partial(_run_tool, tools)
    episodes = [Episode(question, prompt_ids(tokenizer, list(tools), question.text), run) for question in questions]
    play_episodes(model, tokenizer, episodes, sample_seed)
    return episodes


def play_episodes(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    episodes: Sequence[Episode],
    sample_seed: int | None,
    *,
    max_turns: int = _MAX_TURNS,
    max_turn_tokens: int = _MAX_TURN_TOKENS,
) -> None:
    """Play episodes to their ends; greedily where `sample_seed` is None."""
    generator = None if sample_seed is None else torch.Generator().manual_seed(sample_seed)
    model.train(False)
    for first in range(0, len(episodes), _BATCH_SIZE):
        batch = episodes[first : first + _BATCH_SIZE]
        for _ in range(max_turns):
            active = [episode for episode in batch if not episode.is_done]
            if not active:
                break
            _sample_turns(model, tokenizer, active, generator, max_turn_tokens)
            for episode in active:
                _extend_episode(tokenizer, episode)


def success_by_kind(episodes: Sequence[Episode]) -> dict[str, float]:
    """The share of exact answers under each kind, and under "all"."""
    successes: defaultdict[str, list[bool]] = defaultdict(list)
    for episode in episodes:
        successes[episode.question.kind].append(episode.is_success)
        successes["all"].append(episode.is_success)
    return {kind: sum(values) / len(values) for kind, values in sorted(successes.items())}


def _extend_episode(tokenizer: PreTrainedTokenizerFast, episode: Episode) -> None:
    """Take the latest turn: run its calls, or end the episode."""
    text = str(tokenizer.decode(episode.turn_ids)).removesuffix(END_OF_TURN)
    try:
        calls = parse_calls(text)
        results = [episode.run_call(name, arguments) for name, arguments in calls]
    except ToolCallTextError:
        episode.is_done = True
        return
    if not calls:
        episode.answer, episode.is_done = text, True
        return
    episode.num_calls += len(calls)
    episode.token_ids += observation_ids(tokenizer, results)


def _run_tool(tools: Mapping[str, Tool], name: str, arguments: Mapping[str, str]) -> str:
    if name not in tools or len(arguments) != 1:
        raise ToolCallTextError(f"no tool {name!r} with {sorted(arguments)}")
    try:
        return tools[name](*arguments.values())
    except ValueError as fault:
        return f"Error: {fault}"


@torch.inference_mode()
def _sample_turns(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    episodes: Sequence[Episode],
    generator: torch.Generator | None,
    max_turn_tokens: int,
) -> None:
    """Sample each episode's next turn: one prefill of the left-padded rows, then one token at a time."""
    length = max(len(episode.token_ids) for episode in episodes)
    pad_id, end_id = int(tokenizer.pad_token_id), int(tokenizer.eos_token_id)
    paddings = [length - len(episode.token_ids) for episode in episodes]
    tokens_BT = torch.tensor(
        [[pad_id] * pad + episode.token_ids for pad, episode in zip(paddings, episodes, strict=True)]
    )
    attention_BT = torch.tensor([[0] * pad + [1] * (length - pad) for pad in paddings])
    positions_BT = (attention_BT.cumsum(1) - 1).clamp(min=0)
    cache = DynamicCache(config=model.config)
    for episode in episodes:
        episode.turn_ids = []
    is_open = [True] * len(episodes)
    for _ in range(max_turn_tokens):
        logits_BV = model(
            input_ids=tokens_BT,
            attention_mask=attention_BT,
            position_ids=positions_BT,
            past_key_values=cache,
            logits_to_keep=1,
        ).logits[:, -1]
        tokens_B = _pick_tokens(logits_BV, generator)
        for row, token_id in enumerate(tokens_B.tolist()):
            if is_open[row]:
                episodes[row].turn_ids.append(token_id)
                is_open[row] = token_id != end_id
        if not any(is_open):
            break
        tokens_BT = tokens_B[:, None]
        attention_BT = torch.cat([attention_BT, torch.ones_like(tokens_BT)], dim=1)
        positions_BT = positions_BT[:, -1:] + 1
    for episode in episodes:
        episode.token_ids += episode.turn_ids
        episode.num_actions += len(episode.turn_ids)


def _pick_tokens(logits_BV: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
    if generator is None:
        return logits_BV.argmax(-1)
    return torch.multinomial(logits_BV.softmax(-1), 1, generator=generator).squeeze(1)
