"""Success of the games' model on the shipped questions with the true tools, apart from any training engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from statistics import fmean
from typing import NamedTuple

from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from rlf.builtin.bisect import Box
from rlf.builtin.compose import search
from rlf.builtin.encyclopedia.calculator import calculator
from rlf.builtin.names import builtin_path
from rlf.builtin.rooms import Vault
from rlf.builtin.tiny.evaluate import Episode, EvaluationQuestion, play_episodes
from rlf.builtin.tiny.layout import ToolCallTextError, opening_ids
from rlf.types import ToolOutput

__all__ = ["TOOLS_BY_GAME", "Figures", "play_game"]

_MAX_TURNS = 8
Tools = Mapping[str, Callable[..., object]]
TOOLS_BY_GAME: dict[str, Callable[[], Tools]] = {
    "rooms": lambda: {"open": Vault()},
    "bisect": lambda: {"probe": Box()},
    "compose": lambda: {"search": search, "calculator": calculator},
}
"""Makes the tools of one episode."""


class Figures(NamedTuple):
    """What a model did with the questions of a file."""

    success: float
    """The share of episodes that reached the tool's goal, or whose answer is right where the tools have none."""
    episode_tokens: float
    calls: float
    """Calls per episode."""


def play_game(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, name: str, *, num_samples: int, sample_seed: int | None
) -> Figures:
    """Plays each question of a file such as `rooms/heldout` `num_samples` times; greedily without a seed."""
    game = name.partition("/")[0]
    make_tools = TOOLS_BY_GAME[game]
    system = f"Tools: {', '.join(make_tools())}"
    rows = map(json.loads, builtin_path(name).read_text(encoding="utf-8").splitlines())
    questions = [EvaluationQuestion(row["question"], row["answer"], row["kind"]) for row in rows]
    episodes = [Episode(asked, opening_ids(tokenizer, system, asked.text)) for asked in questions * num_samples]
    tools_by_episode = {id(episode): make_tools() for episode in episodes}
    reached: set[int] = set()
    run_call = partial(_run, tools_by_episode, reached)
    play_episodes(model, tokenizer, episodes, run_call, sample_seed, max_turns=_MAX_TURNS)
    num_right = sum(episode.is_success for episode in episodes) if game == "compose" else len(reached)
    return Figures(
        num_right / len(episodes),
        fmean(len(episode.token_ids) for episode in episodes),
        fmean(episode.num_calls for episode in episodes),
    )


def _run(
    tools_by_episode: Mapping[int, Tools], reached: set[int], episode: Episode, name: str, arguments: dict[str, str]
) -> str:
    """The result of a call; notes where it reached the goal."""
    try:
        typed = {key: int(value) if key == "number" else value for key, value in arguments.items()}
        result = tools_by_episode[id(episode)][name](**typed)
    except (KeyError, TypeError) as fault:
        raise ToolCallTextError(f"no tool {name!r} with {sorted(arguments)}") from fault
    except ValueError as fault:
        return f"Error: {fault}"
    if not isinstance(result, ToolOutput):
        return str(result)
    if result.structured["is_goal"] and result.text == episode.question.answer:
        reached.add(id(episode))
    return result.text
