import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from rlf.algo.advantages.dr_grpo import DrGrpo
from rlf.algo.advantages.gae import Gae
from rlf.algo.advantages.grpo import Grpo
from rlf.algo.advantages.reinforce import Reinforce
from rlf.algo.loss_config import OffPolicyCorrection, PolicyLossConfig
from rlf.apps.estimators.mt_grpo import MtGrpo
from rlf.engines.local.attention import checkpoint_layers
from rlf.engines.local.engine import _peak_bytes
from rlf.engines.local.model import load_model
from rlf.engines.local.update import Updater, decay_groups
from rlf.spec.models import DemonstrationsSpec, KlSpec, LoraSpec, TrainSpec
from rlf.training.batch import make_batch, micro_batches
from rlf.types import (
    CallRecord,
    Message,
    Outcome,
    Score,
    Scored,
    StopReason,
    Task,
    ToolCall,
    ToolResult,
    Trajectory,
    Turn,
)
from rlf.types.world import WorldRecord

from ...algo.openrlhf_reference import openrlhf_decay_groups
from ...models import save_random_model


@pytest.fixture
def fresh_model(tmp_path):
    return load_model(str(save_random_model(tmp_path / "m")), dtype=torch.float32, device=torch.device("cpu"))


def scored(index, group, reward, *, prompt=5, action=4, observation=3):
    """prompt, action, observation, action."""
    generator = torch.Generator().manual_seed(index)
    length = prompt + 2 * action + observation
    tokens = torch.randint(2, 90, (length,), generator=generator).tolist()
    mask = [False] * prompt + [True] * action + [False] * observation + [True] * action
    first = Turn(prompt, prompt + action, prompt + action + observation, "")
    second = Turn(prompt + action + observation, length, length, "")
    task = Task(f"q{group}", (Message("user", "?"),))
    trajectory = Trajectory(
        str(index), task, index, tokens, mask, [-1.0 if m else 0.0 for m in mask], (first, second),
        StopReason.ANSWERED, "a",
    )  # fmt: skip
    return Scored(trajectory, (), reward, reward)


def batch_of(count=8, **keys):
    return make_batch([scored(i, i // 4, float(i % 3 == 0), observation=1 + i % 5) for i in range(count)], **keys)


def train_spec(**keys):
    return TrainSpec(**({"algorithm": Grpo(), "learning_rate": 1e-3, "steps": 4} | keys))


def new_updater(model, reference=None, workers=None, share_prefixes=True, **keys):
    return Updater(
        model, train_spec(**keys), temperature=1.0, seed=0, reference=reference, workers=workers,
        share_prefixes=share_prefixes,
    )  # fmt: skip


def whole_logprobs(updater, batch):
    return updater._whole(batch, lambda part: part.logprobs(updater.model, 1.0)[0])


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.full.parameters()])


def mean_gradients(updater):
    """AdamW's first means: of one step a tenth of its gradient. Weights move by its sign, however small it is."""
    states = [updater.optimizer.state[p] for p in updater.model.full.parameters() if p.requires_grad]
    return torch.cat([state["exp_avg"].flatten() for state in states])


@pytest.mark.parametrize(
    "keys",
    [{"entropy_coef": 0.01}, {"algorithm": Gae(), "kl": KlSpec(coef=0.1), "mini_batches": 2, "micro_batch_tokens": 40}],
)
def test_sharing_prefixes_leaves_gradients_and_metrics_as_they_are(tmp_path, keys):
    results = []
    batch = make_batch([scored(i // 2, i // 4, float(i % 3 == 0), observation=1 + i % 5) for i in range(8)])
    for share in (True, False):
        folder = save_random_model(tmp_path / str(share))
        model, reference = (load_model(str(folder), dtype=torch.float32, device=torch.device("cpu")) for _ in range(2))
        updater = new_updater(model, reference=reference, share_prefixes=share, **keys)
        metrics = updater.update(batch, 1).metrics
        results.append((mean_gradients(updater), metrics))
    assert torch.allclose(results[0][0], results[1][0], atol=1e-7, rtol=1e-5)
    assert results[0][1] == pytest.approx(results[1][1], abs=1e-6)


@pytest.mark.parametrize("share_prefixes", [True, False])
@pytest.mark.parametrize("workers", [None, 2])
def test_checkpointed_layers_give_the_very_same_update(tmp_path, share_prefixes, workers):
    results = []
    for checkpointed in (False, True):
        model = load_model(
            str(save_random_model(tmp_path / str(checkpointed))), dtype=torch.float32, device=torch.device("cpu")
        )
        if checkpointed:
            checkpoint_layers(model.full)
        pool = workers and ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
        updater = new_updater(model, share_prefixes=share_prefixes, workers=pool, micro_batch_tokens=40)
        metrics = updater.update(batch_of(), 1).metrics
        results.append((weights(model).tolist(), metrics))
    assert results[0] == results[1]


@pytest.mark.parametrize("level", [None, "token", "seq"])
def test_micro_batches_do_not_change_the_update(tmp_path, level):
    keys = {}
    if level is not None:
        correction = OffPolicyCorrection(mode="mask", level=level, threshold=(0.0, 0.015))
        keys = {"loss": PolicyLossConfig(correction=correction)}
    results = []
    batch = make_batch([scored(i, i // 4, float(i % 3 == 0), action=1 + i, observation=1 + i % 5) for i in range(8)])
    for tokens in (10_000, 40):
        folder = save_random_model(tmp_path / str(tokens))
        model = load_model(str(folder), dtype=torch.float32, device=torch.device("cpu"))
        updater = new_updater(model, micro_batch_tokens=tokens, **keys)
        metrics = updater.update(batch, 1).metrics
        results.append((mean_gradients(updater), metrics))
    assert torch.allclose(results[0][0], results[1][0], atol=1e-7, rtol=1e-5)
    assert results[0][1] == pytest.approx(results[1][1], rel=1e-3, abs=1e-5)
    assert (level is None) or 0 < results[0][1]["policy/filter_fraction"] < 1


def test_the_gradient_is_the_policy_gradient_on_sampled_tokens(fresh_model):
    # ratio = 1 on the first step, so d loss = -sum_t A_t d logprob_t / N over sampled tokens
    batch = batch_of()
    updater = new_updater(fresh_model, max_grad_norm=1e9)
    advantages = updater.train.algorithm.advantages(updater._asked(batch, updater._fixed(batch))).advantages_BT
    logits = fresh_model.full(input_ids=batch.tokens_BT, use_cache=False).logits[:, :-1]
    logprobs = logits.log_softmax(-1).gather(2, batch.tokens_BT[:, 1:, None])[..., 0]
    mask = batch.loss_mask_BT[:, 1:]
    loss = -(advantages[:, 1:] * logprobs * mask).sum() / mask.sum()
    expected = torch.autograd.grad(loss, list(fresh_model.full.parameters()))
    taken = []
    updater.optimizer.step = lambda: taken.extend(p.grad.clone() for p in fresh_model.full.parameters())
    updater.update(batch, 1)
    for got, want in zip(taken, expected, strict=True):
        assert torch.allclose(got, want, atol=1e-5)


def test_observation_tokens_are_in_the_loss_only_by_the_ablation_switch():
    plain, ablated = batch_of(), batch_of(observations_in_loss=True)
    observed = ablated.loss_mask_BT & ~plain.loss_mask_BT
    assert observed.sum() == sum(1 + i % 5 for i in range(8))
    assert not (plain.loss_mask_BT & ~ablated.loss_mask_BT).any()
    assert not ablated.loss_mask_BT[:, :5].any(), "the prompt is never trained on"


def test_a_rewarded_trajectory_becomes_likelier(fresh_model):
    batch = batch_of()
    updater = new_updater(fresh_model)
    before = whole_logprobs(updater, batch).sum(1).detach()
    for step in range(1, 5):
        result = updater.update(batch, step)
    after = whole_logprobs(updater, batch).sum(1).detach()
    gains = (after - before).tolist()
    better = [g for g, a in zip(gains, result.advantages, strict=True) if a > 0]
    worse = [g for g, a in zip(gains, result.advantages, strict=True) if a < 0]
    assert min(better) > 0 > max(worse)


@pytest.mark.parametrize("place", ["loss", "reward"])
def test_kl_to_the_reference_holds_the_policy_back(tmp_path, place):
    moved = []
    for coef in (1e-9, 5.0):  # of 0 no reference is asked
        folder = str(save_random_model(tmp_path / str(coef)))
        model, reference = (load_model(folder, dtype=torch.float32, device=torch.device("cpu")) for _ in range(2))
        kl = KlSpec(coef=coef, place=place, kind="k3")
        updater = new_updater(model, reference=reference, kl=kl, reward_clip=(-1e3, 1e3))
        for step in range(1, 13):
            metrics = updater.update(batch_of(), step).metrics
        moved.append(metrics["policy/kl_ref"])
    assert moved[1] < moved[0]


@pytest.mark.parametrize(("epochs", "mini_batches"), [(3, 2), (1, 2), (2, 1)])
def test_several_epochs_and_mini_batches_clip_against_the_policy_before_the_first(fresh_model, epochs, mini_batches):
    updater = new_updater(fresh_model, epochs=epochs, mini_batches=mini_batches, learning_rate=2e-2)
    metrics = updater.update(batch_of(), 1).metrics
    assert updater.num_updates == epochs * mini_batches
    assert metrics["policy/clip_fraction"] > 0 and metrics["policy/kl_old"] != 0


def test_mini_batches_have_every_row_once_in_an_order_of_their_epoch_and_step(fresh_model):
    updater = new_updater(fresh_model, mini_batches=3)

    def order(step, epoch):
        parts = [part.tolist() for part in updater._mini_batches(32, step, epoch)]
        assert [len(part) for part in parts] == [11, 11, 10]
        return [row for part in parts for row in part]

    orders = [order(1, 0), order(1, 1), order(2, 0)]
    assert [sorted(each) for each in orders] == [list(range(32))] * 3
    assert len({tuple(each) for each in orders}) == 3 and order(1, 0) == orders[0]
    assert [len(part) for part in updater._mini_batches(2, 1, 0)] == [1, 1], "none is empty"


def test_the_learning_rate_of_each_optimiser_step_is_the_schedules(fresh_model):
    # 3 steps of 2 updates: 1/4, 2/4, 3/4, 4/4, then linear over the last two: 1 - 0/2, 1 - 1/2. A step names its last.
    updater = new_updater(fresh_model, steps=3, epochs=2, warmup_steps=4, lr_schedule="linear", learning_rate=1e-3)
    rates = [updater.update(batch_of(), step).metrics["policy/learning_rate"] for step in (1, 2, 3)]
    assert rates == pytest.approx([0.5e-3, 1e-3, 0.5e-3])
    assert new_updater(fresh_model, warmup_steps=4).update(batch_of(), 1).metrics["policy/learning_rate"] == 0.25e-3


def test_steps_that_imitate_have_settings_of_their_own_and_the_policys_begin_behind_them(tmp_path):
    folder = save_random_model(tmp_path / "m")
    model, reference = (load_model(str(folder), dtype=torch.float32, device=torch.device("cpu")) for _ in range(2))
    train = train_spec(learning_rate=1e-3, epochs=3, mini_batches=2, kl=KlSpec(coef=0.1), warmup_steps=2)
    shown = DemonstrationsSpec(path="x", per_step=4, learning_rate=4e-3, steps=2)
    updater = Updater(model, train, temperature=0.5, seed=0, demonstrations=shown, reference=reference)
    assert updater.moves_reference
    batch = make_batch([scored(i, i // 4, 1.0, observation=1 + i % 5) for i in range(8)])
    before = updater.mean_cross_entropy(batch)
    mask = batch.loss_mask_BT
    assert before == pytest.approx(-float(whole_logprobs(updater, batch)[mask].mean()), rel=1e-5), "at temperature 1"
    first = updater.update(batch, 1).metrics
    assert (updater.num_updates, first["policy/learning_rate"]) == (1, 2e-3)  # 1/2 of the warm-up
    assert first["loss/policy"] == pytest.approx(before, rel=1e-5)
    assert "policy/kl_ref" not in first and "policy/mismatch_kl" not in first
    assert torch.equal(weights(reference), weights(load_model(str(folder), dtype=torch.float32, device=mask.device)))
    second = updater.update(batch, 2).metrics
    assert (updater.num_updates, second["policy/learning_rate"]) == (2, 4e-3)
    assert updater.mean_cross_entropy(batch) < before
    assert torch.equal(weights(reference), weights(model)), "the policy starts here"
    third = updater.update(batch_of(), 3).metrics
    # 6 updates of the policy's own schedule, of which the first two rise to its own rate.
    assert (updater.num_updates, third["policy/learning_rate"]) == (8, 1e-3)
    assert "policy/kl_ref" in third and "policy/mismatch_kl" in third
    assert not torch.equal(weights(reference), weights(model))


def of_world(item, name):
    return replace(item, trajectory=replace(item.trajectory, world=WorldRecord("rooms", name)))


def test_an_estimator_of_the_whole_batch_sees_each_world_by_itself(fresh_model):
    # Rewards 0, 1 and 0, 100, whitened apart by (0 - 1/2) / (1/2) and (0 - 50) / 50.
    rewards = {"low": (0.0, 1.0), "high": (0.0, 100.0)}
    items = [
        of_world(scored(i, i, reward), name)
        for i, (name, reward) in enumerate((name, reward) for name, both in rewards.items() for reward in both)
    ]
    updater = new_updater(fresh_model, algorithm=Reinforce(), reward_clip=(-1e3, 1e3))
    assert updater.update(make_batch(items), 1).advantages == pytest.approx([-1, 1, -1, 1], abs=1e-3)
    alone = make_batch([of_world(items[0], "low"), of_world(items[1], "low")])
    assert alone.world_B is None


def test_gae_trains_a_critic_towards_the_returns(fresh_model):
    updater = new_updater(fresh_model, algorithm=Gae(), critic={"learning_rate": 1e-2, "value_clip": 10.0})
    losses = [updater.update(batch_of(), step).metrics["loss/value"] for step in range(1, 16)]
    assert losses[-1] < 0.5 * losses[0]


def test_gspo_and_sequence_means_run_and_are_finite(fresh_model):
    updater = new_updater(fresh_model, loss=PolicyLossConfig(kind="gspo"), entropy_coef=0.01)
    metrics = updater.update(batch_of(), 1).metrics
    assert all(torch.isfinite(torch.tensor(value)) for value in metrics.values())


def test_mismatch_kl_compares_the_sampler_with_the_trainer(fresh_model):
    batch = batch_of()
    updater = new_updater(fresh_model)
    exact = whole_logprobs(updater, batch).detach()
    batch.rollout_logprobs_BT.copy_(exact)
    assert updater.update(batch, 1).metrics["policy/mismatch_kl"] == pytest.approx(0, abs=1e-6)


def test_lora_trains_the_adapters_alone(tmp_path):
    folder = str(save_random_model(tmp_path))
    lora = LoraSpec(rank=4, alpha=8)
    model = load_model(folder, dtype=torch.float32, device=torch.device("cpu"), lora=lora)
    before = {n: p.detach().clone() for n, p in model.full.named_parameters()}
    updater = new_updater(model)
    for step in (1, 2):
        updater.update(batch_of(), step)
    changed = {n for n, p in model.full.named_parameters() if not torch.equal(p, before[n])}
    assert changed and all("lora_" in name for name in changed)


def test_micro_batches_hold_every_row_once_within_the_budget():
    lengths = torch.tensor([5, 90, 30, 30, 7, 100])
    parts = list(micro_batches(torch.arange(6), lengths, 100))
    assert sorted(int(i) for part in parts for i in part) == list(range(6))
    assert all(len(part) == 1 or len(part) * int(lengths[part].max()) <= 100 for part in parts)


def test_any_number_of_workers_gives_the_same_bits(tmp_path):
    results = []
    for num_workers in (0, 1, 3):
        folder = save_random_model(tmp_path / str(num_workers))
        model = load_model(str(folder), dtype=torch.float32, device=torch.device("cpu"))
        with ThreadPoolExecutor(max(1, num_workers), initializer=torch.set_num_threads, initargs=(1,)) as pool:
            keys = {"algorithm": Gae(), "micro_batch_tokens": 40, "epochs": 2, "mini_batches": 2}
            updater = new_updater(model, workers=pool if num_workers else None, **keys)
            metrics = [updater.update(batch_of(), step).metrics for step in (1, 2)]
        results.append((weights(model).tolist(), metrics))
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("lora", [None, LoraSpec(rank=2)], ids=["all", "lora"])
def test_adamw_decays_what_openrlhf_decays(tmp_path, lora):
    place = {"dtype": torch.float32, "device": torch.device("cpu")}
    module = load_model(str(save_random_model(tmp_path)), lora=lora, **place).full
    theirs = [group for group in openrlhf_decay_groups()(module, 0.1) if group["params"]]
    ours = decay_groups(module, 0.1)
    assert [(group["weight_decay"], [*map(id, group["params"])]) for group in ours] == [
        (group["weight_decay"], [*map(id, group["params"])]) for group in theirs
    ]
    assert [group["weight_decay"] for group in decay_groups(module, 0.0)] == [0.0]


def test_a_norm_is_no_smaller_for_a_decay_that_shrinks_every_matrix(fresh_model):
    named = dict(fresh_model.full.named_parameters())
    before = {name: parameter.detach().clone() for name, parameter in named.items()}
    updater = new_updater(fresh_model, learning_rate=0.1, weight_decay=1.0)
    even = [scored(i, i // 4, 1.0) for i in range(8)]  # no advantages: the decay alone moves the weights
    updater.update(make_batch(even), 1)
    for name, parameter in named.items():  # AdamW: w - rate * decay * w
        torch.testing.assert_close(parameter.detach(), before[name] * (1.0 if "norm" in name else 0.9))


def test_weights_stay_float32_when_bfloat16_is_computed_in(tmp_path):
    folder = str(save_random_model(tmp_path))
    model = load_model(folder, dtype=torch.bfloat16, device=torch.device("cpu"))
    before = weights(model)
    assert model.logits(model.hidden(torch.tensor([[5, 6]]))).dtype == torch.bfloat16
    new_updater(model, learning_rate=1e-6).update(batch_of(), 1)
    moved = (weights(model) - before).abs()
    assert before.dtype == torch.float32 and 0 < moved.max() < 3e-6


def with_turns(item, outcome, *values):
    scores = (Score("right", outcome, 1.0), Score("useful", 0.0, 0.5, turn_values=values))
    return replace(item, scores=scores, reward=outcome + 0.5 * sum(value or 0.0 for value in values) / 2)


def test_tokens_have_the_advantage_of_their_turn(fresh_model):
    # outcomes equal, so 0; turn rewards .5 * (1, None) and .5 * (0, 1): returns to go .5, 0 and .5, .5.
    # Turn 1: equal, 0; turn 2: -.25, .25 without division by the deviation.
    items = [with_turns(scored(0, 0, 0.0), 1.0, 1.0, None), with_turns(scored(1, 0, 0.0, observation=5), 1.0, 0.0, 1.0)]
    batch = make_batch(items).to(torch.device("cpu"))
    assert batch.turns.rewards_BK.tolist() == [[0.5, 0.0], [0.0, 0.5]]
    assert batch.turns.outcome_B.tolist() == [1.0, 1.0]
    updater = new_updater(fresh_model, algorithm=MtGrpo(std_norm=False))
    advantages = updater.train.algorithm.advantages(updater._asked(batch, updater._fixed(batch))).advantages_BT
    for row, (item, second) in enumerate(zip(items, (-0.25, 0.25), strict=True)):
        first_turn, second_turn = item.trajectory.turns
        assert advantages[row, first_turn.start : first_turn.end].tolist() == [0.0] * 4
        assert advantages[row, second_turn.start : second_turn.end].tolist() == [second] * 4
    assert updater.update(batch, 1).advantages == pytest.approx([-0.125, 0.125])


def test_without_terms_that_judge_turns_a_batch_knows_no_turns():
    assert batch_of().turns is None


def test_truncated_trajectories_are_in_the_baseline_and_not_in_the_loss(fresh_model):
    items = [scored(i, 0, float(i == 0)) for i in range(4)]
    cut = replace(items[1], trajectory=replace(items[1].trajectory, stop=StopReason.LENGTH))
    batch = make_batch([items[0], cut, *items[2:]])
    updater = new_updater(fresh_model, algorithm=DrGrpo(), mask_truncated=True, max_grad_norm=1e9)
    logits = fresh_model.full(input_ids=batch.tokens_BT, use_cache=False).logits[:, :-1]
    logprobs = logits.log_softmax(-1).gather(2, batch.tokens_BT[:, 1:, None])[..., 0]
    mask = batch.loss_mask_BT[:, 1:] & torch.tensor([True, False, True, True])[:, None]
    advantages = torch.tensor([0.75, -0.25, -0.25, -0.25])[:, None]  # over all four
    expected = torch.autograd.grad(
        -(advantages * logprobs * mask).sum() / mask.sum(), list(fresh_model.full.parameters())
    )
    taken = []
    updater.optimizer.step = lambda: taken.extend(p.grad.clone() for p in fresh_model.full.parameters())
    assert updater.update(batch, 1).advantages == pytest.approx([0.75, -0.25, -0.25, -0.25])
    for got, want in zip(taken, expected, strict=True):
        assert torch.allclose(got, want, atol=1e-5)


def test_a_trajectory_whose_tokens_are_all_gated_is_in_the_baseline_and_not_in_the_loss(fresh_model):
    # Sampled with probability e^-60 by the sampler's own words: far beyond the threshold, where the others are within.
    items = [scored(i, 0, float(i == 0)) for i in range(4)]
    odd = [-60.0 if sampled else 0.0 for sampled in items[0].trajectory.action_mask]
    gated = replace(items[0], trajectory=replace(items[0].trajectory, rollout_logprobs=odd))
    correction = OffPolicyCorrection(level="seq", threshold=(0.0, 1e9))
    for reward in (1.0, 5.0):
        updater = new_updater(fresh_model, algorithm=DrGrpo(), loss=PolicyLossConfig(correction=correction))
        result = updater.update(make_batch([replace(gated, reward=reward), *items[1:]]), 1)
        # The mean is over all four: it estimates what the policy earns, of which the gated one is as good a sample.
        assert result.advantages == pytest.approx([0.75 * reward] + [-0.25 * reward] * 3)
        assert result.metrics["policy/filter_fraction"] == pytest.approx(0.25)


def test_a_micro_batch_of_nothing_but_truncated_trajectories_adds_nothing(fresh_model):
    items = [scored(i, 0, float(i == 0)) for i in range(4)]
    batch = make_batch(
        [replace(i, trajectory=replace(i.trajectory, stop=StopReason.LENGTH)) for i in items[:2]] + items[2:]
    )
    updater = new_updater(fresh_model, mask_truncated=True, micro_batch_tokens=1)
    assert all(math.isfinite(value) for value in updater.update(batch, 1).metrics.values())


def test_only_the_tokens_of_highest_entropy_are_in_the_loss(fresh_model):
    updater = new_updater(fresh_model, loss=PolicyLossConfig(top_entropy=0.25), micro_batch_tokens=40)
    assert updater.update(batch_of(), 1).metrics["policy/masked_fraction"] == pytest.approx(0.75, abs=0.02)


def test_the_reference_follows_every_second_step_by_its_share(tmp_path):
    folder = str(save_random_model(tmp_path / "m"))
    model, reference = (load_model(folder, dtype=torch.float32, device=torch.device("cpu")) for _ in range(2))
    start = weights(reference).clone()
    updater = new_updater(model, reference=reference, kl=KlSpec(coef=0.1, sync_every=2, sync_mix=0.25))
    updater.update(batch_of(), 1)
    assert torch.equal(weights(reference), start)
    updater.update(batch_of(), 2)
    assert torch.allclose(weights(reference), 0.75 * start + 0.25 * weights(model))


def test_memory_is_that_of_the_device_which_trains(monkeypatch):
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 7)
    assert _peak_bytes(torch.device("cuda")) == 7 < _peak_bytes(torch.device("cpu"))


def with_calls(item):
    """The same with a call in its first turn."""
    first, second = item.trajectory.turns
    call = CallRecord(ToolCall("t", {}), ToolResult(Outcome.OK, "r"))
    return replace(item, trajectory=replace(item.trajectory, turns=(replace(first, calls=(call,)), second)))


def gradient_of(updater):
    return mean_gradients(updater) * 10


@pytest.mark.parametrize("share_prefixes", [True, False])
def test_the_loss_of_observations_is_the_mean_cross_entropy_of_tool_results_and_of_nothing_else(
    tmp_path, share_prefixes
):
    # Rewards are equal, so that the policy loss is 0 and all that moves the weights is the loss of observations.
    items = [with_calls(scored(i, 0, 1.0, observation=1 + i % 5)) for i in range(4)] + [scored(9, 0, 1.0)]
    batch = make_batch(items, marks_observations=True)
    folder = save_random_model(tmp_path / "m")
    model, other = (load_model(str(folder), dtype=torch.float32, device=torch.device("cpu")) for _ in range(2))
    loss = PolicyLossConfig(observations=0.5)
    updater = new_updater(
        model, share_prefixes=share_prefixes, loss=loss, micro_batch_tokens=40, max_grad_norm=1e9, learning_rate=1e-9
    )
    metrics = updater.update(batch, 1).metrics
    # The reference: whole rows through the model one by one, and the softmax in numpy.
    total, num, surrogate = 0.0, 0, 0.0
    for item in items[:4]:
        turn, tokens = item.trajectory.turns[0], torch.tensor(item.trajectory.tokens)
        logits = other.logits(other.hidden(tokens[None]))[0]
        rows = logits[turn.end - 1 : turn.observation_end - 1]
        targets = tokens[turn.end : turn.observation_end]
        values = rows.detach().double().numpy()
        shifted = values - values.max(axis=1, keepdims=True)
        logprobs = shifted[range(len(targets)), targets] - np.log(np.exp(shifted).sum(axis=1))
        total, num = total - logprobs.sum(), num + len(targets)
        surrogate = surrogate + torch.nn.functional.cross_entropy(rows, targets, reduction="sum")
    assert metrics["loss/observations"] == pytest.approx(total / num, rel=1e-5)
    assert metrics["loss/policy"] == pytest.approx(0.0, abs=1e-7)
    (0.5 * surrogate / num).backward()
    expected = torch.cat([p.grad.flatten() for p in other.full.parameters() if p.requires_grad])
    assert torch.allclose(gradient_of(updater), expected, atol=1e-5)


@pytest.mark.parametrize("keys", [{}, {"algorithm": Gae(), "kl": KlSpec(coef=0.1, kind="k1", place="reward")}])
def test_a_loss_of_observations_leaves_the_other_losses_and_metrics_as_they_are(tmp_path, keys):
    found = []
    items = [with_calls(scored(i, i // 4, float(i % 3 == 0), observation=1 + i % 5)) for i in range(8)]
    for weight in (0.0, 1e-12):
        folder = save_random_model(tmp_path / str(weight))
        model, reference = (load_model(str(folder), dtype=torch.float32, device=torch.device("cpu")) for _ in range(2))
        loss = PolicyLossConfig(observations=weight)
        updater = new_updater(model, reference=reference, loss=loss, entropy_coef=0.01, micro_batch_tokens=40, **keys)
        batch = make_batch(items, marks_observations=weight > 0)
        found.append(updater.update(batch, 1).metrics)
    assert found[1].pop("loss/observations") > 0
    assert found[0] == pytest.approx(found[1], abs=1e-5)


def test_only_results_of_calls_are_marked_and_never_what_was_sampled():
    called, corrected = with_calls(scored(0, 0, 1.0)), scored(1, 0, 0.0)
    batch = make_batch([called, corrected], marks_observations=True)
    turn = called.trajectory.turns[0]
    assert batch.observation_mask_BT.nonzero().tolist() == [[0, t] for t in range(turn.end, turn.observation_end)]
    assert not (batch.observation_mask_BT & batch.loss_mask_BT).any()
    cut = replace(batch, truncated_B=torch.tensor([True, False])).without_truncated()
    assert not cut.observation_mask_BT.any()
    assert make_batch([called]).observation_mask_BT is None


def test_the_segments_of_a_trajectory_keep_their_marks():
    item = with_calls(scored(0, 0, 1.0))
    start = item.trajectory.turns[1].start
    forked = replace(item, trajectory=replace(item.trajectory, forks=(start,)))
    batch = make_batch([forked], marks_observations=True)
    parts = batch.by_stretch()
    assert parts.observation_mask_BT.sum() == batch.observation_mask_BT.sum() == 3
