"""One decode tick: a forward pass over decoding and joining rows together, and one token drawn for each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from operator import is_

import numpy as np
import torch
from torch.nn.functional import pad

from rlf.core.text import count_shared
from rlf.engines.local.attention import AttentionRow, Slots, ragged_layout, run_shape, using
from rlf.engines.local.cache import BLOCK, round_up
from rlf.engines.local.model import PolicyModel
from rlf.training.draw import draw_tokens, likeliest
from rlf.types.policy import Finish, SampleRequest, Sampling

_MAX_RUN = 512
"""New tokens of a row that one forward pass takes."""
_MIN_SHARING = 2
"""Decoding rows for each distinct context, from which on only distinct ones are fed."""
_NUM_COMPARED = 4
"""Last tokens that are compared before whole contexts are."""


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
    def tick(self, joining: Sequence[AttentionRow]) -> list[AttentionRow]:
        """Samples one token for each decoding and joining row; returns the rows whose turn ended, by slot.

        Of rows with the very same tokens only the first, the leader, is fed; its followers copy keys and values, and
        draw from the same logits with numbers of their own.
        """
        slots = self._slots
        slots.lend(joining)
        decoding = list(slots.active)
        leaders, followers = by_context(joining)
        for row in leaders:
            self._borrow(row)
            self._prefill(row)
        leaders.sort(key=lambda row: run_shape(row.num_cached, len(row.pending), invariant=self._invariant))
        for row in [*leaders, *(follower for follower, _ in followers)]:
            slots.activate(row)
        firsts, twins = by_context(decoding)
        if len(decoding) < _MIN_SHARING * len(firsts):  # moving rows and copying keys would cost more than it saves
            firsts, twins = decoding, []
        slots.settle([*firsts, *leaders])
        logits_DV = self._forward(firsts, leaders)
        self._share(twins, followers)
        for row in slots.active:
            row.num_cached = len(row.context)
        source_B = None
        if twins or followers:
            place = {row.id: index for index, row in enumerate([*firsts, *leaders])}
            place |= {row.id: place[leader.id] for row, leader in [*twins, *followers]}
            source_B = torch.tensor([place[row.id] for row in slots.active], device=logits_DV.device)
        self._append(slots.active, logits_DV, source_B)
        finished = [row for row in slots.active if row.finish is not None]
        for row in reversed(finished):  # those behind first, so that only rows that go on take a place
            slots.deactivate(row)
        return finished

    def _prefill(self, row: AttentionRow) -> None:
        """Feeds a long run of tokens in pieces, so that no memory grows with its square; the last piece is left."""
        cache = self._slots.cache
        while len(row.pending) > _MAX_RUN:
            run = (row.num_cached, _MAX_RUN)
            layout = ragged_layout(cache, [], [run], first_slot=row.slot, invariant=self._invariant)
            piece = row.pending[:_MAX_RUN]
            piece += piece[-1:] * layout.num_filling
            with using(layout):
                self._model.hidden(torch.tensor([piece], device=cache.device), layout.positions_N[None])
            row.num_cached += _MAX_RUN

    def _borrow(self, row: AttentionRow) -> None:
        """Copies keys and values of a long beginning from the row that has most of it: with another question, mostly.

        Never if invariant: where a run begins, and with it its bits, would depend on the other rows.
        """
        source, known = row, row.num_cached
        for other in () if self._invariant else self._slots.rows:
            most = min(other.num_cached, len(row.context) - 1)
            # Once one has given all, no other has more to give, and their tokens are not compared.
            if other is not row and most >= known + _MAX_RUN:
                shared = min(count_shared(row.context, other.context), most)
                source, known = (other, shared) if shared >= known + _MAX_RUN else (source, known)
        if source is not row:
            self._slots.cache.copy(source.slot, slice(row.slot, row.slot + 1), row.num_cached, known)
            row.num_cached = known

    def _share(
        self, twins: Sequence[tuple[AttentionRow, AttentionRow]], followers: Sequence[tuple[AttentionRow, AttentionRow]]
    ) -> None:
        """Copies keys and values of what was fed from leaders to their followers."""
        cache = self._slots.cache
        if twins:
            rows, leaders = zip(*twins, strict=True)
            cache.copy_tokens(
                [leader.slot for leader in leaders], [row.slot for row in rows], [row.num_cached for row in rows]
            )
        # Those of one leader that sit next to each other take one copy.
        for (leader_slot, _), part in groupby(enumerate(followers), lambda at: (at[1][1].slot, at[1][0].slot - at[0])):
            alike = [row for _, (row, _) in part]
            targets = slice(alike[0].slot, alike[-1].slot + 1)
            cache.copy(leader_slot, targets, alike[0].num_cached, len(alike[0].context))

    def _forward(self, decoding: Sequence[AttentionRow], leaders: Sequence[AttentionRow]) -> torch.Tensor:
        """The next-token logits of decoding rows, those of the first slots, then of leaders: [A + R, V], float32."""
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

    def _append(self, rows: Sequence[AttentionRow], logits_DV: torch.Tensor, source_B: torch.Tensor | None) -> None:
        """Draws a token for every row, of equal sampling settings together. Args: source_B: as `draw` takes it."""
        settings = [row.turn.sampling for row in rows]
        if all(map(partial(is_, settings[0]), settings)):  # the usual case, without a hash of each
            self._append_drawn(rows, logits_DV, settings[0], source_B)
            return
        logits_BV = logits_DV if source_B is None else logits_DV[source_B]
        for sampling in dict.fromkeys(settings):
            index = [i for i, other in enumerate(settings) if other == sampling]
            part_BV = logits_BV if len(index) == len(rows) else logits_BV[index]
            self._append_drawn([rows[i] for i in index], part_BV, sampling)

    def _append_drawn(
        self,
        rows: Sequence[AttentionRow],
        logits_BV: torch.Tensor,
        sampling: Sampling,
        source_B: torch.Tensor | None = None,
    ) -> None:
        if source_B is not None and (sampling.form is not None or sampling.num_top is not None):  # of each row's own
            logits_BV, source_B = logits_BV[source_B], None
        if sampling.form is not None:
            allowed = np.stack([row.state.allowed(logits_BV.shape[-1]) for row in rows if row.state is not None])
            logits_BV = logits_BV.masked_fill(~torch.from_numpy(allowed).to(logits_BV.device), -math.inf)
        noise = [row.next_uniform for row in rows]
        uniforms_B = torch.tensor(noise, dtype=torch.float64, device=logits_BV.device)
        tokens_B, logprobs_B = draw_tokens(logits_BV, uniforms_B, sampling, source_B)
        if sampling.num_top is not None:
            for row, tops in zip(rows, likeliest(logits_BV, tokens_B, sampling.num_top), strict=True):
                row.tops.append(tops)
        for row, token, logprob in zip(rows, tokens_B.tolist(), logprobs_B.tolist(), strict=True):
            row.tokens.append(token)
            row.logprobs.append(logprob)
            row.context.append(token)
            if row.state is not None:
                row.state.take(token)
            if self.version is not None:
                row.versions.append(self.version)
            row.finish = self._finish(row, token, sampling)

    def _finish(self, row: AttentionRow, token: int, sampling: Sampling) -> Finish | None:
        if token in sampling.stop_token_ids:
            return Finish.STOP
        if sampling.stop_strings and self._ends_in_stop_string(row, sampling.stop_strings):
            return Finish.STOP
        return Finish.LENGTH if len(row.tokens) >= row.turn.max_tokens else None

    def _ends_in_stop_string(self, row: AttentionRow, stop_strings: Sequence[str]) -> bool:
        reach = max(len(stop.encode()) for stop in stop_strings)
        tail = self._decode(row.tokens[-reach:])
        return any(stop in tail for stop in stop_strings)


def by_context(rows: Sequence[AttentionRow]) -> tuple[list[AttentionRow], list[tuple[AttentionRow, AttentionRow]]]:
    """Splits rows into leaders, to be fed, and (follower, leader) pairs of equal tokens, as many of them cached."""
    leaders: list[AttentionRow] = []
    followers: list[tuple[AttentionRow, AttentionRow]] = []
    found: dict[tuple[int, ...], list[AttentionRow]] = {}
    for row in rows:
        context = row.context
        alike = found.setdefault((row.num_cached, len(context), *context[-_NUM_COMPARED:]), [])
        for leader in alike:
            if leader.context == context:
                followers.append((row, leader))
                break
        else:
            alike.append(row)
            leaders.append(row)
    return leaders, followers


# Whether this machine's kernels give a row the same bits in every batch, as `schedule: invariant` needs.
#
# On CPUs they do once the shapes are right (`rlf.engines.local.attention`); no library promises it, so it is tried.

_LENGTHS = (3, 17, 40, 5, 33, 16, 70)
"""Tokens of the prompts that are tried."""
_NUM_TICKS = 3


def is_invariant(model: PolicyModel) -> bool:
    """Samples a few prompts together and alone. Whether no bit differs."""
    vocabulary = model.config.vocab_size
    prompts = [[(7 * row + 3 * at) % vocabulary for at in range(length)] for row, length in enumerate(_LENGTHS)]
    return _sample(model, prompts) == [_sample(model, [prompt])[0] for prompt in prompts]


def _sample(model: PolicyModel, prompts: Sequence[Sequence[int]]) -> list[tuple[list[int], list[float]]]:
    """The tokens of each prompt's continuation with their log-probabilities."""
    slots = Slots(model.new_cache(0, 0), len(prompts))
    decoder = Decoder(model, slots, lambda _: "", invariant=True)
    rows = [AttentionRow(str(place)) for place in range(len(prompts))]
    for row, prompt in zip(rows, prompts, strict=True):
        row.begin(SampleRequest(row.id, prompt, _NUM_TICKS, Sampling(), seed=0), None, 0)
        slots.away.append(row)
    decoder.tick(rows)
    for _ in range(_NUM_TICKS - 1):
        decoder.tick([])
    return [(row.tokens, row.logprobs) for row in rows]
