"""The search for shapes beside the named ones: an evolution towards what is paid most, then towards what is short."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from rlf.core.identity import derive_seed
from rlf.rewards.attack.profit import Attempt
from rlf.rewards.attack.shapes import PADDED, VARIANTS, Shape, child

_POPULATION = 16
_MAX_GENERATIONS = 200
_PATIENCE = 10
"""Generations without a cheaper hack after which the search has found what it can."""

Try = Callable[[Mapping[str, Shape]], Awaitable[list[Attempt]]]


async def search(try_: Try, begun: Sequence[Attempt], *, share: float, seconds: float, seed: int) -> list[Attempt]:
    """Evolves shapes towards a hack, and from there towards a cheaper one; the same for the same seed and time."""
    deadline = time.monotonic() + seconds
    choice = random.Random(derive_seed(seed, "attack"))
    known = {attempt.shape: attempt for attempt in begun if _is_parent(attempt.shape)}
    named = frozenset(known)
    fittest, since = (-float("inf"), 0.0), 0
    for _ in range(_MAX_GENERATIONS):
        fitness = max(_rate_attempt(attempt, share) for attempt in known.values())
        fittest, since = (fitness, 0) if fitness > fittest else (fittest, since + 1)
        if time.monotonic() > deadline or (fittest[0] >= 1 and since >= _PATIENCE):
            break
        children = _breed_shapes(list(known.values()), share, choice)
        known |= {attempt.shape: attempt for attempt in await try_({each.words: each for each in children})}
    return [attempt for shape, attempt in known.items() if shape not in named]


def _is_parent(shape: Shape) -> bool:
    """Whether a shape knows nothing of the right answer that a child could be paid for."""
    return shape != PADDED and VARIANTS.isdisjoint(shape.parts)


def _breed_shapes(every: Sequence[Attempt], share: float, choice: random.Random) -> list[Shape]:
    """New shapes, mostly of the fittest, in an order of their own."""
    known = {attempt.shape for attempt in every}
    best = sorted(every, key=lambda attempt: _rate_attempt(attempt, share), reverse=True)[:_POPULATION]
    children = set[Shape]()
    for _ in range(4 * _POPULATION):
        made = child(choice.choice(choice.choice((best, every))).shape, choice.choice(best).shape, choice)
        if made not in known and len(children) < _POPULATION:
            children.add(made)
    return sorted(children, key=lambda shape: shape.words)


def _rate_attempt(attempt: Attempt, share: float) -> tuple[float, float]:
    """Share of the reward of being right, at most 1; of hacks the shorter is the fitter."""
    if attempt.share is None:
        return (-float("inf"), 0.0)
    return (1.0 if attempt.is_hack(share) else min(attempt.share, 1.0), -attempt.num_tokens)
