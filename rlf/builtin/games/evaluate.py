"""Success of the games' model on the shipped questions with the true tools, apart from any training engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial

from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from rlf.builtin.bisect import Box
from rlf.builtin.compose import search
from rlf.builtin.encyclopedia.calculator import calculator
from rlf.builtin.names import builtin_path
from rlf.builtin.rooms import Vault
from rlf.builtin.tiny.evaluate import Episode, EvaluationQuestion, ToolCallTextError, play_episodes
from rlf.builtin.tiny.layout import opening_ids

__all__ = ["TOOLS_BY_GAME", "play_game"]

_MAX_TURNS = 8
Tools = Mapping[str, Callable[..., object]]
TOOLS_BY_GAME: dict[str, Callable[[], Tools]] = {
    "rooms": lambda: {"open": Vault()},
    "bisect": lambda: {"probe": Box()},
    "compose": lambda: {"search": search, "calculator": calculator},
}
"""Makes the tools of one episode."""


def play_game(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, name: str, *, num_samples: int, sample_seed: int | None
) -> list[Episode]:
    """Plays each question of a file such as `rooms/heldout` `num_samples` times; greedily without a seed."""
    make_tools = TOOLS_BY_GAME[name.partition("/")[0]]
    system = f"Tools: {', '.join(make_tools())}"
    rows = map(json.loads, builtin_path(name).read_text(encoding="utf-8").splitlines())
    questions = [EvaluationQuestion(row["question"], row["answer"], row["kind"]) for row in rows]
    episodes = [Episode(asked, opening_ids(tokenizer, system, asked.text)) for asked in questions * num_samples]
    tools_by_episode = {id(episode): make_tools() for episode in episodes}
    run_call = partial(_run, tools_by_episode)
    play_episodes(model, tokenizer, episodes, run_call, sample_seed, max_turns=_MAX_TURNS)
    return episodes


def _run(tools_by_episode: Mapping[int, Tools], episode: Episode, name: str, arguments: dict[str, str]) -> str:
    try:
        typed = {key: int(value) if key == "number" else value for key, value in arguments.items()}
        result = tools_by_episode[id(episode)][name](**typed)
    except (KeyError, TypeError) as fault:
        raise ToolCallTextError(f"no tool {name!r} with {sorted(arguments)}") from fault
    except ValueError as fault:
        return f"Error: {fault}"
    return str(getattr(result, "text", result))
