"""The same trajectories and weights, through the local engine's update and through OpenRLHF's own code and options."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from transformers import AttentionInterface, AutoModelForCausalLM

from rlf.apps.openrlhf.argv import argv
from rlf.apps.openrlhf.flags import parse_options
from rlf.apps.openrlhf.settings import ESTIMATOR_NAMES
from rlf.apps.openrlhf.spool_pool import Record
from rlf.engines.local.attention import ATTENTION, ragged_attention
from rlf.engines.local.model import split
from rlf.engines.local.update import Updater
from rlf.spec import load_spec
from rlf.training.batch import make_batch

from ...algo.openrlhf_reference import experience_maker, openrlhf_trainer
from .agents import CALL, RIGHT, SIZES, WRONG, new_job, play, records
from .conftest import JOB, SPECS

TINY = "rlf/builtin/tiny/checkpoint"
LINES = [[CALL, RIGHT, WRONG, RIGHT, f"So. {WRONG}", RIGHT], [WRONG, "It is " * 40, RIGHT, CALL, f"Well, {WRONG}"]]
"""What is sampled for each of two questions; the longest line is cut."""
BASE = ("rollout.max_new_tokens=70", "train.max_grad_norm=1e9", "engine.packing=false", "engine.attention=eager")
VARIANTS = [
    *((f"train.algorithm={name}",) for name in ESTIMATOR_NAMES if name != "gae"),
    ("train.algorithm=grpo", "+train.kl={coef: 0.1, kind: k2}", "+train.entropy_coef=0.01"),
    ("train.algorithm=grpo", "+train.kl={coef: 0.1, kind: k3}", "+train.loss.aggregation=seq_mean_token_mean"),
    ("train.algorithm={kind: reinforce, gamma: 0.9}", "+train.kl={coef: 0.1, kind: k1, place: reward}"),
    ("train.algorithm=dr_grpo", "+train.loss.correction={level: token, mode: clip, threshold: [0, 9]}"),
    ("train.algorithm=rloo", "+train.loss.kind=gspo", "+rollout.temperature=0.7", "+train.reward_clip=[-0.5, 0.3]"),
]
"""The critic of `gae` is another model on each engine: its formulas are compared in `tests/algo`."""


def load(*overrides):
    return load_spec([SPECS / "search.yaml"], ["engine.kind=openrlhf", *SIZES, *BASE, *overrides])


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """Two groups of trajectories as the lineage has them, and what OpenRLHF was told of each."""
    job = new_job(load, tmp_path_factory.mktemp("played"))
    responses = [answer for number, lines in enumerate(LINES) for answer in play(job, lines, number=number)[0]]
    told = [line for line in records(job) if isinstance(line, Record)]
    scored = [record.scored for record in sorted(told, key=lambda record: (record.row, record.sample))]
    assert [item.trajectory.tokens for item in scored] == [answer["observation_tokens"] for answer in responses]
    assert {item.reward for item in scored[:4]} == {item.reward for item in scored[4:]} == {0.0, 1.0}
    return scored, responses


@pytest.fixture(scope="module")
def models():
    """The embedded model as the policy, and a reference whose weights are a little off."""
    policy = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float64, attn_implementation="sdpa")
    reference, generator = deepcopy(policy), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in reference.parameters():
            weight += 0.01 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    return policy, reference


@pytest.mark.parametrize("overrides", VARIANTS, ids=" ".join)
def test_the_local_engine_and_the_compiled_job_give_one_batch_the_same_update(overrides, played, models):
    spec, (scored, responses) = load(*overrides).spec, played
    with in_float64(), torch.compiler.set_stance("force_eager"):
        ours = ours_of(spec, scored, deepcopy(models))
        theirs = theirs_of(parse_options(argv(spec, JOB)).arguments, responses, deepcopy(models))
    torch.testing.assert_close(ours.advantages_B, theirs.advantages_B, rtol=0, atol=1e-6)
    assert ours.loss == pytest.approx(theirs.loss, rel=0, abs=1e-6)
    assert ours.gradients.keys() == theirs.gradients.keys()
    for name, gradient in ours.gradients.items():
        torch.testing.assert_close(gradient, theirs.gradients[name], rtol=0, atol=1e-6)
    assert max(float(gradient.abs().max()) for gradient in ours.gradients.values()) > 1e-3


def ours_of(spec, scored, models):
    """Advantages, policy loss and gradient of the local engine's update, in float64."""
    AttentionInterface.register(ATTENTION, ragged_attention)
    for model in models:
        model.set_attn_implementation(ATTENTION)
    model, reference = (split(model, torch.float64) for model in models)
    reference = reference if spec.train.kl.coef else None
    updater = Updater(model, spec.train, temperature=spec.rollout.temperature, seed=0, reference=reference)
    gradients = {}

    def keep():
        gradients.update({name: weight.grad.clone() for name, weight in model.full.named_parameters()})

    updater.optimizer.step = keep
    batch = make_batch(scored)
    wide = {"rewards_B": batch.rewards_B.double(), "rollout_logprobs_BT": batch.rollout_logprobs_BT.double()}
    done = updater.update(replace(batch, **wide), 1)
    return SimpleNamespace(
        advantages_B=torch.tensor(done.advantages, dtype=torch.float64),
        loss=done.metrics["loss/policy"],
        gradients=gradients,
    )


def theirs_of(arguments, responses, models):
    """The same of OpenRLHF's experiences, advantages and training step, under the options that rlf compiles."""
    library, args = openrlhf_trainer(), named(arguments)
    actor, reference = (library.Actor(model, temperature=args.rollout.temperature) for model in models)
    actor.packing_samples = reference.packing_samples = False
    process = library.SamplesGenerator._process_response_into_experience
    samples = [process(None, response, max_len=args.data.max_len) for response in responses]
    with mock.patch.dict(library.Experience._merge_item.__globals__, zero_pad_sequences=library.pad):
        whole = library.Experience.concat_experiences(samples, 0)
    whole.index, whole.rewards = list(range(len(samples))), whole.rewards.double()
    whole.rollout_log_probs = whole.rollout_log_probs.double()
    inputs = {"action_mask": whole.action_mask, "attention_mask": whole.attention_mask}
    with torch.no_grad():
        whole.action_log_probs, base = (model(whole.sequences, **inputs) for model in (actor, reference))
    whole.kl = torch.zeros_like(base)
    if args.algo.kl.use_loss:
        whole.base_action_log_probs = base
    elif args.algo.kl.init_coef:
        whole.kl = library.compute_approx_kl(whole.action_log_probs, base, args.algo.kl.estimator)
    experience_maker(args, args.algo.kl.init_coef).compute_advantages_and_returns([whole])
    told = train(library, args, actor, whole)
    counts_B = whole.action_mask.sum(1)
    return SimpleNamespace(
        advantages_B=(whole.advantages * whole.action_mask).sum(1) / counts_B,
        loss=float(told["metrics"]["policy_loss"]),
        gradients={name: weight.grad for name, weight in actor.model.named_parameters()},
    )


def train(library, args, actor, experience):
    """One training step of OpenRLHF's, its optimiser left out."""
    strategy = SimpleNamespace(
        args=args,
        ring_attn_group=None,
        backward=lambda loss, *_: loss.backward(),
        optimizer_step=lambda *_, **__: None,
        get_grad_norm=lambda _: 0.0,
    )
    schedule = SimpleNamespace(get_last_lr=lambda: [0.0])
    trainer = library.Trainer(strategy, actor, None, None, schedule)
    return trainer.training_step(experience, args.algo.kl.init_coef, 0)


def named(values):
    """Nested dicts as attributes, as OpenRLHF has its options."""
    return SimpleNamespace(**{key: named(value) if isinstance(value, dict) else value for key, value in values.items()})


def in_float64():
    """OpenRLHF and transformers compute in float32 what came in bfloat16; here what is float64 stays so."""
    plain_float, plain_to = torch.Tensor.float, torch.Tensor.to

    def kept(plain):
        def convert(tensor, *arguments, **keywords):
            is_narrowed = tensor.dtype is torch.float64 and (not arguments or arguments[0] is torch.float32)
            return tensor if is_narrowed and not keywords else plain(tensor, *arguments, **keywords)

        return convert

    return mock.patch.multiple(torch.Tensor, float=kept(plain_float), to=kept(plain_to))
