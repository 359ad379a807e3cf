"""A run whose every step imitates: what OpenRLHF's supervised trainer is given, and what it cannot do."""

from __future__ import annotations

import asyncio
import json
import subprocess

import pytest

from rlf.apps.openrlhf.flags import check_options, has_openrlhf, parse_options
from rlf.apps.openrlhf.job import Job
from rlf.apps.openrlhf.rehearsal_place import CpuPlace, rehearsal_environment
from rlf.apps.openrlhf.supervised import (
    OPTIONS_OF_IMITATION,
    TAKEN,
    draw_demonstrations,
    job_argv,
    program_of,
    write_imitated,
)
from rlf.chat.encoding import load_tokenizer
from rlf.core import SpecError
from rlf.plan import compile as compile_plan
from rlf.spec import load_spec
from rlf.spec.model_files import model_location
from rlf.training.batch import make_batch
from rlf.training.harness import build_harness, open_demonstrations

from .conftest import JOB, SPECS

IMITATES = (
    *("train.algorithm=supervised", "data.demonstrations.steps=null", "train.steps=10", "data.eval=null"),
    *("data.demonstrations.heldout=16", "eval={every: 5}", "rollout.schedule=clock"),
)
ON_CPU = ("engine={kind: openrlhf, packing: false, attention: sdpa}",)
installed = pytest.mark.skipif(not has_openrlhf(), reason="openrlhf is not installed")
needs_environment = pytest.mark.skipif(
    not rehearsal_environment().is_ready(vllm=False), reason="rlf rehearse --setup makes the environment"
)


def shown(*overrides):
    """The shipped spec of demonstrations, of which every step imitates, on OpenRLHF."""
    return load_spec([SPECS / "cold_start.yaml"], [*IMITATES, "engine={kind: openrlhf}", *overrides])


def test_it_becomes_options_of_the_supervised_trainer():
    loaded = shown(*ON_CPU, "engine.actor.per_node=2", "+train.warmup_steps=3")
    compile_plan(loaded)
    written = job_argv(loaded.spec, JOB)
    assert " ".join(written[2:]) == (
        "--ds.param_dtype bf16 --train.seed 0 --data.max_len 256 --train.batch_size 32 --optim adam "
        "--adam.betas 0.9 0.95 --adam.weight_decay 0.0 --lr_scheduler linear --min_lr_ratio 0.1 "
        "--max_norm 1.0 --model.gradient_checkpointing_enable --ckpt.output_dir /runs/r/job/model "
        "--ckpt.save_steps 30 --ckpt.load_enable --ds.zero_stage 2 --ds.attn_implementation sdpa "
        "--logger.wandb.run_name cold_start --data.dataset data/train.jsonl --eval.dataset data/heldout.jsonl "
        "--eval.steps 5 --train.micro_batch_size 8 --train.max_epochs 1 --adam.lr 0.003 --lr_warmup_ratio 0.25 "
        "--ckpt.path /runs/r/job/ckpt/_actor --ckpt.max_num 3"
    )


@installed
def test_its_own_parser_takes_them_and_all_that_extra_flags_may_add():
    values = {"float": "0.5", "int": "2", "switch": "true", "str": "eager"}
    extra = ", ".join(f"{flag}: {values[takes]}" for flag, takes in TAKEN.items())
    loaded = shown(f"+engine.extra_flags={{{extra}}}")
    parsed = parse_options(job_argv(loaded.spec, JOB), program=program_of(loaded.spec))
    assert (parsed.error, parsed.said) == ("", ())
    assert {flag: parsed.takes[flag] for flag in TAKEN} == TAKEN
    assert {option.flag for option in OPTIONS_OF_IMITATION} < set(parsed.takes)
    assert parsed.arguments["adam"]["lr"] == 3e-3
    assert check_options(loaded) == ([], [])


@pytest.mark.parametrize(
    ("overrides", "path", "words"),
    [
        (
            ["data.eval={path: builtin:shop/orders_heldout, prompt: question, answer: null}"],
            "data.eval",
            "OpenRLHF's supervised trainer samples nothing. Write `data.eval=null`, and try the model that comes out",
        ),
        (
            ["data.demonstrations.steps=6"],
            "data.demonstrations.steps",
            "got 6 steps; OpenRLHF's trainer samples every row, and its supervised trainer is another program. Imitate",
        ),
        (["+engine.ema=0.9"], "engine.ema", "it keeps no mean of weights. Remove it."),
        (["+engine.hf_checkpoints=true"], "engine.hf_checkpoints", "it counts each such folder as a checkpoint"),
        (["+engine.ray_address='http://head:8265'"], "engine.ray_address", "started on the GPUs of this machine"),
        (["+engine.actor.per_node=3"], "data.demonstrations.per_step", "Write e.g. `per_step: 33`."),
        (["eval.every=4"], "eval.every", "finds the held-out loss only at multiples, which leaves out the last step"),
        (["+engine.extra_flags={data.multiturn: true}"], "engine.extra_flags.data.multiturn", "imitate alone, which"),
        (["+engine.extra_flags={adam.lr: 1}"], "engine.extra_flags.adam.lr", "from data.demonstrations.learning_rate"),
        (["+engine.extra_flags={adam.eps: true}"], "engine.extra_flags.adam.eps", "takes a value (float)"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_what_it_cannot_do_is_a_fault_with_the_reason(overrides, path, words):
    from rlf.apps.openrlhf.flags import find_flag_faults

    loaded = shown(*overrides)
    try:
        compile_plan(loaded)
        faults = list(find_flag_faults(loaded))
    except SpecError as error:
        faults = error.faults
    assert path in [fault.path for fault in faults]
    assert any(words in fault.message for fault in faults if fault.path == path)


_READ = """
import json, sys
from types import SimpleNamespace
from openrlhf.datasets.utils import blending_datasets
from openrlhf.utils.distributed_sampler import DistributedSampler
from openrlhf.utils import get_tokenizer
from torch.utils.data import DataLoader
from rlf.apps.openrlhf.imitate import TokenRows
model, seed = sys.argv[1], int(sys.argv[2])
strategy = SimpleNamespace(seed=seed, print=lambda *_: None, is_rank_0=lambda: False)
tokenizer = get_tokenizer(model, SimpleNamespace(config=SimpleNamespace()), "right", strategy)
rows = TokenRows(blending_datasets("data/train.jsonl", None, strategy), tokenizer, 256, strategy)
for ranks, rank in (1, 0), (2, 0), (2, 1):
    sampler = DistributedSampler(rows, ranks, rank, shuffle=True, seed=seed, drop_last=True)
    for tokens, attended, losses in DataLoader(rows, batch_size=8, sampler=sampler, collate_fn=rows.collate_fn):
        print(json.dumps([[part.squeeze(1).tolist() for part in (tokens, attended, losses)], ranks]))
"""


@needs_environment
def test_its_own_loader_gives_the_tokens_and_masks_of_rollouts_in_the_steps_that_the_lineage_says(tmp_path):
    spec = shown(*ON_CPU, "train.steps=4", "eval.every=4", "seed=3").spec
    job = Job(tmp_path, tmp_path)
    harness = build_harness(spec, load_tokenizer(model_location(spec.model.path)), lambda *_: None)

    async def draw():
        async with harness.tools:
            demonstrations = open_demonstrations(spec, harness)
            steps = await draw_demonstrations(spec, demonstrations)
            write_imitated(steps, await demonstrations.heldout(), job)
            return steps

    steps = asyncio.run(draw())
    assert len(job.heldout.read_text().splitlines()) == 16
    assert len(job.train.read_text().splitlines()) == 80 < sum(map(len, steps)), "each once"
    place = CpuPlace(rehearsal_environment(), vllm=False).for_job(spec)
    command = [place.python, "-c", _READ, model_location(spec.model.path), "3"]
    done = subprocess.run(command, env=place.environment({}), cwd=tmp_path, check=True, capture_output=True, text=True)
    batches = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[[[[")]
    for ranks in (1, 2):
        read = [row for batch, of in batches if of == ranks for row in zip(*batch, strict=True)]
        assert len(read) == 128
        by_rank = [read[start : start + 128 // ranks] for start in range(0, 128, 128 // ranks)]
        in_order = [row for rows in zip(*by_rank, strict=True) for row in rows]
        for number, step in enumerate(steps):
            batch = make_batch(step)
            for row, ours, mask in zip(
                in_order[number * 32 :][:32], step, batch.loss_mask_BT.tolist(), strict=True
            ):  # OpenRLHF's mask is of the token before
                tokens, attended, losses = row
                size = sum(attended)
                assert tokens[:size] == list(ours.trajectory.tokens)
                assert [False, *(loss == 1 for loss in losses[: size - 1])] == mask[:size]
                assert not any(losses[size - 1 :]) and not any(mask[size:])
