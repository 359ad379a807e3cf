"""What rlf emits is taken by OpenRLHF's own parser; what it does not take is told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rlf.apps.openrlhf import flags as parser
from rlf.apps.openrlhf.argv import OPTIONS, argv
from rlf.apps.openrlhf.flags import EFFECTS, REFUSED, TAKES, check_options, find_flag_faults, parse_options
from rlf.apps.openrlhf.settings import VERSION
from rlf.apps.openrlhf.supervised import job_argv, program_of
from rlf.plan import compile as compile_plan
from rlf.spec import load_spec

from .conftest import JOB, SHIPPED, SPECS

REPOSITORY = Path(__file__).parents[3]
installed = pytest.mark.skipif(
    not parser.has_openrlhf(), reason=f"openrlhf is not installed: pip install --no-deps openrlhf=={VERSION}"
)
HEAVY = {"torch", "transformers", "ray", "vllm", "deepspeed", "sqlalchemy", "aiohttp"}


@installed
@pytest.mark.parametrize("name", SHIPPED)
def test_the_options_of_a_shipped_spec_are_taken_without_a_word(name):
    spec = load_spec([SPECS / f"{name}.yaml"]).spec
    parsed = parse_options(argv(spec, JOB))
    assert (parsed.error, parsed.said) == ("", ())


@installed
@pytest.mark.parametrize("algorithm", ["gae", "reinforce", "reinforce_baseline", "rloo", "grpo", "dr_grpo"])
@pytest.mark.parametrize(
    "layout",
    [
        (),
        ("+engine.colocate=none", "+engine.actor.per_node=2", "+engine.vllm.engines=2"),
        ("+engine.colocate=actor_ref", "+engine.mode=partial", "+engine.queue_size=2"),
        ("+engine.packing=false", "+engine.attention=sdpa"),
        ("+engine.actor.per_node=4", "+engine.ring_attention=2", "+engine.vllm.tensor_parallel=2"),
    ],
    ids=["shared", "apart", "partial", "unpacked", "ring"],
)
def test_what_compiles_is_taken(algorithm, layout, load):
    loaded = load(f"train.algorithm={algorithm}", "+train.kl={coef: 0.01, kind: k2}", *layout)
    compile_plan(loaded)
    parsed = parse_options(argv(loaded.spec, JOB))
    assert (parsed.error, parsed.said) == ("", ())


@installed
def test_training_gets_the_values_that_the_spec_says(load):
    loaded = load("+train.warmup_steps=4", "+engine.packing=false", "+engine.attention=sdpa", "+train.mini_batches=2")
    got = parse_options(argv(loaded.spec, JOB)).arguments
    assert got["actor"]["adam"]["lr"] == 3e-4
    assert got["actor"]["lr_scheduler"] == "constant_with_warmup"
    assert got["actor"]["eps_clip_low_high"] == [0.2, 0.28]
    assert (got["train"]["batch_size"], got["train"]["micro_batch_size"]) == (64, 4)
    assert (got["rollout"]["batch_size"], got["rollout"]["n_samples_per_prompt"]) == (16, 8)
    assert got["algo"]["advantage"]["estimator"] == "reinforce_baseline"
    assert got["algo"]["kl"]["init_coef"] == 0.0
    assert got["reward"]["remote_url"] == ["agent"]
    assert got["ds"]["attn_implementation"] == "sdpa"


@installed
@pytest.mark.parametrize("imitates", [False, True], ids=["samples", "imitates"])
def test_what_no_option_says_openrlhf_computes_as_the_local_engine_does(imitates):
    """Its defaults stand for what no key names: AdamW's epsilon, and terms of a loss that the local engine lacks."""
    changes = ("train.algorithm=supervised", "data.demonstrations.steps=null", "data.eval=null", "eval={}")
    alone = changes if imitates else ("data.demonstrations=null",)
    spec = load_spec([SPECS / "cold_start.yaml"], ["engine={kind: openrlhf}", *alone, "rollout.schedule=clock"]).spec
    options = job_argv(spec, JOB)
    got = parse_options(options, program=program_of(spec)).arguments
    trained = got if imitates else got["actor"]
    assert not any(word.endswith("adam.eps") for word in options)
    assert trained["adam"]["eps"] == torch.optim.AdamW([torch.zeros(1)]).defaults["eps"]
    assert (trained["lr_scheduler"], trained["lr_warmup_ratio"]) == ("linear", 0.0)
    assert (trained if not imitates else got["model"])["aux_loss_coef"] == 0
    assert got["ds"]["lora"]["dropout"] == 0
    if not imitates:
        assert (trained["entropy_coef"], trained["dual_clip"], got["algo"]["kl"]["init_coef"]) == (None, None, 0.0)
        assert got["algo"]["advantage"]["is_correction_level"] == "off"
        assert (got["reward"]["normalize_enable"], got["reward"]["overlong_buffer_len"]) == (False, None)


@installed
def test_the_list_of_options_is_that_of_the_installed_version():
    parsed = parse_options([])
    assert {flag: takes for flag, takes in parsed.takes.items() if flag != "-h"} == TAKES


@installed
def test_the_parser_is_asked_once_for_the_same_options(load, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked, run = [], parser._run_parser
    monkeypatch.setattr(parser, "_run_parser", lambda options, *rest: asked.append(options) or run(options, *rest))
    options = argv(load().spec, JOB)
    other = [*options, "--eval.steps", "7"]
    assert parse_options(options) == parse_options(options) != parse_options(other)
    assert asked == [options, other]


@installed
def test_an_abbreviated_option_is_not_taken_for_another(load):
    parsed = parse_options([*argv(load().spec, JOB), "--rollout.batch", "7"])
    assert parsed.error == "unrecognized arguments: --rollout.batch 7"


@installed
@pytest.mark.parametrize(
    ("flags", "path", "words"),
    [
        ("{actor.adam.eps: much}", "engine.extra_flags.actor.adam.eps", "invalid float value: 'much'"),
        ("{ds: {experts_implementation: fast}}", "engine.extra_flags.ds.experts_implementation", "invalid choice"),
    ],
)
def test_what_the_parser_refuses_is_reported_at_the_option_that_it_names(flags, path, words, load):
    loaded = load(f"+engine.extra_flags={flags}", "model.path=some/model-of-experts")
    assert list(find_flag_faults(loaded)) == []
    faults, _ = check_options(loaded)
    assert [fault.path for fault in faults] == [path]
    assert words in faults[0].message


@installed
def test_what_openrlhf_asserts_of_several_options_is_reported_at_the_engine(load):
    faults, _ = check_options(load("+engine.extra_flags={data.max_images_per_prompt: 1}"))
    assert [fault.path for fault in faults] == ["engine"]
    assert "VLM training does not support --packing_samples" in faults[0].message


@installed
def test_what_openrlhf_says_of_the_options_is_a_warning(load):
    _, warnings = check_options(load("+train.kl={coef: 0.01, kind: k3, place: reward}"))
    assert [warning.message for warning in warnings] == [
        "OpenRLHF says: Recommend setting k3 to 'k1' when not using KL as a loss."
    ]


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("rollout.vllm_generate_batch_size: 64", "which step takes a group sampled ahead"),
        ("reward.remote_url: 'http://host'", "Write a reward term"),
        ("reward.model_name_or_path: org/judge", "Write a reward term"),
        ("ds.load_in_4bit: true", "takes none of 4 bits"),
        ("data.prompt_probs: '0.7,0.3'", ".mix.yaml"),
        ("ckpt.disable_ds: true", "no state to resume from. Write a larger checkpoint.every"),
        ("ckpt.max_mem: 500", "Write checkpoint.keep"),
        ("ds.use_universal_ckpt: true", "a resume would look for"),
        ("actor.eps_clip: 0.1", "Write train.loss.clip_low and clip_high"),
        ("reward.num_nodes: 2", "Write a reward term"),
        ("reward.stop_properly_penalty_coef: 0.5", "after rlf has recorded them. Write a reward term"),
        ("critic.muon.lr: 0.1", "Write train.critic.learning_rate"),
        ("actor.muon.ns_steps: 4", "Write engine.muon"),
        ("ckpt.best_metric_key: reward", "rlf keeps that of the best evaluation itself"),
    ],
)
def test_what_users_of_openrlhf_ask_for_and_a_job_cannot_have_is_a_fault_with_its_reason(option, words, load):
    faults = list(find_flag_faults(load(f"+engine.extra_flags={{{option}}}")))
    assert [fault.path for fault in faults] == [f"engine.extra_flags.{option.partition(':')[0]}"]
    assert words in faults[0].message


@pytest.mark.parametrize("flag", sorted(TAKES))
def test_every_option_is_rlfs_own_or_refused_or_does_something_in_some_job(flag, load):
    """Of each option is decided what it does to a promise of rlf's; a new one of OpenRLHF's would be in no list."""
    homes = [flag in {option.flag for option in OPTIONS}, flag in REFUSED, flag in EFFECTS, flag in FREE]
    assert homes.count(True) == 1


FREE = ("actor.adam.eps", "data.dataloader_num_workers", "ds.deepcompile", "ds.grad_accum_dtype", "ds.overlap_comm")
"""They change something in every job, and break no promise."""
VALUES = {"switch": "true", "float": "0.5", "int": "2", "str": "x"}
JOBS = {
    "critic.adam.eps": ["train.algorithm=gae"],
    "critic.freezing_steps": ["train.algorithm=gae"],
    "critic.model_name_or_path": ["train.algorithm=gae"],
    "critic.save_value_network": ["train.algorithm=gae"],
    "ds.value_head_prefix": ["train.algorithm=gae"],
    "actor.aux_loss_coef": ["model.path=some/model-of-experts"],
    "ds.experts_implementation": ["model.path=some/model-of-experts"],
    "actor.gradient_checkpointing_reentrant": ["+engine.gradient_checkpointing=true"],
    "algo.kl.unbiased_gradient": ["+train.kl={coef: 0.01, place: loss}"],
    "ds.ring_attn_head_stride": ["+engine.ring_attention=2"],
    "ds.zpg": ["+engine.zero_stage=3"],
    "vllm.sync_with_ray": ["+engine.colocate=none"],
    "logger.logging_steps": ["+engine.tensorboard=true"],
}
"""Those in which an option has an effect."""


@pytest.mark.parametrize("flag", sorted(JOBS))
def test_an_option_without_effect_is_a_fault_that_says_where_it_would_have_one(flag, load):
    idle = "+engine.gradient_checkpointing=false" if "reentrant" in flag else "train.steps=4"
    extra = f"+engine.extra_flags={{{flag}: {VALUES[TAKES[flag]]}}}"
    (fault,) = find_flag_faults(load(idle, extra))
    assert fault.path == f"engine.extra_flags.{flag}"
    assert "would have no effect" in fault.message
    assert list(find_flag_faults(load(*JOBS[flag], extra))) == []
    switched_off = f"+engine.extra_flags={{{flag}: null}}"
    assert list(find_flag_faults(load(switched_off))) == []


def test_a_model_that_sees_leaves_out_what_its_kernels_lack(load, tmp_path):
    (tmp_path / "config.json").write_text('{"vision_config": {}}')
    (fault,) = find_flag_faults(load(f"model.path={tmp_path}", "+engine.extra_flags={ds.use_liger_kernel: true}"))
    assert "models that see" in fault.message
    assert list(find_flag_faults(load("+engine.extra_flags={ds.use_liger_kernel: true}"))) == []


def test_without_openrlhf_its_options_are_held_against_the_list(load, monkeypatch):
    monkeypatch.setattr(parser, "has_openrlhf", lambda: False)
    faults = find_flag_faults(load("+engine.extra_flags={ds.overlap: true, actor.adam.eps: 8}"))
    assert [fault.path for fault in faults] == ["engine.extra_flags.ds.overlap"]
    _, warnings = check_options(load())
    assert [warning.path for warning in warnings] == ["engine.kind"]
    assert warnings[0].message.startswith("OpenRLHF is not installed")


@installed
def test_where_openrlhf_is_in_the_environment_of_rehearsals_alone_its_own_parser_is_asked_there(load, monkeypatch):
    monkeypatch.setattr(parser, "has_openrlhf", lambda: False)
    monkeypatch.setattr(parser, "openrlhf_version", lambda: pytest.fail("there is none here"))
    faults, warnings = check_options(load("+engine.extra_flags={actor.adam.eps: much}"), Path(sys.executable))
    assert ["invalid float value: 'much'" in fault.message for fault in faults] == [True]
    assert warnings == []


CHECK = """
import json, sys
from pathlib import Path
from rlf.runs.plans import check_spec
check_spec([Path(sys.argv[1])], ["engine.kind=openrlhf"])
print(json.dumps(sorted(sys.modules)))
"""


def test_a_check_loads_no_heavy_package():
    command = [sys.executable, "-c", CHECK, str(REPOSITORY / "specs/search.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert HEAVY & set(json.loads(done.stdout)) == set()
