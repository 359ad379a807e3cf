"""Pipelined training: the next step's rollouts are sampled with a copy of the policy while the policy is updated."""

from __future__ import annotations

import copy
from functools import partial

import torch

from rlf.engines.local.host import PolicyHost
from rlf.engines.local.model import PolicyModel, split


class Pipeline:
    """The host of the copy, and when the copy takes new weights."""

    def __init__(self, host: PolicyHost, policy: PolicyModel, *, at_steps: bool) -> None:
        """Takes both.

        Args:
            host: of the copy, with which rollouts are sampled.
            at_steps: whether new weights wait for the step's last rollout, so that which weights sampled what follows
                from the seed; else they are taken as soon as the update is over, within trajectories too.
        """
        self.host = host
        self.at_steps = at_steps
        self._policy = policy

    async def renew(self, version: int) -> None:
        """Gives the copy the policy's weights between two ticks. Args: version: updates that these have seen."""
        await self.host.change_weights(partial(copy_weights, self._policy, self.host.model), version)


def copy_for_sampling(policy: PolicyModel) -> PolicyModel:
    """A frozen copy of a policy; weights that are not trained are shared."""
    shared = {id(parameter): parameter for parameter in policy.full.parameters() if not parameter.requires_grad}
    full = copy.deepcopy(policy.full, shared)
    full.requires_grad_(False)
    return split(full, policy.dtype, is_plain=policy.is_plain)


@torch.no_grad()
def copy_weights(source: PolicyModel, target: PolicyModel) -> None:
    """Copies the weights that are trained."""
    targets = dict(target.full.named_parameters())
    for name, parameter in source.full.named_parameters():
        if parameter.requires_grad:
            targets[name].copy_(parameter)
