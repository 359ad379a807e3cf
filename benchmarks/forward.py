"""The forward pass of a decode tick: rlf's own for plain decoders beside transformers' modules, the same operations.

Both take turns; the least CPU milliseconds of one pass are printed with the ratio, for several numbers of rows, each
with 100 tokens or a few more in the cache. The hidden states are compared bit for bit.

    python benchmarks/forward.py [--model rlf/builtin/tiny/checkpoint]
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import torch

from rlf.engines.local.attention import ragged_layout, using
from rlf.engines.local.model import load_model

TINY = Path(__file__).parents[1] / "rlf" / "builtin" / "tiny" / "checkpoint"
PASSES = 40


def measure(model, layout, tokens):
    started = time.thread_time()
    for _ in range(PASSES):
        with using(layout):
            hidden = model.hidden(tokens, layout.positions_N[None])
    return 1000 * (time.thread_time() - started) / PASSES, hidden


@torch.inference_mode()
def main(arguments):
    torch.set_num_threads(1)
    plain = load_model(arguments.model, dtype=torch.float32, device=torch.device("cpu"))
    assert plain.plain, "transformers runs this model"
    cache = plain.new_cache(256, 320)
    cache.fit(256, 320)
    print(f"{'rows':>5} {'transformers ms':>16} {'rlf ms':>8} {'ratio':>6}")
    for rows in (4, 8, 16, 32, 64, 128):
        layout = ragged_layout(cache, [100 + row % 30 for row in range(rows)], [])
        tokens = torch.arange(rows)[None]
        least = [1e9, 1e9]
        for _ in range(arguments.rounds):
            found = [measure(model, layout, tokens) for model in (replace(plain, plain=None), plain)]
            assert torch.equal(found[0][1], found[1][1]), "other bits"
            least = [min(before, taken) for before, (taken, _) in zip(least, found, strict=True)]
        print(f"{rows:5} {least[0]:16.2f} {least[1]:8.2f} {least[0] / least[1]:6.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(TINY))
    parser.add_argument("--rounds", type=int, default=8)
    main(parser.parse_args())
