"""The memory of a GPU, by hand for a model of 1,000 weights in two layers."""

from __future__ import annotations

import pytest

from rlf.engines.openrlhf.compile.memory import estimate_gpus
from rlf.plan.model_shape import ModelShape

SHAPE = ModelShape(
    num_parameters=1_000,
    num_layers=2,
    hidden_size=8,
    query_size=8,
    kv_size=4,
    intermediate_size=16,
    vocab_size=50,
    linears=(("model.layers.0.mlp.up_proj", 8, 16), ("model.layers.0.self_attn.q_proj", 8, 8)),
)
LAYER = 6 * 8 + 5 * 8 + 4 * 4 + 4 * 16
"""168: what one layer keeps of a token."""


def sizes(load, *overrides, gpu_bytes=None):
    """Size by part, of each kind of GPU and phase."""
    groups = estimate_gpus(load(*overrides).spec, SHAPE, gpu_bytes)
    return {
        (group.holds, phase.name): {part.name: part.size_bytes for part in phase.parts}
        for group in groups
        for phase in group.phases
    }


def test_one_gpu_that_all_share(load):
    """N = 2,048 tokens of a pass; vLLM is asleep while the policy trains."""
    found = sizes(load, gpu_bytes=1_000_000)
    assert found == {
        ("every model and vLLM", "sampling"): {"vLLM": 500_000, "policy: weights": 2_000},
        ("every model and vLLM", "training"): {
            "policy: weights": 2_000,
            "policy: gradients": 2_000,
            "policy: optimiser": 12_000,
            "policy: activations": 2 * 2_048 * (2 * 8 + LAYER),
            "policy: logits": 10 * 2_048 * 50,
        },
    }


def test_without_sleep_all_is_there_at_once(load):
    (phase,) = sizes(load, "+engine.sleep=false", gpu_bytes=1_000_000).values()
    assert {"vLLM", "policy: optimiser"} <= set(phase)


@pytest.mark.parametrize(
    ("stage", "weights", "gradients", "optimiser"),
    [(1, 2_000, 2_000, 3_000), (2, 2_000, 500, 3_000), (3, 500, 500, 3_000)],
)
def test_each_stage_cuts_more_over_four_gpus(stage, weights, gradients, optimiser, load):
    found = sizes(load, f"+engine.zero_stage={stage}", "+engine.actor.per_node=4", "+train.kl.coef=0.01")
    training = found["every model and vLLM", "training"]
    assert [training[f"policy: {part}"] for part in ("weights", "gradients", "optimiser")] == [
        weights,
        gradients,
        optimiser,
    ]
    assert training["reference: weights"] == weights


@pytest.mark.parametrize(("targets", "adapters"), [("all-linear", 2 * (24 + 16)), ("[q_proj]", 2 * 16)])
def test_adapters_alone_have_gradients_and_an_optimiser(targets, adapters, load):
    """Rank 2 takes 2 x (inputs + outputs) of each module."""
    found = sizes(load, f"+model.lora={{rank: 2, target_modules: {targets}}}", "+train.kl.coef=0.01")
    training = found["every model and vLLM", "training"]
    assert training["policy: weights"] == 2 * (1_000 + adapters)
    assert (training["policy: gradients"], training["policy: optimiser"]) == (2 * adapters, 12 * adapters)
    assert training["reference: weights"] == 2_000


def test_what_is_offloaded_is_not_on_the_gpu(load):
    found = sizes(
        load,
        "+engine.offload_optimizer=true",
        "+engine.offload_ref=true",
        "+engine.zero_stage=3",
        "+train.kl.coef=0.01",
    )
    assert not {"policy: optimiser", "reference: weights"} & set(found["every model and vLLM", "training"])


def test_models_apart_have_gpus_of_their_own(load):
    overrides = ("+engine.colocate=none", "+train.kl.coef=0.01", "train.algorithm=gae", "+engine.vllm.engines=2")
    groups = estimate_gpus(load(*overrides).spec, SHAPE, None)
    assert [(group.holds, group.num_gpus) for group in groups] == [
        ("policy", 1),
        ("reference", 1),
        ("critic", 1),
        ("vLLM", 2),
    ]
    critic = {part.name: part.size_bytes for part in groups[2].phases[0].parts}
    assert critic["critic: optimiser"] == 12_000
    assert "critic: logits" not in critic


def test_a_critic_and_the_policy_train_in_turn_where_they_share(load):
    found = sizes(load, "train.algorithm=gae", gpu_bytes=1_000_000)
    assert set(found["every model and vLLM", "sampling"]) == {"vLLM", "policy: weights", "critic: weights"}
    assert "critic: optimiser" not in found["every model and vLLM", "training"]
    assert "policy: optimiser" not in found["every model and vLLM", "training the critic"]


def test_vllm_needs_its_weights_and_one_trajectory(load):
    """(2 x 1,000 + 4 x 2 layers x 4 x 320 tokens) / 2 GPUs."""
    found = sizes(load, "+engine.colocate=none", "+engine.vllm.tensor_parallel=2")
    assert found["vLLM", "sampling"] == {"vLLM, at least": (2_000 + 4 * 2 * 4 * 320) // 2}


def test_without_checkpointing_every_layer_is_kept(load):
    training = sizes(load, "+engine.gradient_checkpointing=false")["every model and vLLM", "training"]
    assert training["policy: activations"] == 2 * 2_048 * 2 * LAYER


def test_a_pass_without_packing_is_of_whole_rows(load):
    """2,048 / 320 = 6 trajectories, of which 4 divide 128."""
    training = sizes(load, "+engine.packing=false", "+engine.attention=sdpa")["every model and vLLM", "training"]
    assert training["policy: logits"] == 10 * 4 * 320 * 50
