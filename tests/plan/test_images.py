"""What a spec with pictures must say, each fault at its key with its fix."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlf.core import SpecError
from rlf.engines.engine import engine_of
from rlf.plan import compile as compile_plan
from rlf.spec import check_inputs, load_spec

from ..apps.openrlhf.tools import picture

pytest.importorskip("PIL")
SEARCH = Path(__file__).parents[2] / "specs" / "search.yaml"
SEES = ("engine.kind=openrlhf", "+engine.packing=false", "+rollout.max_images=1")


def faults(*overrides):
    with pytest.raises(SpecError) as caught:
        compile_plan(load_spec([SEARCH], overrides))
    return [str(fault) for fault in caught.value.faults]


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["+rollout.max_images=1"], "rollout.max_images: got 1; the local engine trains text models only"),
        ([*SEES, "engine.packing=true"], "engine.packing: got true with rollout.max_images"),
        ([*SEES, "train.algorithm=gae"], "train.algorithm: got gae with rollout.max_images"),
        (
            [*SEES, "+engine.zero_stage=3", "+engine.actor.per_node=2"],
            "engine.zero_stage: got 3 with rollout.max_images",
        ),
        ([*SEES, "+model.lora={rank: 8}"], "model.lora: got adapters with rollout.max_images"),
        (["+data.train.images=pictures"], "data.train.images: names images, but rollout.max_images is 0"),
        (["+data.eval.images=pictures"], "data.eval.images: names images, but rollout.max_images is 0"),
    ],
)
def test_what_no_model_can_be_shown_is_a_fault(overrides, said):
    (fault,) = faults(*overrides)
    assert said in fault


def test_a_spec_that_sees_compiles():
    assert compile_plan(load_spec([SEARCH], SEES)).spec.rollout.max_images == 1


def test_a_model_of_text_alone_is_a_fault_of_its_path():
    found = [str(fault) for fault in check_inputs(load_spec([SEARCH], SEES))]
    assert any("model.path" in fault and "the model sees no images" in fault for fault in found)


def test_adapters_of_a_model_that_sees_are_refused_without_pictures_too(tmp_path):
    for name, values in (("config.json", {"vision_config": {}}), ("tokenizer_config.json", {})):
        (tmp_path / name).write_text(json.dumps(values))
    overrides = ["engine.kind=openrlhf", f"model.path={tmp_path}", "+model.lora={rank: 8}"]
    loaded = load_spec([SEARCH], overrides)
    (fault,) = [str(fault) for fault in engine_of(loaded.spec).look(loaded, [], [])]
    assert "model.lora: got adapters" in fault and "sees images" in fault


def test_rows_with_more_pictures_than_a_trajectory_may_hold_are_a_fault_with_the_number(tmp_path):
    (tmp_path / "a.png").write_bytes(picture((1, 2, 3)).data)
    row = {"id": "q", "kind": "k", "question": "<image><image>", "answer": "x", "images": ["a.png", "a.png"]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    data = f"data.train={{path: {tmp_path}/rows.jsonl, prompt: question, images: images}}"
    found = [str(fault) for fault in check_inputs(load_spec([SEARCH], [*SEES, data, "~data.eval", "~eval"]))]
    assert any("rollout.max_images: got 1; row 'q' of data.train has 2 images. Write at least 2." in f for f in found)
