"""Whether this machine's kernels give a row the same bits in every batch, as `schedule: invariant` needs.

On CPUs they do once the shapes are right (`rlf.engines.local.attention`); no library promises it, so it is tried.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlf.core.errors import RlfError
from rlf.engines.local.decode import Decoder
from rlf.engines.local.model import PolicyModel
from rlf.engines.local.slots import Row, Slots
from rlf.types.policy import SampleRequest, Sampling

_LENGTHS = (3, 17, 40, 5, 33, 16, 70)
"""Tokens of the prompts that are tried."""
_NUM_TICKS = 3


def check_invariance(model: PolicyModel) -> None:
    """Samples a few prompts together and alone. Raises RlfError where a bit differs."""
    vocabulary = model.config.vocab_size
    prompts = [[(7 * row + 3 * at) % vocabulary for at in range(length)] for row, length in enumerate(_LENGTHS)]
    together = _sample(model, prompts)
    alone = [_sample(model, [prompt])[0] for prompt in prompts]
    if together != alone:
        raise RlfError(
            f"rollout.schedule: got invariant; on this machine's {model.device} the numbers of a row depend on "
            "the other rows of its batch. Write logical or clock."
        )


def _sample(model: PolicyModel, prompts: Sequence[Sequence[int]]) -> list[tuple[list[int], list[float]]]:
    """The tokens of each prompt's continuation with their log-probabilities."""
    slots = Slots(model.new_cache(0, 0), len(prompts))
    decoder = Decoder(model, slots, lambda _: "", invariant=True)
    rows = [Row(str(place)) for place in range(len(prompts))]
    for row, prompt in zip(rows, prompts, strict=True):
        row.begin(SampleRequest(row.id, prompt, _NUM_TICKS, Sampling(), seed=0), None, 0)
        slots.admit(row)
    decoder.tick(rows)
    for _ in range(_NUM_TICKS - 1):
        decoder.tick([])
    return [(row.tokens, row.logprobs) for row in rows]
