"""One decode tick: a forward pass over decoding and joining rows together, and one token drawn for each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch.nn.functional import pad

from rlf.engines.local.attention import ragged_layout, run_shape, using
from rlf.engines.local.cache import BLOCK, round_up
from rlf.engines.local.model import PolicyModel
from rlf.engines.local.slots import Row, Slots
from rlf.training.draw import draw, likeliest
from rlf.types.policy import Finish, Sampling


class Decoder:
    """Advances the rows of `slots`; used by one thread at a time."""

    def __init__(
        self, model: PolicyModel, slots: Slots, decode: Callable[[Sequence[int]], str], *, invariant: bool = False
    ) -> None:
        """Takes the rows. Args: invariant: whether no row's bits may depend on the others."""
        self._model = model
        self._invariant = invariant
        self.version: int | None = None
        """Updates that the policy has seen, which is recorded with each token; None: it is not."""
        self._slots = slots
        self._decode = decode

    @torch.inference_mode()
    def tick(self, joining: Sequence[Row]) -> list[Row]:
        """Samples one token for each decoding and joining row; returns the rows whose turn ended, by slot.

        Of joining rows that start from the very same prompt only the first, the leader, is fed; its followers copy
        its keys and values.
        """
        slots = self._slots
        slots.fit_cache()
        decoding = slots.active
        leaders, followers = by_shared_prompt(joining)
        if self._invariant:
            leaders.sort(key=lambda row: run_shape(row.num_cached, len(row.pending)))
        for row in [*leaders, *(follower for follower, _ in followers)]:
            slots.activate(row)
        logits_BV = self._forward(decoding, leaders)
        for row in [*decoding, *leaders]:
            row.num_cached = len(row.context)
        for row, leader in followers:
            slots.cache.copy(leader.slot, row.slot, leader.num_cached)
            row.num_cached = leader.num_cached
        if followers:
            place = {leader.id: len(decoding) + index for index, leader in enumerate(leaders)}
            sources = [*range(len(logits_BV)), *(place[leader.id] for _, leader in followers)]
            logits_BV = logits_BV[torch.tensor(sources, device=logits_BV.device)]
        self._append(slots.active, logits_BV)
        finished = [row for row in slots.active if row.finish is not None]
        for row in reversed(finished):
            slots.deactivate(row)
        return finished

    def _forward(self, decoding: Sequence[Row], leaders: Sequence[Row]) -> torch.Tensor:
        """The next-token logits of decoding rows, then of leaders: [A + R, V], float32."""
        cache = self._slots.cache
        runs = [row.pending for row in leaders]
        layout = ragged_layout(
            cache,
            [row.num_cached for row in decoding],
            [(row.num_cached, len(run)) for row, run in zip(leaders, runs, strict=True)],
            invariant=self._invariant,
        )
        tokens = [row.context[-1] for row in decoding]
        last = list(range(len(decoding)))
        for run in runs:
            tokens += run
            last.append(len(tokens) - 1)
        num_rows = len(last)
        last += last[-1:] * (round_up(num_rows) - num_rows if self._invariant else 0)
        tokens += tokens[-1:] * layout.num_filling
        with using(layout):
            hidden_1NH = self._model.hidden(torch.tensor([tokens], device=cache.device), layout.positions_N[None])
        hidden_NH = hidden_1NH[0]
        if runs or self._invariant:
            hidden_NH = hidden_NH[torch.tensor(last, device=cache.device)]
        logits_BV = self._model.logits(hidden_NH).float()[:num_rows]
        if self._invariant:  # where a vector's length is no multiple, its last numbers are rounded in another way
            logits_BV = pad(logits_BV, (0, -logits_BV.shape[-1] % (4 * BLOCK)), value=-math.inf)
        return logits_BV

    def _append(self, rows: Sequence[Row], logits_BV: torch.Tensor) -> None:
        """Draws a token for every row, rows of equal sampling settings together."""
        settings = [row.turn.sampling for row in rows]
        for sampling in dict.fromkeys(settings):
            index = [i for i, other in enumerate(settings) if other == sampling]
            part_BV = logits_BV if len(index) == len(rows) else logits_BV[index]
            self._append_drawn([rows[i] for i in index], part_BV, sampling)

    def _append_drawn(self, rows: Sequence[Row], logits_BV: torch.Tensor, sampling: Sampling) -> None:
        noise = [row.next_uniform for row in rows]
        uniforms_B = torch.tensor(noise, dtype=torch.float64, device=logits_BV.device)
        tokens_B, logprobs_B = draw(logits_BV, uniforms_B, sampling)
        if sampling.num_top is not None:
            for row, tops in zip(rows, likeliest(logits_BV, tokens_B, sampling.num_top), strict=True):
                row.tops.append(tops)
        for row, token, logprob in zip(rows, tokens_B.tolist(), logprobs_B.tolist(), strict=True):
            row.tokens.append(token)
            row.logprobs.append(logprob)
            row.context.append(token)
            if self.version is not None:
                row.versions.append(self.version)
            row.finish = self._finish(row, token)

    def _finish(self, row: Row, token: int) -> Finish | None:
        sampling = row.turn.sampling
        if token in sampling.stop_token_ids:
            return Finish.STOP
        if sampling.stop_strings and self._ends_in_stop_string(row, sampling.stop_strings):
            return Finish.STOP
        return Finish.LENGTH if len(row.tokens) >= row.turn.max_tokens else None

    def _ends_in_stop_string(self, row: Row, stop_strings: Sequence[str]) -> bool:
        reach = max(len(stop.encode()) for stop in stop_strings)
        tail = self._decode(row.tokens[-reach:])
        return any(stop in tail for stop in stop_strings)


def by_shared_prompt(joining: Sequence[Row]) -> tuple[list[Row], list[tuple[Row, Row]]]:
    """Splits joining rows into leaders, to be fed, and (follower, leader) pairs of equal prompts."""
    leaders: list[Row] = []
    followers: list[tuple[Row, Row]] = []
    leader_by_prompt: dict[tuple[int, ...], Row] = {}
    for row in joining:
        prompt = tuple(row.context) if row.num_cached == 0 else None
        if prompt is not None and prompt in leader_by_prompt:
            followers.append((row, leader_by_prompt[prompt]))
            continue
        if prompt is not None:
            leader_by_prompt[prompt] = row
        leaders.append(row)
    return leaders, followers
