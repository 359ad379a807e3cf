"""Micro-batches as the model reads them: rows of a batch, what they begin with in common computed once."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rlf.algo.logprobs import Shift, shift, token_logprobs
from rlf.engines.local.attention import using
from rlf.engines.local.cache import PrefixTree, merge_prefixes
from rlf.engines.local.model import Critic, PolicyModel
from rlf.training.batch import Batch


def logprobs_of(model: PolicyModel, temperature: float, part: MicroBatch) -> torch.Tensor:
    return part.logprobs(model, temperature)[0]


def entropies_of(model: PolicyModel, temperature: float, part: MicroBatch) -> torch.Tensor:
    return part.logprobs(model, temperature)[1]


def critic_values_of(critic: Critic, part: MicroBatch) -> torch.Tensor:
    return part.spread(critic.values(part.hidden(critic.model)))


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One micro-batch: rows of a batch, cut to the longest of them, and the M predictions that their losses read."""

    tokens_BT: torch.Tensor
    loss_mask_BT: torch.Tensor
    observation_mask_BT: torch.Tensor | None
    shift: Shift
    """Of the tokens of either mask."""
    tree: PrefixTree | None
    """The rows as the model reads them; None: as they are, padding included."""
    source_M: torch.Tensor
    """int64: where the model's hidden states predict."""
    targets_M: torch.Tensor
    """int64: what is predicted there."""
    index_N: torch.Tensor | None
    """int64: the prediction of each token of the loss mask; None: one each, in order."""

    @classmethod
    def of(cls, batch: Batch, rows: torch.Tensor, *, share_prefixes: bool) -> MicroBatch:
        lengths_B = batch.lengths_B[rows]
        width = int(lengths_B.max())
        tokens_BT, mask_BT = batch.tokens_BT[rows, :width], batch.loss_mask_BT[rows, :width]
        seen_BT = None if batch.observation_mask_BT is None else batch.observation_mask_BT[rows, :width]
        moved = shift(tokens_BT, mask_BT if seen_BT is None else mask_BT | seen_BT)
        if not share_prefixes:  # the prediction of each token is read where it stands, padding and all
            return cls(tokens_BT, mask_BT, seen_BT, moved, None, moved.source_N, moved.targets_N, None)
        tree = merge_prefixes(tokens_BT, lengths_B)
        # From a token's place in the padded rows to its node of the tree. Several tokens may have one node, whose
        # logits are computed once: M nodes that are read, N tokens that read them, and for each token the number of its
        # node, which is how many nodes before it are read.
        index_BT = tree.index_RT.flatten()
        slot_N = index_BT[moved.slot_N]
        is_read = torch.zeros_like(tree.tokens_N, dtype=torch.bool).index_fill(0, slot_N, True)
        slot_M, index_N = is_read.nonzero()[:, 0], (is_read.cumsum(0) - 1)[slot_N]
        # A node is predicted by the hidden state of its parent: the token before it, in whichever row that stands.
        return cls(tokens_BT, mask_BT, seen_BT, moved, tree, tree.parent_N[slot_M], tree.tokens_N[slot_M], index_N)

    @property
    def width(self) -> int:
        return self.tokens_BT.shape[1]

    def hidden(self, model: PolicyModel) -> torch.Tensor:
        """The hidden states that predict, [M, H]."""
        if self.tree is None:
            return model.hidden(self.tokens_BT).flatten(0, 1)[self.source_M]
        with using(self.tree):
            return model.hidden(self.tree.tokens_N[None], self.tree.positions_N[None])[0].index_select(0, self.source_M)

    def spread(self, values_M: torch.Tensor) -> torch.Tensor:
        """A value for each token of the loss mask, [N], from those of the predictions."""
        return values_M if self.index_N is None else values_M.index_select(0, self.index_N)

    def logprobs(self, model: PolicyModel, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probability and entropy of each token of the loss mask, [N]."""
        logits_MV = model.logits(self.hidden(model))
        logprobs_M, entropy_M = token_logprobs(logits_MV, self.targets_M, temperature, with_entropy=True)
        assert entropy_M is not None, "entropy was asked for"
        return self.spread(logprobs_M), self.spread(entropy_M)
