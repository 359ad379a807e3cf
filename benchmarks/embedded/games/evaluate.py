"""Success of the games' model on the shipped questions with the true tools, apart from any training engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import fmean
from typing import NamedTuple

from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from benchmarks.embedded.bisect.box import Box
from benchmarks.embedded.compose.almanac import search
from benchmarks.embedded.tiny.evaluate import Episode, EvaluationQuestion, play_episodes, read_questions
from benchmarks.embedded.tiny.layout import ToolCallTextError, opening_ids
from rlf.builtin.encyclopedia.calculator import calculator
from rlf.builtin.rooms import Vault
from rlf.types import ToolOutput

_MAX_TURNS = 8
_Tools = Mapping[str, Callable[..., object]]
_TOOLS_BY_GAME: dict[str, Callable[[], _Tools]] = {
    "rooms": lambda: {"open": Vault()},
    "bisect": lambda: {"probe": Box()},
    "compose": lambda: {"search": search, "calculator": calculator},
}
"""Makes the tools of one episode."""


class Figures(NamedTuple):
    """Results of a model on the questions of a file."""

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
    make_tools = _TOOLS_BY_GAME[game]
    system = f"Tools: {', '.join(make_tools())}"
    played = [_Game(asked, make_tools()) for asked in read_questions(name) * num_samples]
    episodes = [Episode(one.asked, opening_ids(tokenizer, system, one.asked.text), one.run) for one in played]
    play_episodes(model, tokenizer, episodes, sample_seed, max_turns=_MAX_TURNS)
    right = [episode.is_success for episode in episodes] if game == "compose" else [one.is_reached for one in played]
    return Figures(
        fmean(right),
        fmean(len(episode.token_ids) for episode in episodes),
        fmean(episode.num_calls for episode in episodes),
    )


class _Game:
    """The tools of one episode, and whether they reached its goal."""

    def __init__(self, asked: EvaluationQuestion, tools: _Tools) -> None:
        self.asked, self._tools = asked, tools
        self.is_reached = False

    def run(self, name: str, arguments: dict[str, str]) -> str:
        """The result of a call."""
        try:
            typed = {key: int(value) if key == "number" else value for key, value in arguments.items()}
            result = self._tools[name](**typed)
        except (KeyError, TypeError) as fault:
            raise ToolCallTextError(f"no tool {name!r} with {sorted(arguments)}") from fault
        except ValueError as fault:
            return f"Error: {fault}"
        if not isinstance(result, ToolOutput):
            return str(result)
        self.is_reached |= result.structured["is_goal"] and result.text == self.asked.answer
        return result.text
