"""Names of TRL, verl and OpenRLHF, stored under the spec's own."""

import importlib.util
from pathlib import Path

import pytest

from rlf.core import SpecError
from rlf.spec import RunSpec, load_spec
from rlf.spec.aliases import ALIASES, NEAR_MISSES, Library
from rlf.spec.faults import field_at
from rlf.spec.nodes import Node

from .project import SPEC

NAMES = [(name, alias) for alias in ALIASES for name in alias.names]


def is_known(path):
    empty = Node({}, None, None, (), Path())
    keys = path.split(".")
    if keys[:2] == ["train", "algorithm"]:
        return keys[2] in ("kind", "gamma", "lam")
    return field_at(RunSpec, empty, keys) is not None


@pytest.mark.parametrize("alias", ALIASES, ids=lambda alias: alias.names[0])
def test_every_accepted_name_stands_for_a_key_of_the_spec(alias):
    assert all(is_known(path) for path in (*alias.canonical, *alias.also, *alias.implies))


def test_no_accepted_name_is_a_key_of_the_spec_or_stands_for_two():
    assert not [name for name, _ in NAMES if is_known(name)]
    assert len({name for name, _ in NAMES}) == len(NAMES)


def test_no_name_is_both_accepted_and_a_near_miss_at_the_same_level():
    assert not {name for name, _ in NAMES if name.startswith("train.")} & {f"train.{name}" for name in NEAR_MISSES}


@pytest.mark.skipif(importlib.util.find_spec("openrlhf") is None, reason="openrlhf is not installed")
def test_the_dotted_names_of_openrlhf_are_flags_of_the_installed_one():
    source = (Path(importlib.util.find_spec("openrlhf").origin).parent / "cli" / "train_ppo_ray.py").read_text()
    sections = ("algo.", "actor.", "critic.", "ckpt.", "rollout.n", "rollout.b")
    for name, alias in NAMES:
        if alias.source is Library.OPENRLHF and name.startswith(sections):
            flags = (f'"--{name}"', '"--{prefix}.' + name.partition(".")[2] + '"')
            assert any(flag in source for flag in flags), name


@pytest.mark.parametrize(
    ("said", "key", "value"),
    [
        ("rollout: {n: 3}", "rollout.num_generations", 3),
        ("train: {n_samples_per_prompt: 3}", "rollout.num_generations", 3),
        ("actor_rollout_ref: {rollout: {n: 3}}", "rollout.num_generations", 3),
        ("train: {lr: 1e-5}", "train.learning_rate", 1e-5),
        ("actor: {adam: {lr: 1e-5}}", "train.learning_rate", 1e-5),
        ("train: {adv_estimator: rloo}", "train.algorithm.kind", "rloo"),
        ("algo: {advantage: {estimator: group_norm}}", "train.algorithm.kind", "grpo"),
        ("train: {loss_agg_mode: seq-mean-token-mean}", "train.loss.aggregation", "seq_mean_token_mean"),
        ("train: {eps_clip_low_high: [0.1, 0.3]}", "train.loss.clip_high", 0.3),
        ("train: {epsilon: 0.1}", "train.loss.clip_high", 0.1),
        ("train: {epsilon: 0.1, epsilon_high: 0.3}", "train.loss.clip_high", 0.3),
        ("train: {beta: 0.1}", "train.kl.place", "loss"),
        ("train: {init_kl_coef: 0.1}", "train.kl.place", "reward"),
        ("algo: {kl: {init_coef: 0.1, use_loss: true, estimator: k2}}", "train.kl", {"coef": 0.1, "place": "loss"}),
        ("data: {train_batch_size: 5}", "train.prompts_per_step", 5),
        ("model: {lora_rank: 4}", "model.lora.rank", 4),
        ("rollout: {n: 3, num_generations: 3}", "rollout.num_generations", 3),
    ],
)
def test_a_value_is_stored_under_the_canonical_name(project, said, key, value):
    run = project({"specs/child.yaml": f"extends: run.yaml\n{said}\n"})
    found = load_spec([run.with_name("child.yaml")]).value(key.split("."))
    assert found == value or value.items() <= found.items()


def test_a_later_layer_wins_whatever_name_it_uses(project):
    run = project(
        {"specs/a.yaml": "extends: run.yaml\nrollout: {n: 6}\n", "specs/b.yaml": "rollout: {num_generations: 5}\n"}
    )
    aliased = [run.with_name("a.yaml")]
    assert load_spec(aliased).spec.rollout.num_generations == 6
    assert load_spec([*aliased, run.with_name("b.yaml")]).spec.rollout.num_generations == 5
    assert load_spec(aliased, ["rollout.n_samples_per_prompt=7"]).spec.rollout.num_generations == 7


def test_overrides_take_accepted_names_too(project):
    run = project({"specs/run.yaml": SPEC.replace("algorithm: grpo", "algorithm: {kind: gae, lam: 0.9}")})
    overrides = ["train.lr=2e-5", "train.adv_estimator=rloo", "train={beta: 0.1, epochs: 2}", "train.epsilon=0.3"]
    train = load_spec([run], overrides).spec.train
    assert (train.learning_rate, train.kl.coef, train.epochs, train.steps) == (2e-5, 0.1, 2, 2)
    assert (train.loss.clip_low, train.loss.clip_high) == (0.3, 0.3)
    assert type(train.algorithm).__name__ == "Rloo"


def test_a_value_is_deleted_under_an_accepted_name(project):
    assert load_spec([project()], ["~rollout.n"]).spec.rollout.num_generations == 8


def test_its_origin_is_where_it_was_said(project):
    run = project({"specs/run.yaml": SPEC.replace("num_generations: 4", "n: 4")})
    assert load_spec([run]).origins["rollout.num_generations"] == "specs/run.yaml:10:6"


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_a_near_miss_is_refused_with_the_difference(project, name):
    with pytest.raises(SpecError) as caught:
        load_spec([project()], [f"train.{name}=3"])
    assert str(caught.value) == f"override train.{name}: unknown key {name!r}: {NEAR_MISSES[name]}"


def test_null_under_an_accepted_name_says_nothing(project):
    run = project({"specs/child.yaml": "extends: run.yaml\ntrain: {epsilon: 0.3, epsilon_high: null, beta: null}\n"})
    train = load_spec([run.with_name("child.yaml")], ["train.lr=null", "train={kl_loss_coef: null}"]).spec.train
    assert (train.loss.clip_low, train.loss.clip_high, train.kl.coef, train.learning_rate) == (0.3, 0.3, 0.0, 1e-6)
