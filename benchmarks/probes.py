"""Where a model probes the boxes of bisect: `python benchmarks/probes.py [--weights FILE] [--limit 128]`.

The calls are written for the model and only their numbers are sampled, six for each held-out box unless one finds it.
`inside` is the probability of the numbers that are still possible, `chance` their share of 63, `halving` how well the
probe halves them, `calls` the probability that the model would probe at all.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast, Qwen3ForCausalLM

from rlf.builtin.bisect import Box
from rlf.builtin.bisect.box import FOUND, HIGHER, NUM_NUMBERS, NUM_PROBES
from rlf.builtin.names import builtin_path
from rlf.builtin.tiny.layout import call_text, observation_ids, opening_ids, turn_ids


@dataclass
class Game:
    """One box and what was probed of it."""

    box: str
    token_ids: list[int]
    tool: Box = field(default_factory=Box)
    low: int = 1
    high: int = NUM_NUMBERS
    is_found: bool = False


@torch.inference_mode()
def read_next(model: Qwen3ForCausalLM, rows: list[list[int]]) -> torch.Tensor:
    """The distribution of the token after each row."""
    lengths = torch.tensor([len(row) for row in rows])
    tokens_BT = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
    hidden_BTD = model.model(input_ids=tokens_BT, use_cache=False).last_hidden_state
    return model.lm_head(hidden_BTD[torch.arange(len(rows)), lengths - 1]).softmax(-1)


def split_call(tokenizer: PreTrainedTokenizerFast, box: str, number: int) -> tuple[list[int], list[int], int]:
    """A call's tokens before its number and after it, and the number's."""
    token = tokenizer.encode(str(number), add_special_tokens=False)[0]
    row = turn_ids(tokenizer, call_text([("probe", {"box": box, "number": number})]))
    place = len(row) - 1 - row[::-1].index(token)
    return row[:place], row[place + 1 :], token


def play_probe(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, games: list[Game], generator: torch.Generator
) -> dict[str, float | int | str]:
    """One probe of each box, and the row of the table."""
    numbers = range(1, NUM_NUMBERS + 1)
    number_ids = torch.tensor([split_call(tokenizer, "Bednox", number)[2] for number in numbers])
    call_id = tokenizer.encode("<tool_call>", add_special_tokens=False)[0]
    calls = read_next(model, [game.token_ids for game in games])[:, call_id]
    opened = [game.token_ids + split_call(tokenizer, game.box, 7)[0] for game in games]
    shares_BN = read_next(model, opened)[:, number_ids]
    shares_BN = shares_BN / shares_BN.sum(1, keepdim=True)
    inside = [float(row[game.low - 1 : game.high].sum()) for row, game in zip(shares_BN, games, strict=True)]
    chance = fmean((game.high - game.low + 1) / NUM_NUMBERS for game in games)
    drawn = (torch.multinomial(shares_BN, 1, generator=generator).squeeze(1) + 1).tolist()
    halving = [answer_probe(tokenizer, game, number) for game, number in zip(games, drawn, strict=True)]
    return {
        "boxes": len(games),
        "calls": round(float(calls.mean()), 2),
        "inside": round(fmean(inside), 2),
        "chance": round(chance, 2),
        "halving": round(fmean(halving), 2),
        "most": " ".join(f"{number}x{count}" for number, count in Counter(drawn).most_common(6)),
    }


def answer_probe(tokenizer: PreTrainedTokenizerFast, game: Game, number: int) -> float:
    """Appends a probe and its answer; returns how well it halves what was possible."""
    before, after, token = split_call(tokenizer, game.box, number)
    output = game.tool(game.box, number)
    game.token_ids = [*game.token_ids, *before, token, *after, *observation_ids(tokenizer, [output.text])]
    if output.text.startswith(FOUND):
        game.is_found = True
    elif output.text.startswith(HIGHER):
        game.low = max(game.low, number + 1)
    else:
        game.high = min(game.high, number - 1)
    return float(output.structured["halving"])


def main() -> None:
    """Prints a JSON line for each probe, then the share of boxes that were found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=builtin_path("prober"))
    parser.add_argument("--weights", type=Path, help="a checkpoint's weights.safetensors, in place of the model's")
    parser.add_argument("--limit", type=int, default=128)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(asked.model)
    model = AutoModelForCausalLM.from_pretrained(asked.model, dtype=torch.float32).eval()
    if asked.weights:
        model.load_state_dict(load_file(asked.weights), strict=False)
    rows = [json.loads(line) for line in builtin_path("bisect/heldout").read_text(encoding="utf-8").splitlines()]
    questions = [row["question"] for row in rows[: asked.limit]]
    games = [Game(text.split()[1], opening_ids(tokenizer, "Tools: probe", text)) for text in questions]
    generator = torch.Generator().manual_seed(0)
    for probe in range(1, NUM_PROBES + 1):
        playing = [game for game in games if not game.is_found]
        if playing:
            print(json.dumps({"probe": probe, **play_probe(model, tokenizer, playing, generator)}), flush=True)
    print(json.dumps({"found": round(fmean(game.is_found for game in games), 3)}))


if __name__ == "__main__":
    main()
