"""Where a model probes the boxes of bisect: `python -m benchmarks.probes [--weights FILE] [--limit 128]`.

Notes and calls are written for the model and only the numbers probed are sampled, six for each held-out box unless one
finds it. `note` is the probability of the right note, `inside` that of the numbers that are still possible, `chance`
their share of 63, `halving` how well the probe halves them. `--no-notes` is for a model that writes none; `note` is
then the probability that it probes at all.
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

from benchmarks.embedded.bisect.box import FOUND, HIGHER, NUM_NUMBERS, NUM_PROBES, Box
from benchmarks.embedded.places import place_of
from benchmarks.embedded.tiny.layout import call_text, observation_ids, opening_ids, turn_ids


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


def split_turn(
    tokenizer: PreTrainedTokenizerFast, game: Game, number: int, *, has_notes: bool
) -> tuple[list[int], list[int], int]:
    """The tokens of a turn before and after the number that it probes, and the number's."""
    token = tokenizer.encode(str(number), add_special_tokens=False)[0]
    note = f"{game.low - 1} {game.high + 1}\n" if has_notes else ""
    row = turn_ids(tokenizer, note + call_text([("probe", {"box": game.box, "number": number})]))
    place = len(row) - 1 - row[::-1].index(token)
    return row[:place], row[place + 1 :], token


def read_note(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, games: list[Game], *, has_notes: bool
) -> list[float]:
    """The probability of each game's right note; without notes, that of a call."""
    openings = [split_turn(tokenizer, game, 7, has_notes=has_notes)[0] for game in games]
    shares = [1.0] * len(games)
    for place in (0, 2) if has_notes else (0,):
        next_BV = read_next(
            model, [game.token_ids + opening[:place] for game, opening in zip(games, openings, strict=True)]
        )
        shares = [
            share * float(row[opening[place]]) for share, row, opening in zip(shares, next_BV, openings, strict=True)
        ]
    return shares


def play_probe(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    games: list[Game],
    generator: torch.Generator,
    *,
    has_notes: bool,
) -> dict[str, float | int | str]:
    """One probe of each box, and the row of the table."""
    number_ids = torch.tensor([tokenizer.encode(str(number))[0] for number in range(1, NUM_NUMBERS + 1)])
    note = read_note(model, tokenizer, games, has_notes=has_notes)
    opened = [game.token_ids + split_turn(tokenizer, game, 7, has_notes=has_notes)[0] for game in games]
    shares_BN = read_next(model, opened)[:, number_ids]
    shares_BN = shares_BN / shares_BN.sum(1, keepdim=True)
    inside = [float(row[game.low - 1 : game.high].sum()) for row, game in zip(shares_BN, games, strict=True)]
    chance = fmean((game.high - game.low + 1) / NUM_NUMBERS for game in games)
    drawn = (torch.multinomial(shares_BN, 1, generator=generator).squeeze(1) + 1).tolist()
    halving = [
        answer_probe(tokenizer, game, number, has_notes=has_notes) for game, number in zip(games, drawn, strict=True)
    ]
    return {
        "boxes": len(games),
        "note": round(fmean(note), 2),
        "inside": round(fmean(inside), 2),
        "chance": round(chance, 2),
        "halving": round(fmean(halving), 2),
        "most": " ".join(f"{number}x{count}" for number, count in Counter(drawn).most_common(6)),
    }


def answer_probe(tokenizer: PreTrainedTokenizerFast, game: Game, number: int, *, has_notes: bool) -> float:
    """Appends a probe and its answer; returns how well it halves what was possible."""
    before, after, token = split_turn(tokenizer, game, number, has_notes=has_notes)
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
    parser.add_argument("--model", type=Path, default=place_of("prober"))
    parser.add_argument("--weights", type=Path, help="a checkpoint's weights.safetensors, in place of the model's")
    parser.add_argument("--limit", type=int, default=128)
    parser.add_argument("--no-notes", dest="has_notes", action="store_false")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(asked.model)
    model = AutoModelForCausalLM.from_pretrained(asked.model, dtype=torch.float32).eval()
    if asked.weights:
        model.load_state_dict(load_file(asked.weights), strict=False)
    rows = [json.loads(line) for line in place_of("bisect/heldout").read_text(encoding="utf-8").splitlines()]
    questions = [row["question"] for row in rows[: asked.limit]]
    games = [Game(text.split()[1], opening_ids(tokenizer, "Tools: probe", text)) for text in questions]
    generator = torch.Generator().manual_seed(0)
    for probe in range(1, NUM_PROBES + 1):
        playing = [game for game in games if not game.is_found]
        if playing:
            row = play_probe(model, tokenizer, playing, generator, has_notes=asked.has_notes)
            print(json.dumps({"probe": probe, **row}), flush=True)
    print(json.dumps({"found": round(fmean(game.is_found for game in games), 3)}))


if __name__ == "__main__":
    main()
