"""Counts and memory of a run, worked by hand."""

import json
import struct

import pytest

from rlf.core import RlfError
from rlf.engines.local.memory import PROCESS_BYTES, estimate_disk, estimate_memory, micro_batch_tokens
from rlf.plan.estimate import ModelShape, adapter_parameters, calls_per_trajectory, estimate_work, shape_of
from rlf.runs.planning import lineage_part, parse_size
from rlf.spec import RunSpec
from rlf.spec.model_files import read_config, read_shapes

SHAPE = ModelShape(
    num_parameters=1000,
    num_layers=2,
    hidden_size=8,
    query_size=8,
    kv_size=4,
    intermediate_size=16,
    vocab_size=50,
    linears=(("layers.0.q_proj", 8, 8), ("layers.0.up_proj", 8, 16)),
)
LOOK = {
    "name": "look",
    "description": "Looks.",
    "inputSchema": {"type": "object"},
    "target": {"kind": "python", "callable": "code:look"},
}


def spec(**sections):
    values = {
        "name": "x",
        "model": {"path": "m"},
        "data": {"train": {"path": "d"}, "eval": {"path": "e"}},
        "tools": [LOOK],
        "rewards": [{"kind": "rule", "name": "right", "rule": "exact_match"}],
        "rollout": {"num_generations": 4, "max_turns": 3, "max_total_tokens": 100},
        "train": {"algorithm": {"kind": "grpo"}, "steps": 10, "prompts_per_step": 2, "micro_batch_tokens": 300},
        "eval": {"every": 4, "limit": 5, "num_samples": 2},
        "engine": {"kind": "local", "threads": 3},
    }
    for name, section in sections.items():
        values[name] = {**values.get(name, {}), **section} if isinstance(section, dict) else section
    return RunSpec.model_validate(values)


def parts(run, **options):
    settings = {"on_gpu": False, "num_eval_rows": 9, "threads": 3} | options
    return {part.name: part.size_bytes for part in estimate_memory(run, SHAPE, **settings).parts}


def test_work_is_counted_from_the_budgets():
    work = estimate_work(spec(chat={"stop_after_call": True}), num_train_rows=8, num_eval_rows=9)
    # 10 steps x 2 prompts x 4 = 80 trajectories; 20 prompts over 8 rows
    assert (work.num_trajectories, work.num_passes, work.num_trajectories_is_bound) == (80, 2.5, False)
    # before step 1 and after steps 4, 8 and 10; 5 questions x (2 samples + 1 greedy)
    assert (work.num_evaluations, work.num_evaluation_trajectories) == (4, 60)
    # 140 trajectories of 100 tokens, of 3 - 1 turns with a call each
    assert (work.max_tokens, work.max_tool_calls) == (14_000, 280)


def test_dynamic_filtering_multiplies_the_bound():
    work = estimate_work(spec(train={"dynamic_filtering": {"max_rounds": 3}}), num_train_rows=8, num_eval_rows=0)
    assert (work.num_trajectories, work.num_trajectories_is_bound, work.num_evaluations) == (240, True, 0)


def test_updates_are_steps_by_epochs_by_mini_batches():
    assert estimate_work(spec(train={"epochs": 2, "mini_batches": 4}), 8, 0).num_updates == 80


@pytest.mark.parametrize(
    ("sections", "bound"),
    [
        ({}, None),
        ({"chat": {"stop_after_call": True}}, 2),
        ({"rollout": {"max_tool_calls": 7}}, 7),
        ({"rollout": {"max_tool_calls": 7}, "chat": {"stop_after_call": True}}, 2),
        ({"rollout": {"max_turns": 1}}, 0),
        ({"tools": []}, 0),
    ],
)
def test_calls_are_bounded_by_turns_only_where_a_turn_holds_one(sections, bound):
    assert calls_per_trajectory(spec(**sections)) == bound


def test_each_part_of_the_memory_on_a_cpu():
    assert parts(spec()) == {
        "process": PROCESS_BYTES,
        "weights": 1000 * 4,
        # one sum and one set for each of 3 threads
        "gradients": 1000 * 4 * 4,
        "optimiser": 1000 * 8,
        # 3 threads x 300 tokens x (2 layers x (6 x 8 + 5 x 8 + 4 x 4 + 4 x 16) + 5 x 8) x 4 bytes
        "activations": 3 * 300 * (2 * 168 + 40) * 4,
        # 3 threads x (2 x 300 x 50 logits + 2 chunks of 300 x 50) x 4 bytes
        "logits": 3 * (2 * 15_000 * 4 + 2 * 15_000 * 4),
        # 2 x 2 layers x 10 slots (5 questions x 2 samples) x 4 x 100 tokens x 4 bytes
        "keys and values": 2 * 2 * 10 * 4 * 100 * 4,
    }


def test_a_gpu_computes_in_two_bytes_and_holds_one_gradient():
    found = parts(spec(train={"kl": {"coef": 0.1}}), on_gpu=True)
    assert "process" not in found
    assert found["weights"] == 1000 * 4 and found["weights in the computing type"] == 1000 * 2
    assert found["reference"] == 1000 * 2 and found["gradients"] == 1000 * 4
    assert found["keys and values"] == 2 * 2 * 10 * 4 * 100 * 2


def test_adapters_are_all_that_is_trained():
    run = spec(model={"lora": {"rank": 2}})
    # 2 x ((8 + 8) + (8 + 16)) = 80
    assert adapter_parameters(SHAPE, 2, "all-linear") == 80 and adapter_parameters(SHAPE, 2, ("q_proj",)) == 32
    found = parts(run, on_gpu=True)
    assert (found["adapters"], found["optimiser"], found["weights"]) == (320, 640, 2000)


def test_a_critic_is_a_second_model():
    found = parts(spec(train={"algorithm": {"kind": "gae"}}))
    assert found["weights, policy and critic"] == 8000 and found["optimiser"] == 16_000
    assert found["activations"] == 2 * parts(spec())["activations"]


def test_spare_groups_and_a_copy_that_samples_take_slots_and_weights_of_their_own():
    assert parts(spec(rollout={"oversample": 2.0}))["keys and values"] == 2 * 2 * 16 * 4 * 100 * 4
    found = parts(spec(train={"staleness": 1, "loss": {"correction": {}}}), on_gpu=True)
    # 2 prompts x 4 in the copy, 5 questions x 2 in the policy; trained weights in four bytes and in two
    assert found["keys and values"] == 2 * 2 * (8 + 10) * 4 * 100 * 2
    assert found["copy that samples"] == 1000 * (4 + 2)


def test_a_micro_batch_holds_at_least_a_trajectory_and_at_most_a_mini_batch():
    assert micro_batch_tokens(spec(train={"micro_batch_tokens": 50})) == 100
    assert micro_batch_tokens(spec(train={"micro_batch_tokens": 5000})) == 800
    assert micro_batch_tokens(spec(train={"micro_batch_tokens": 5000, "mini_batches": 4})) == 200


def test_a_shape_is_read_from_headers_and_configuration(tmp_path):
    header = json.dumps(
        {
            "__metadata__": {"format": "pt"},
            "model.embed_tokens.weight": {"dtype": "F32", "shape": [50, 8], "data_offsets": [0, 0]},
            "model.layers.0.self_attn.q_proj.weight": {"dtype": "F32", "shape": [16, 8], "data_offsets": [0, 0]},
            "model.norm.weight": {"dtype": "F32", "shape": [8], "data_offsets": [0, 0]},
        }
    ).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    config = {
        "num_hidden_layers": 1,
        "hidden_size": 8,
        "num_attention_heads": 2,
        "head_dim": 8,
        "num_key_value_heads": 1,
        "intermediate_size": 12,
        "vocab_size": 50,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    shape = shape_of(read_config(tmp_path), read_shapes(tmp_path))
    # 50 x 8 + 16 x 8 + 8 = 536
    expected = ModelShape(536, 1, 8, 16, 8, 12, 50, (("model.layers.0.self_attn.q_proj", 8, 16),))
    assert shape == expected
    assert shape_of({"model_type": "mamba"}, read_shapes(tmp_path)) is None
    for damaged in (b"short", struct.pack("<Q", 2) + b"[]", struct.pack("<Q", 9) + b'{"a": []}'):
        (tmp_path / "model.safetensors").write_bytes(damaged)
        assert read_shapes(tmp_path) == {}


def test_the_disk_holds_the_kept_checkpoints_one_more_and_the_best_one():
    def disk(**sections):
        return {part.name: part.size_bytes for part in estimate_disk(spec(**sections), SHAPE, on_gpu=False).parts}

    # (2 kept + 1 being written + 1 the best) x 12 x 1,000; 4 x 1,000
    assert disk(checkpoint={"every": 1}) == {"checkpoints": 48_000, "final model": 4_000}
    assert disk(checkpoint={"every": 1}, data={"eval": None})["checkpoints"] == 36_000
    assert disk(checkpoint={"every": 6})["checkpoints"] == 24_000, "10 steps have no more than two"
    # a critic is held whole: 4 x 1,000 + 8 x 1,000
    assert disk(checkpoint={"every": 10}, train={"algorithm": {"kind": "gae"}})["checkpoints"] == 24_000
    # rank 2: 2 x (8 + 8 + 8 + 16) = 80 weights
    assert disk(checkpoint={"every": 10}, model={"lora": {"rank": 2}}) == {"checkpoints": 960, "final model": 320}


def test_the_lineage_grows_by_what_every_trajectory_may_hold():
    part = lineage_part(spec(), estimate_work(spec(), num_train_rows=8, num_eval_rows=9))
    # (80 + 60 of evaluations) x (2,000 + 16 x 100)
    assert (part.size_bytes, part.numbers) == (504_000, "(10 x 8 + 60) x 3,600")


def test_sizes_of_gpus_have_units():
    assert parse_size("24GB") == 24 * 10**9 and parse_size("1.5 GiB") == 3 * 2**29
    for text in ("24", "many", "24TB"):
        with pytest.raises(RlfError, match="--gpu: got"):
            parse_size(text)
