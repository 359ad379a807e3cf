"""Pictures go from the rows to vLLM and the trainer, each where its tokens are."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from rlf.apps.openrlhf.dataset import found_images, keep_images
from rlf.apps.openrlhf.emit import write_job
from rlf.apps.openrlhf.job import Job, new_attempt, write_attempt
from rlf.chat.encoding import encode_template
from rlf.chat.vision import load_processor
from rlf.engines.engine import load_inputs
from rlf.plan import compile as compile_plan
from rlf.spec import load_spec

from ...vision import make_tiny_llava
from .agents import opened, records
from .fakes import FakeEngine, Params
from .tools import picture

pytest.importorskip("PIL")
LOOK = '<tool_call>\n{"name": "look", "arguments": {"query": "it"}}\n</tool_call><|im_end|>'
EACH = 16
"""Tokens of a picture."""
SPEC = """
name: pictures
model: {{path: {model}}}
data:
  train: {{path: {rows}, prompt: question, answer: answer, images: images}}
tools:
  - name: look
    description: Looks at it.
    inputSchema: {{type: object, properties: {{query: {{type: string}}}}, required: [query]}}
    target: {{kind: python, callable: "{tools}:screenshot"}}
  - name: down
    description: Is never reached.
    inputSchema: {{type: object, properties: {{query: {{type: string}}}}}}
    target: {{kind: python, callable: "{tools}:unreachable"}}
rewards:
  - {{kind: rule, name: exact_match, rule: exact_match, weight: 1.0}}
rollout: {{num_generations: 2, max_turns: 3, max_total_tokens: 400, max_images: 3}}
train: {{algorithm: reinforce_baseline, steps: 1, prompts_per_step: 2}}
engine: {{kind: openrlhf, packing: false, outage_s: 0}}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_tiny_llava(tmp_path_factory.mktemp("model"))


@pytest.fixture
def plan(model, tmp_path):
    """Two rows: one with two pictures, one with none."""
    (tmp_path / "red.png").write_bytes(picture((200, 10, 10)).data)
    (tmp_path / "blue.png").write_bytes(picture((10, 10, 200)).data)
    rows = tmp_path / "rows.jsonl"
    seen = {"id": "seen", "question": "<image> or <image>?", "answer": "red", "images": ["red.png", "blue.png"]}
    text = {"id": "text", "question": "What?", "answer": "red", "images": []}
    rows.write_text(json.dumps(seen) + "\n" + json.dumps(text) + "\n")
    spec = tmp_path / "pictures.yaml"
    tools = Path(__file__).with_name("tools.py")
    spec.write_text(SPEC.format(model=model, rows=rows, tools=tools))
    return compile_plan(load_spec([spec]))


@pytest.fixture
def job(plan, tmp_path):
    job = Job(tmp_path / "job", tmp_path / "job")
    write_job(plan, load_inputs(plan).train, [], job)
    write_attempt(job, new_attempt(job, 1, first_step=1))
    return job


def labels(job):
    read = [json.loads(line)["label"] for line in job.train.read_text().splitlines()]
    return {json.loads(label)["id"]: label for label in read}


def play(job, processor, name, lines, **keys):
    """The answers to OpenRLHF for both samples of a row, whose label has keys in place of its own, and the engine."""
    engine = FakeEngine(processor.tokenizer, lines)

    async def run():
        async with opened(job) as agent:
            label = json.dumps(json.loads(labels(job)[name]) | keys)
            return await asyncio.gather(*(agent.execute("row", label, Params(), processor, engine) for _ in range(2)))

    return asyncio.run(run()), engine


@pytest.fixture(scope="module")
def processor(model):
    return load_processor(str(model))


def test_the_job_holds_each_picture_once_and_names_it_from_its_own_folder(job):
    named = json.loads(labels(job)["seen"])["messages"][0]["images"]
    assert len(named) == 2 == len(list((job.folder / "images").iterdir()))
    assert all((job.folder / name).is_file() and name.startswith("images/") for name in named)
    assert "images" not in json.loads(labels(job)["text"])["messages"][0]
    options = json.loads(job.argv.read_text())
    assert options[options.index("--data.max_images_per_prompt") + 1] == "3"
    assert "--actor.freeze_visual_encoder" in options


@pytest.mark.parametrize("shared", [True, False])
def test_nodes_of_a_cluster_find_them_in_what_they_share_or_in_the_folder_that_travels(plan, tmp_path, shared):
    job = Job(tmp_path / "job", tmp_path / "output")
    tasks = keep_images(load_inputs(plan).train, job, shared=shared)
    names = [name for task in tasks for name in task.images]
    assert len(names) == 2
    travelled = tmp_path / "copy"
    if not shared:
        job.folder.rename(travelled)
    assert all(Path(name).is_absolute() == shared for name in names)
    assert all(Path(path).is_file() for path in found_images(travelled, names))


def test_pictures_of_the_prompt_reach_vllm_and_the_trainer(job, processor):
    responses, engine = play(job, processor, "seen", ["red<|im_end|>"])
    for response in responses:
        tokens = response["observation_tokens"]
        assert tokens.count(processor.image_token_id) == 2 * EACH
        assert response["mm_train_inputs"]["pixel_values"].shape[0] == 2
        assert response["reward"] == 1.0
    for (tokens, params), pictures in zip(engine.requests, engine.pictures, strict=True):
        assert tokens.count(processor.image_token_id) == 2 * EACH
        assert [image.getpixel((0, 0)) for image in pictures["image"]] == [(200, 10, 10), (10, 10, 200)]
        assert params.logit_bias == {processor.image_token_id: -100.0}
    (seen, _) = records(job)
    assert [Path(image).parent for image in seen.scored.trajectory.task.images] == [job.folder / "images"] * 2


def test_an_evaluation_of_any_step_sees_the_pictures(job, processor):
    _, engine = play(job, processor, "seen", ["red<|im_end|>"], purpose="greedy")
    assert [len(pictures["image"]) for pictures in engine.pictures] == [2] * len(engine.requests) and engine.requests
    assert not any("nothing reads them" in (record.scored.trajectory.error or "") for record in records(job))


def test_pictures_of_results_are_shown_as_far_as_the_trajectory_may_hold_them(job, processor):
    """Two in the prompt and three allowed: the first of the result's two is shown."""
    (response, _), engine = play(job, processor, "seen", [LOOK, LOOK, "red<|im_end|>"])
    assert response["observation_tokens"].count(processor.image_token_id) == 3 * EACH
    assert response["mm_train_inputs"]["pixel_values"].shape[0] == 3
    last = max(engine.pictures, key=lambda pictures: len(pictures["image"]))
    assert [image.getpixel((0, 0))[0] for image in last["image"]] == [200, 10, 200]
    sampled = [t for start, end in response["action_ranges"] for t in response["observation_tokens"][start:end]]
    assert processor.image_token_id not in sampled
    assert sampled[-3:] == encode_template(processor.tokenizer, LOOK + "red<|im_end|>")[-3:]


def test_a_row_of_text_takes_no_pictures_along(job, processor):
    (response, _), engine = play(job, processor, "text", ["red<|im_end|>"])
    assert response["mm_train_inputs"] is None
    assert engine.pictures == [None, None]
    assert response["reward"] == 1.0


def test_a_lost_picture_leaves_its_trajectories_out_and_no_place_without_one(job, processor):
    for path in (job.folder / "images").iterdir():
        path.unlink()
    responses, engine = play(job, processor, "seen", ["red<|im_end|>"])
    assert {params.max_tokens for _, params in engine.requests} == {1}
    for response in responses:
        assert response["action_ranges"] == [(1, 2)] and response["mm_train_inputs"] is None
        assert processor.image_token_id not in response["observation_tokens"]
    assert all("cannot be read" in record.scored.trajectory.error for record in records(job))


def test_a_trajectory_that_is_left_out_keeps_the_pictures_of_its_tokens(job, processor):
    """The forward pass of its batch looks for one behind each place."""
    (response, _), _ = play(job, processor, "seen", [LOOK.replace("look", "down")])
    ((start, end),) = response["action_ranges"]
    assert end == start + 1
    assert response["observation_tokens"].count(processor.image_token_id) == 2 * EACH
    assert response["mm_train_inputs"]["pixel_values"].shape[0] == 2


def test_pictures_that_an_agent_is_given_and_sends_reach_vllm_and_the_trainer(plan, tmp_path, processor):
    agent = "rollout.agent={callable: 'tests.apps.serve.agents.adversaries:plain', on_break: fail, timeout_s: 60}"
    overrides = [agent, "rollout.schedule=clock", "tools=[]"]
    plan = compile_plan(load_spec([tmp_path / "pictures.yaml"], overrides))
    job = Job(tmp_path / "job", tmp_path / "job")
    write_job(plan, load_inputs(plan).train, [], job)
    write_attempt(job, new_attempt(job, 1, first_step=1))
    (response, _), engine = play(job, processor, "seen", ["red<|im_end|>"])
    assert response["observation_tokens"].count(processor.image_token_id) == 2 * EACH
    assert response["mm_train_inputs"]["pixel_values"].shape[0] == 2 and response["reward"] == 1.0
    assert [image.getpixel((0, 0)) for image in engine.pictures[0]["image"]] == [(200, 10, 10), (10, 10, 200)]
