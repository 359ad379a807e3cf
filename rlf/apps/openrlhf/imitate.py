"""OpenRLHF's own supervised trainer (`openrlhf.cli.train_sft`) on rlf's tokens: a process of the job runs this module.

Two of its classes are replaced by ones that inherit from them: the dataset, which would write conversations by a
template and read its masks off the text, and the trainer, which reports its steps to TensorBoard and wandb alone. The
model, the order of updates, the loss, DeepSpeed and its checkpoints are OpenRLHF's.
"""

from __future__ import annotations

import runpy
import time
from collections.abc import Mapping
from typing import Any

import openrlhf.datasets
import openrlhf.trainer.sft_trainer
import torch
from openrlhf.datasets import SFTDataset
from openrlhf.trainer.sft_trainer import SFTTrainer


class TokenRows(SFTDataset):  # type: ignore[misc]  # OpenRLHF is not typed
    """The rows of `supervised.imitated_rows`: token ids, which of them were sampled, and when each is drawn."""

    def __init__(self, dataset: Any, tokenizer: Any, max_length: int, strategy: Any, **_settings: Any) -> None:
        """Tokenises nothing: `max_length` and a template have nothing to cut or write."""
        self.tokenizer = tokenizer
        drawn = {position: row for row, each in enumerate(dataset["drawn"]) for position in each}
        # The sampler shuffles by this very permutation (0.11.2); it is undone, so that a step has the demonstrations
        # that the lineage says. A loader that does not shuffle has them in another order, of which nothing depends.
        shuffled = torch.randperm(len(drawn), generator=torch.Generator().manual_seed(strategy.seed)).tolist()
        self._row_by_index = {index: drawn[position] for position, index in enumerate(shuffled)}
        self._tokens, self._sampled = dataset["tokens"], dataset["sampled"]

    def __len__(self) -> int:
        return len(self._row_by_index)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Token ids, what is no padding, and the loss mask, [1, T] each: of a token's loss at the token before it."""
        row = self._row_by_index[index]
        tokens_1T = torch.tensor([self._tokens[row]])
        sampled_1T = torch.tensor([self._sampled[row]], dtype=torch.float32)
        return tokens_1T, torch.ones_like(tokens_1T), torch.nn.functional.pad(sampled_1T[:, 1:], (0, 1))


class ReportingTrainer(SFTTrainer):  # type: ignore[misc]  # OpenRLHF is not typed
    """Prints each step as `train_ppo_ray` does, its mean over tokens of all processes, and the held-out loss."""

    loss_fn: Any

    def fit(self, *args: Any, **settings: Any) -> None:
        self._since, self._heldout = time.perf_counter(), dict[str, float]()
        super().fit(*args, **settings)

    def save_logs_and_checkpoints(
        self, args: Any, global_step: int, step_bar: Any, logs_dict: Mapping[str, float], client_states: Any
    ) -> None:
        """Prints after what a step ends with, so that a step that is printed has its evaluation and its checkpoint."""
        found = {"policy_loss": self.strategy.all_reduce(logs_dict["loss_mean"])}
        super().save_logs_and_checkpoints(args, global_step, step_bar, logs_dict, client_states)
        found |= {"actor_grad_norm": logs_dict["grad_norm"], "actor_lr": logs_dict["lr"], **self._heldout}
        now = time.perf_counter()
        found["timing/step_total"], self._since, self._heldout = now - self._since, now, {}
        if self.strategy.is_rank_0():
            print(f"\nGlobal step {global_step}: {found}", flush=True)  # noqa: T201  # the driver reads it

    def evaluate(self, eval_dataloader: Any, steps: int = 0) -> None:
        """OpenRLHF's mean is over batches of unequal length; what is printed is that over tokens."""
        mean, sums = self.loss_fn, [0.0, 0.0]

        def adding(logprobs_BT: torch.Tensor, mask_BT: torch.Tensor) -> torch.Tensor:
            sums[0] -= float((logprobs_BT * mask_BT).sum())
            sums[1] += float(mask_BT.sum())
            loss: torch.Tensor = mean(logprobs_BT, mask_BT)
            return loss

        self.loss_fn = adding
        super().evaluate(eval_dataloader, steps)
        self.loss_fn = mean
        total, count = (self.strategy.all_reduce(value, "sum") for value in sums)
        self._heldout = {"heldout_loss": total / count}


if __name__ == "__main__":
    openrlhf.datasets.SFTDataset = TokenRows
    openrlhf.trainer.sft_trainer.SFTTrainer = ReportingTrainer
    runpy.run_module("openrlhf.cli.train_sft", run_name="__main__", alter_sys=True)
