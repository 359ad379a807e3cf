"""What OpenRLHF's own code makes of the agent's responses: exact masks, and no share for what is left out."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from rlf.apps.openrlhf.shared import round_reward

from ...algo.openrlhf_reference import openrlhf
from .agents import CALL, RIGHT, WRONG, new_job, play

LEFT_OUT = (
    "tools=[{name: search, description: finds, inputSchema: {type: object}, target: {kind: python, "
    'callable: "tests.apps.openrlhf.tools:unreachable"}}]',
    "engine.outage_s=0",
)
"""Overrides under which a trajectory that calls the tool is left out."""


def is_left_out(response):
    return response["extra_logs"]["unscorable"] == 1.0


def experience(response):
    """One response as OpenRLHF's sample generator reads it."""
    generator = openrlhf().SamplesGenerator.__new__(openrlhf().SamplesGenerator)
    return generator._process_response_into_experience({"prompt": "p", "label": "l", **response}, max_len=320)


def batch(responses):
    """One experience of all responses, right-padded as OpenRLHF does it."""
    items = [experience(response) for response in responses]
    width = max(item.action_mask.shape[1] for item in items)

    def padded(name):
        rows = [getattr(item, name)[0] for item in items]
        return torch.stack([torch.nn.functional.pad(row, (0, width - len(row))) for row in rows])

    return openrlhf().Experience(
        index=list(range(len(items))),
        rewards=torch.cat([item.rewards for item in items]),
        action_mask=padded("action_mask"),
        rollout_log_probs=padded("rollout_log_probs"),
        kl=torch.zeros(len(items), width),
        values=torch.zeros(len(items), width),
        info={},
    )


def advantages(responses, estimator):
    """Advantages [B, T] and the mask, by OpenRLHF's experience maker."""
    args = SimpleNamespace(
        rollout=SimpleNamespace(n_samples_per_prompt=len(responses), max_new_tokens=8),
        data=SimpleNamespace(max_len=320),
        reward=SimpleNamespace(clip_range=(-10, 10), overlong_buffer_len=None, stop_properly_penalty_coef=None),
        algo=SimpleNamespace(
            advantage=SimpleNamespace(estimator=estimator, gamma=1.0, lambd=1.0, no_std_norm=True),
        ),
    )
    maker = openrlhf().ExperienceMaker(
        None, None, None, None, SimpleNamespace(value=0.0), SimpleNamespace(args=args), None
    )
    (made,) = maker.compute_advantages_and_returns([batch(responses)])
    return made.advantages * made.action_mask, made.action_mask


def test_openrlhfs_action_mask_is_that_of_the_loop(load, tmp_path):
    (response,), _ = play(new_job(load, tmp_path), [CALL, RIGHT], samples=1)
    read = experience(response)
    sampled = {place for start, end in response["action_ranges"] for place in range(start, end)}
    assert [place + 1 for place, on in enumerate(read.action_mask[0].tolist()) if on] == sorted(sampled)
    assert read.rollout_log_probs[0].tolist() == pytest.approx(response["rollout_log_probs"][1:])


# A group of 4 with rewards 1, 0, 1 and one left out: among the others the mean is 2/3 and the deviations are
# 1/3, -2/3, 1/3. OpenRLHF's standard deviation is over 4: sqrt((1/9 + 4/9 + 1/9) / 3) = sqrt(2) / 3.
FACTORS = {
    "reinforce_baseline": 1.0,
    "dr_grpo": 1.0,
    "rloo": 4 / 3,
    "group_norm": 3 / 2**0.5,
}
"""Advantage over deviation from the others' mean."""


@pytest.mark.parametrize("estimator", FACTORS)
def test_a_trajectory_that_is_left_out_changes_the_others_by_the_documented_factor(estimator, load, tmp_path):
    responses, _ = play(new_job(load, tmp_path, *LEFT_OUT), [RIGHT, WRONG, CALL, RIGHT])
    advantages_BT, mask_BT = advantages(responses, estimator)
    for row, response in enumerate(responses):
        told = advantages_BT[row][mask_BT[row].bool()].unique().tolist()
        deviation = 0.0 if is_left_out(response) else response["reward"] - 2 / 3
        whitened = estimator == "reinforce_baseline"  # less the mean over tokens, which is 0 but for the lengths
        if whitened:
            deviation -= mean_over_tokens(responses)
        assert told == pytest.approx([deviation * FACTORS[estimator]], abs=1e-3)


def mean_over_tokens(responses):
    """Mean deviation over all tokens in the loss; that of the left-out trajectory is 0."""
    pairs = [
        (response["reward"] - 2 / 3, sum(end - start for start, end in response["action_ranges"]))
        for response in responses
    ]
    return sum(deviation * size for deviation, size in pairs) / sum(size for _, size in pairs)


def test_the_factors_are_those_of_the_documentation():
    n, k = 4, 1
    # group_norm: sqrt((n-1)/(n-k-1)) times 1 / std of the others, which is sqrt(2/3) / sqrt(2) = 1 / sqrt(3).
    assert FACTORS["group_norm"] == pytest.approx(((n - 1) / (n - k - 1)) ** 0.5 * 3**0.5)
    # rloo among the others: (n-k) / (n-k-1) = 3/2.
    assert FACTORS["rloo"] == pytest.approx(n * (n - k - 1) / ((n - 1) * (n - k)) * (n - k) / (n - k - 1))


@pytest.mark.parametrize(("kind", "level"), [("ppo", "off"), ("ppo", "token"), ("ppo", "seq"), ("gspo", "off")])
@pytest.mark.parametrize("by_token", [True, False])
def test_what_is_left_out_moves_no_weight_and_counts_once(kind, level, by_token, load, tmp_path):
    responses, _ = play(new_job(load, tmp_path, *LEFT_OUT), [RIGHT, WRONG, CALL, RIGHT])
    advantages_BT, mask_BT = advantages(responses, "group_norm")
    told = batch(responses)
    loss_of = openrlhf().PolicyLoss(token_level_loss=by_token, policy_loss_type=kind, is_correction_level=level)
    noise_BT = 0.1 * torch.sin(torch.arange(told.rollout_log_probs.numel())).reshape(told.rollout_log_probs.shape)

    def loss(rows, **counts):
        logprobs_BT = (told.rollout_log_probs + noise_BT)[rows].detach().requires_grad_()
        value = loss_of(
            logprobs_BT,
            told.rollout_log_probs[rows],
            advantages_BT[rows],
            action_mask=mask_BT[rows],
            rollout_log_probs=told.rollout_log_probs[rows],
            **counts,
        )[0]
        value.backward()
        return value.item(), logprobs_BT.grad

    def size(rows):
        return {"batch_num_tokens": mask_BT[rows].sum(), "global_batch_size": (mask_BT[rows].sum(1) > 0).sum()}

    (alone,) = [row for row, response in enumerate(responses) if is_left_out(response)]
    others = [row for row in range(4) if row != alone]
    value, gradient_BT = loss([alone], **size(list(range(4))))
    assert abs(value) < 2**-14, "a micro-batch of it alone: its advantage is 0 to the grid that rewards are rounded to"
    assert gradient_BT.abs().sum() < 2**-14
    everything, _ = loss(list(range(4)), **size(list(range(4))))
    share = {key: count - 1 for key, count in size(list(range(4))).items()}
    assert share == size(others)
    is_by_token = by_token and kind != "gspo"  # whose loss is a mean over trajectories, whatever is asked for
    key = "batch_num_tokens" if is_by_token else "global_batch_size"
    assert everything * size(list(range(4)))[key].item() == pytest.approx(
        loss(others, **size(others))[0] * size(others)[key].item(), abs=2**-14
    )


@pytest.mark.parametrize("lines", [[CALL], [RIGHT, CALL, CALL, CALL]])
def test_no_micro_batch_is_without_a_token_whatever_is_left_out(lines, load, tmp_path):
    responses, _ = play(new_job(load, tmp_path, *LEFT_OUT), lines)
    assert sum(map(is_left_out, responses)) >= 3
    counts = [experience(response).action_mask.sum().item() for response in responses]
    assert min(counts) == 1, "OpenRLHF divides the numbers of a micro-batch by this"


@pytest.mark.parametrize("size", [3, 8, 48])
def test_equal_rewards_have_no_advantage_once_they_are_reported_on_the_grid(size):
    assert group_norm([round_reward(0.1)] * size).abs().max() == 0.0


def test_equal_rewards_as_they_are_have_one_under_openrlhf():
    assert group_norm([0.1] * 8).abs().max() > 0.5


def group_norm(rewards):
    """Advantages of one-token trajectories with these rewards."""
    responses = [
        {
            "observation_tokens": [5, 6, 7],
            "action_ranges": [(2, 3)],
            "rollout_log_probs": [0.0, 0.0, -1.0],
            "reward": reward,
            "scores": reward,
        }
        for reward in rewards
    ]
    return advantages(responses, "group_norm")[0]
