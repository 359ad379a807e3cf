"""What every registered engine keeps, also one that a package adds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rlf.algo import ESTIMATORS
from rlf.algo.loss_config import PolicyLossKind
from rlf.core import SpecError
from rlf.engines.engine import Engine, engine_of
from rlf.plan import compile as compile_plan
from rlf.runs.restore import recorded_engine
from rlf.spec import load_spec
from rlf.spec.engines import ENGINES, Feature, default_engine

from ..lineage.builders import run_record

SEARCH = Path(__file__).parents[2] / "specs" / "search.yaml"
HEAVY = {"torch", "transformers", "ray", "vllm", "deepspeed", "openrlhf", "aiohttp", "sqlalchemy"}
USES = {
    Feature.ADAPTERS: ("model.lora", ["+model.lora={rank: 4}"]),
    Feature.IMAGES: ("rollout.max_images", ["+rollout.max_images=1"]),
    Feature.TURN_REWARDS: (
        "rewards[0].stage",
        ["rewards=[{kind: rule, name: valid, rule: valid_call, stage: turn}]"],
    ),
    Feature.FORKED_HISTORY: ("chat.history", ["+chat.history=fork"]),
    Feature.OBSERVATIONS_IN_LOSS: (
        "train.observations_in_loss",
        ["name=an_ablation", "+train.observations_in_loss=true"],
    ),
    Feature.PREFIX_ROWS: ("rollout.prefix_rows", ["+rollout.prefix_rows=true"]),
    Feature.SKIPPED_OBSERVATIONS: ("train.algorithm.observations", ["train.algorithm={kind: gae, observations: skip}"]),
    Feature.FILTER_ROUNDS: ("train.dynamic_filtering.max_rounds", ["+train.dynamic_filtering={max_rounds: 2}"]),
    Feature.STRAGGLERS: ("rollout.oversample", ["rollout.schedule=clock", "+rollout.oversample=1.5"]),
    Feature.POOLS: ("train.sampler", ["+train.sampler=pools"]),
    Feature.STALENESS: ("train.staleness", ["+train.staleness=1"]),
    Feature.EVALUATION_BUDGET: ("limits.max_usd_per_evaluation", ["+limits.max_usd_per_evaluation=1.5"]),
    Feature.ROLLBACK: ("health.kl_ref.action", ["+health.kl_ref={above: 5, action: rollback}"]),
}
"""A key and how a spec asks for each feature that is asked for by a key."""
METHODS = {
    Feature.REHEARSAL: ("fit_rehearsal", "rehearse", "make_rehearsals"),
    Feature.BRANCHES: ("copy_checkpoint",),
    Feature.CHECKPOINT_MODELS: ("save_checkpoint_model",),
}
"""What an engine implements that has a feature."""


def faults(kind: str, overrides: list[str]) -> dict[str, str]:
    """The faults of the search spec under an engine, by key."""
    try:
        compile_plan(load_spec([SEARCH], [f"engine.kind={kind}", *overrides]))
    except SpecError as error:
        return {fault.path: fault.message for fault in error.faults}
    return {}


@pytest.fixture(params=ENGINES.names())
def kind(request):
    return request.param


def test_the_engine_of_a_spec_that_names_none_is_registered():
    assert isinstance(default_engine(), Engine)
    assert default_engine().kind in ENGINES.names()


def test_it_is_chosen_with_its_defaults_and_written_as_it_is_read(kind):
    engine = engine_of(load_spec([SEARCH], [f"engine.kind={kind}"]).spec)
    assert (engine.kind, type(engine)) == (kind, ENGINES.get(kind))
    assert type(engine).model_validate(engine.model_dump(mode="json")) == engine
    assert set(engine.WITHOUT_EFFECT) <= set(type(engine).model_fields)
    assert engine.TITLE and type(engine).__doc__


def test_importing_it_loads_nothing_that_runs(kind):
    code = f"import sys; from rlf.spec.engines import ENGINES; ENGINES.get({kind!r}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert HEAVY & set(done.stdout.split()) == set()


def test_estimators_and_losses_that_it_names_exist_and_the_others_are_faults(kind):
    engine = ENGINES.get(kind)
    assert set(engine.ESTIMATORS or ()) <= set(ESTIMATORS.names()) and set(engine.LOSSES or ()) <= set(PolicyLossKind)
    for known, names, path, override in (
        (engine.ESTIMATORS, ESTIMATORS.names(), "train.algorithm", "train.algorithm={}"),
        (engine.LOSSES, list(PolicyLossKind), "train.loss.kind", "+train.loss.kind={}"),
    ):
        for name in names:
            said = faults(kind, [override.format(name)]).get(path, "")
            assert ("does not have" in said) is (known is not None and name not in known), (name, said)


@pytest.mark.parametrize("feature", USES)
def test_what_it_lacks_and_nothing_else_is_a_fault_at_the_key_with_the_reason(kind, feature):
    path, overrides = USES[feature]
    said = faults(kind, overrides).get(path, "")
    reasons = {name: ENGINES.get(name).LACKS.get(feature) for name in ENGINES.names()}
    told = {name for name, why in reasons.items() if why is not None and f"{why}. " in said}
    assert told == ({kind} if reasons[kind] is not None else set())


@pytest.mark.parametrize("feature", METHODS)
def test_it_implements_what_it_does_not_lack(kind, feature):
    engine = ENGINES.get(kind)
    below = engine.__mro__[: engine.__mro__.index(Engine)]
    own = [any(name in vars(base) for base in below) for name in METHODS[feature]]
    assert own == [feature not in engine.LACKS] * len(own)


def test_a_report_of_its_plan_needs_no_model(kind, tmp_path):
    spec = load_spec([SEARCH], [f"engine.kind={kind}"]).spec
    report = engine_of(spec).report(spec, None, tmp_path / "RUN", gpu_bytes=None, num_eval_rows=8)
    assert (report.memory, report.gpus) == (None, ())
    json.dumps(report.argv)


def test_a_recorded_run_has_its_engine_back_and_a_checkpoint_that_is_gone_is_damaged(kind, tmp_path):
    engine = recorded_engine(run_record("r", engine=kind, plan={"spec": {"engine": {"kind": kind}}}))
    assert type(engine) is ENGINES.get(kind)
    assert engine.checkpoints_in(tmp_path).is_relative_to(tmp_path)
    assert "gone" in str(engine.find_damage(tmp_path / "none", "0" * 64))
    assert engine.models_in(tmp_path, 3) == {}
