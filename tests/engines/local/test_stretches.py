"""Forked trajectories in the local engine: sampled as if begun anew, trained as sequences of their own."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
import torch

from rlf.training.batch import make_batch
from rlf.types import SampleRequest, Sampling

from .test_sampler import PLAIN, new_sampler, recomputed
from .test_update import fresh_model, new_updater, scored, weights  # noqa: F401  # a fixture


@pytest.mark.parametrize("shared", [0, 4, 9])
def test_a_fresh_context_is_sampled_as_a_new_one_would_be(model, shared):
    first, second = list(range(5, 17)), [*range(5, 5 + shared), *range(60, 66)]

    async def main():
        sampler = new_sampler(model)
        sampler.open(["t"])
        one = await sampler.sample(SampleRequest("t", first, 5, PLAIN, seed=1))
        request = SampleRequest("t", second, 6, PLAIN, seed=1, num_sampled=len(one.tokens), fresh=True)
        two = await sampler.sample(request)
        sampler.release("t")
        await sampler.close()
        return two

    sample = asyncio.run(asyncio.wait_for(main(), 60))
    plain = recomputed(model, [*second, *sample.tokens])[len(second) - 1 :]
    assert sample.logprobs == pytest.approx(plain, abs=2e-5)


def test_a_context_that_shrinks_to_what_is_cached_is_sampled_too(model):
    async def main():
        sampler = new_sampler(model, max_tokens=20)
        sampler.open(["t"])
        one = await sampler.sample(SampleRequest("t", list(range(5, 17)), 8, Sampling(), seed=1))
        sampled = 8
        for _ in range(4):  # more than `max_tokens` are sampled in all, each stretch within it
            request = SampleRequest("t", list(range(5, 12)), 8, Sampling(), 1, sampled, fresh=True)
            two = await sampler.sample(request)
            sampled += 8
        sampler.release("t")
        await sampler.close()
        return one, two

    one, two = asyncio.run(asyncio.wait_for(main(), 60))
    assert len(one.tokens) == len(two.tokens) == 8
    plain = recomputed(model, [*range(5, 12), *two.tokens])[6:]
    assert two.logprobs == pytest.approx(plain, abs=2e-5)


def forked(index, group, reward):
    """prompt, action | context, action: two stretches."""
    whole = scored(index, group, reward)
    return replace(whole, trajectory=replace(whole.trajectory, forks=(9,)))


def test_a_batch_without_forks_is_read_as_it_is():
    batch = make_batch([scored(i, 0, float(i)) for i in range(3)])
    assert batch.by_stretch() is batch


def test_stretches_are_rows_and_come_together_again():
    items = [forked(0, 0, 1.0), scored(1, 0, 0.0), forked(2, 1, 0.5)]
    batch = make_batch(items)
    rows = batch.by_stretch()
    assert rows.lengths_B.tolist() == [9, 7, 16, 9, 7]
    assert rows.rewards_B.tolist() == [1.0, 1.0, 0.0, 0.5, 0.5]
    assert rows.tokens_BT[1, :7].tolist() == list(items[0].trajectory.tokens[9:])
    assert int(rows.loss_mask_BT.sum()) == int(batch.loss_mask_BT.sum())
    assert torch.equal(batch.stretches.join(rows.tokens_BT, batch.tokens_BT.shape), batch.tokens_BT)


def test_advantages_are_of_trajectories_and_gradients_of_stretches(fresh_model):  # noqa: F811
    """The gradient equals that of the stretches as rows with the trajectories' advantages, written out."""
    items = [forked(i, i // 2, float(i % 2)) for i in range(4)]
    batch = make_batch(items)
    updater = new_updater(fresh_model, max_grad_norm=1e9)
    advantages_B = updater.update(make_batch([scored(i, i // 2, float(i % 2)) for i in range(4)]), 1).advantages
    rows = batch.by_stretch()
    logits = fresh_model.full(input_ids=rows.tokens_BT, use_cache=False).logits[:, :-1]
    logprobs = logits.log_softmax(-1).gather(2, rows.tokens_BT[:, 1:, None])[..., 0]
    mask = rows.loss_mask_BT[:, 1:]
    weight = torch.tensor(advantages_B)[torch.tensor(batch.stretches.rows), None]
    expected = torch.autograd.grad(-(weight * logprobs * mask).sum() / mask.sum(), list(fresh_model.full.parameters()))
    taken = []
    fresh = new_updater(fresh_model, max_grad_norm=1e9)
    fresh.optimizer.step = lambda: taken.extend(p.grad.clone() for p in fresh_model.full.parameters())
    result = fresh.update(batch, 1)
    assert result.advantages == pytest.approx(advantages_B)
    for got, want in zip(taken, expected, strict=True):
        assert torch.allclose(got, want, atol=1e-5)


@pytest.mark.parametrize("place", ["loss", "reward"])
def test_a_reference_and_several_epochs_read_stretches_too(fresh_model, place):  # noqa: F811
    from rlf.spec.models import KlSpec

    reference = fresh_model
    updater = new_updater(
        fresh_model,
        reference=reference,
        kl=KlSpec(coef=0.1, kind="k2" if place == "loss" else "k1", place=place),
        epochs=2,
    )
    before = weights(fresh_model).clone()
    metrics = updater.update(make_batch([forked(i, i // 2, float(i % 2)) for i in range(4)]), 1).metrics
    assert all(torch.isfinite(torch.tensor(value)) for value in metrics.values())
    assert not torch.equal(before, weights(fresh_model))
