"""The memory of a GPU, by hand for a model of 1,000 weights in two layers."""

from __future__ import annotations

import ast

import pytest

from rlf.apps.openrlhf.estimates import estimate_gpus, estimate_job_disk, estimate_machine
from rlf.apps.openrlhf.rehearsal_place import rehearsal_environment
from rlf.plan.estimate import ModelShape

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
            "policy: float32 gradients of the step": 4_000,
            "policy: activations": 2 * 2_048 * (2 * 8 + LAYER),
            "policy: logits": 10 * 2_048 * 50,
        },
    }


def test_the_disk_holds_one_checkpoint_more_than_are_kept_the_best_one_and_every_hugging_face_folder(load):
    def disk(*overrides):
        spec = load("train.steps=10", "checkpoint.every=2", "checkpoint.keep=2", *overrides).spec
        return {part.name: part.size_bytes for part in estimate_job_disk(spec, SHAPE).parts}

    assert disk() == {"checkpoints: policy": 4 * 14_000, "final model": 2 * (1_000 + 50 * 8)}
    assert disk("~data.eval")["checkpoints: policy"] == 3 * 14_000
    found = disk("train.algorithm=gae", "+engine.hf_checkpoints=true")
    assert (found["checkpoints: critic"], found["Hugging Face folders"]) == (4 * 14_000, 5 * 2_800)
    # rank 2: 2 x (8 + 16 + 8 + 8) = 80 weights
    assert disk("+model.lora={rank: 2}") == {"checkpoints: policy": 4 * (2 * 1_080 + 12 * 80), "final model": 160}


def test_a_disk_that_only_the_nodes_see_is_not_looked_at(load, tmp_path):
    def folder(*overrides):
        spec = load(*overrides).spec
        return spec.engine.report(spec, SHAPE, tmp_path / "RUN", gpu_bytes=None, num_eval_rows=0).disk_folder

    cluster = ["+engine.ray_address=http://head:8265"]
    assert folder() == tmp_path / "RUN" / "job" / "ckpt"
    assert folder(*cluster, f"+engine.output={tmp_path}") == tmp_path / "RUN" / "ckpt"
    assert folder(*cluster, f"+engine.output={tmp_path}/elsewhere") is None
    assert folder(*cluster, f"+engine.output={tmp_path}", "+engine.ingest.host=here") is None


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
    training = set(found["every model and vLLM", "training"])
    assert not {"policy: optimiser", "policy: gradients", "reference: weights"} & training


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


QWEN = {
    "Qwen3-4B": ModelShape(4_022_468_096, 36, 2560, 4096, 1024, 9728, 151_936),
    "Qwen3-8B": ModelShape(8_190_735_360, 36, 4096, 4096, 1024, 12_288, 151_936),
    "Qwen3-32B": ModelShape(32_762_123_264, 64, 5120, 8192, 1024, 25_600, 151_936),
}
"""Weights of the released files, and the sizes in their config.json."""
DEEPSPEED = {
    # model, GPUs of one machine: stage 2, stage 3, stage 3 with the optimiser on the CPU
    ("Qwen3-4B", 8): (17_095_489_408, 10_606_377_856, 2_561_441_664),
    ("Qwen3-8B", 1): (163_814_707_200, 149_922_555_904, 18_870_790_144),
    ("Qwen3-8B", 8): (34_810_625_280, 20_918_473_984, 4_537_003_264),
    ("Qwen3-32B", 8): (139_239_023_872, 76_826_426_624, 11_302_180_096),
}
"""Bytes of model states that the estimators of DeepSpeed 0.19.6 name, largest module the embedding."""
STATES = (
    "policy: weights",
    "policy: a whole module and its gradient",
    "policy: gradients",
    "policy: optimiser",
    "policy: float32 gradients of the step",
)


def states(load, name, gpus, *overrides):
    loaded = load(f"+engine.actor.per_node={gpus}", *overrides)
    (group,) = estimate_gpus(loaded.spec, QWEN[name], None)
    (training,) = [phase for phase in group.phases if phase.name == "training"]
    return sum(part.size_bytes for part in training.parts if part.name in STATES)


@pytest.mark.parametrize(("name", "gpus"), DEEPSPEED)
def test_model_states_are_deepspeeds_own_estimate_or_a_tenth_more(name, gpus, load):
    """Its 18 bytes a weight at stage 3 leave out 2 of weights, gradients, float32 gradients, weights and two means."""
    stage_2, stage_3, offloaded = DEEPSPEED[name, gpus]
    assert states(load, name, gpus) == pytest.approx(stage_2, abs=8)
    assert stage_3 <= states(load, name, gpus, "+engine.zero_stage=3") <= 1.12 * stage_3
    cpu = ("+engine.zero_stage=3", "+engine.offload_optimizer=true")
    assert states(load, name, gpus, *cpu) == pytest.approx(offloaded, abs=8)


@pytest.mark.parametrize(("name", "gpus"), DEEPSPEED)
def test_deepspeeds_estimate_is_the_installed_ones(name, gpus):
    """Read from the source of a rehearsal environment, where there is one: importing DeepSpeed takes seconds."""
    zero = rehearsal_environment().folder.glob("lib/python3*/site-packages/deepspeed/runtime/zero")
    folder = next(zero, None)
    if folder is None:
        pytest.skip("no rehearsal environment")
    stage_2 = function_of(folder / "stage_1_and_2.py", "estimate_zero2_model_states_mem_needs")
    stage_3 = function_of(folder / "stage3.py", "estimate_zero3_model_states_mem_needs")
    weights, module = QWEN[name].num_parameters, QWEN[name].largest_module
    found = (
        stage_2(weights, gpus, 1, cpu_offload=False)[1],
        stage_3(weights, module, gpus, 1, cpu_offload=False, cpu_offload_params=False)[1],
        stage_3(weights, module, gpus, 1, cpu_offload=True, cpu_offload_params=False)[1],
    )
    assert found == DEEPSPEED[name, gpus]


def function_of(path, name):
    tree = ast.parse(path.read_text())
    (found,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    scope = {}
    exec(compile(ast.Module([found], []), str(path), "exec"), scope)
    return scope[name]


def test_keys_and_values_are_those_of_vllms_pages(load):
    """vLLM 0.29.0, `FullAttentionSpec.page_size_bytes`: 2 x block_size x KV heads x head size x bytes, for each layer.

    Qwen3-8B: 2 x 16 x 8 x 128 x 2 = 65,536 bytes a page of 16 tokens; 36 layers make 147,456 bytes a token.
    """

    def least(num_tokens):
        loaded = load("+engine.colocate=none", f"rollout.max_total_tokens={num_tokens}")
        (part,) = estimate_gpus(loaded.spec, QWEN["Qwen3-8B"], None)[-1].phases[0].parts
        return part.size_bytes

    assert least(1_016) - least(1_000) == 36 * 65_536 == 16 * 147_456


def test_weights_of_vllm_are_within_three_percent_of_what_it_was_seen_to_load(load):
    """Qwen3-4B in 16 bits: "Model loading took 7.6785 GiB" (kyuz0/amd-strix-halo-vllm-toolboxes, pull request 5)."""
    loaded = load("+engine.colocate=none", "rollout.max_total_tokens=8")
    (part,) = estimate_gpus(loaded.spec, QWEN["Qwen3-4B"], None)[-1].phases[0].parts
    assert 0.97 * 7.6785 * 2**30 <= part.size_bytes <= 7.6785 * 2**30


@pytest.mark.parametrize(("stage", "published"), [(1, 31.4e9), (2, 16.6e9), (3, 1.9e9)])
def test_model_states_are_those_of_the_paper_on_zero_and_what_it_leaves_out(stage, published, load):
    """Rajbhandari et al. 2020, figure 1: 7.5 B weights over 64 GPUs, 16 bytes a weight.

    It counts neither float32 gradients of the step (4 bytes a weight / 64) nor, at stage 3, a module that is gathered.
    """
    shape = ModelShape(7_500_000_000, 72, 4096, 4096, 4096, 16_384, 0)
    loaded = load("+engine.actor={nodes: 8, per_node: 8}", f"+engine.zero_stage={stage}", "train.prompts_per_step=64")
    (group,) = estimate_gpus(loaded.spec, shape, None)
    (training,) = [phase for phase in group.phases if phase.name == "training"]
    counted = ("policy: weights", "policy: gradients", "policy: optimiser")
    size = sum(part.size_bytes for part in training.parts if part.name in counted)
    assert size == pytest.approx(published, rel=0.02)
    assert {part.name: part.size_bytes for part in training.parts}[STATES[-1]] == 4 * 7_500_000_000 // 64


def test_a_model_whose_weights_exceed_vllms_share_does_not_fit(load):
    """65.5 GB of weights, of 0.6 x 80 GB."""
    shared = ("+engine.actor.per_node=8", "+engine.vllm.gpu_memory=0.6", "+engine.zero_stage=3")
    (group,) = estimate_gpus(load(*shared).spec, QWEN["Qwen3-32B"], 80 * 10**9)
    assert "take 65.6 GB of its share of 48.0 GB" in group.lacks
    (group,) = estimate_gpus(load(*shared, "engine.vllm.tensor_parallel=2").spec, QWEN["Qwen3-32B"], 80 * 10**9)
    assert group.lacks == ""


def machine(load, *overrides):
    found = estimate_machine(load("+engine.actor.per_node=8", *overrides).spec, QWEN["Qwen3-8B"])
    return {} if found is None else {part.name: part.size_bytes for part in found.parts}


def test_what_sleeps_and_what_is_offloaded_is_in_the_machines_memory(load):
    """DeepSpeed's estimator has the same 16 bytes a weight, and multiplies by 1.5 for its buffers."""
    weights = QWEN["Qwen3-8B"].num_parameters
    asleep = {"vLLM: weights while others work": 2 * 8 * weights}
    assert machine(load) == {"policy: optimiser and gradients while others work": 14 * weights} | asleep
    assert machine(load, "+engine.offload_optimizer=true")["policy: optimiser and gradients"] == 16 * weights
    two = machine(load, "+engine.offload_optimizer=true", "+engine.actor.nodes=2", "+engine.vllm.tensor_parallel=4")
    assert two == {"policy: optimiser and gradients": 8 * weights, "vLLM: weights while others work": 2 * 2 * weights}
    assert machine(load, "+engine.colocate=none") == {}


def test_a_mean_of_weights_stays_on_the_gpu_below_stage_3_and_is_in_the_machines_memory_at_it(load):
    """DeepSpeed offloads the parameters of a model that is not trained at stage 3 alone."""
    loaded = load("+engine.actor.per_node=8", "+engine.ema=0.99")
    (group,) = estimate_gpus(loaded.spec, QWEN["Qwen3-8B"], None)
    sizes = {phase.name: {part.name: part.size_bytes for part in phase.parts} for phase in group.phases}
    mean = 2 * QWEN["Qwen3-8B"].num_parameters
    assert {name: parts.get("policy: mean of weights") for name, parts in sizes.items()} == dict.fromkeys(sizes, mean)
    assert "policy: mean of weights" not in machine(load, "+engine.ema=0.99")
    assert machine(load, "+engine.ema=0.99", "+engine.zero_stage=3")["policy: mean of weights"] == mean
