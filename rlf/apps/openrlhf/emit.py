"""Writes the job folder of a plan; `rlf.apps.openrlhf.job` says what lies in it."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from rlf.apps.openrlhf.dataset import JobRow, evaluation_rows, keep_images, training_rows, write_row
from rlf.apps.openrlhf.job import Job
from rlf.apps.openrlhf.settings import INGEST_TOKEN, openrlhf_settings
from rlf.apps.openrlhf.supervised import job_argv, launcher
from rlf.plan import Plan, plan_to_json
from rlf.spec.reader import mentioned
from rlf.types.task import Task

ENTRY = ("python", "-m", "openrlhf.cli.train_ppo_ray")
VARIABLES = {"TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1"}
"""Set for every job: tokenizers warn after a fork, and output is followed while it is written."""
_AGENT = '''\
"""What OpenRLHF calls for each trajectory: hands over to rlf's own loop, chat, tools and rewards."""

from pathlib import Path

from openrlhf.utils.agent import AgentExecutorBase

from rlf.apps.openrlhf.agent import Agent


class AgentExecutor(AgentExecutorBase):
    def __init__(self):
        self._agent = Agent(Path(__file__).resolve().parent)

    async def execute(self, prompt, label, sampling_params, max_length, hf_tokenizer, llm_engine, images=None):
        return await self._agent.execute(prompt, label, sampling_params, hf_tokenizer, llm_engine)
'''
_MERGING = """

from rlf.apps.openrlhf.policy import let_vllm_merge

# Weights come by PEFT's names; vLLM loads W + alpha / rank x B A.
let_vllm_merge(scale={alpha} / {rank})
"""
"""What follows where adapters are trained."""


def write_job(plan: Plan, train: Sequence[Task], evaluation: Sequence[Task], job: Job) -> None:
    """Writes every file that is there before the job starts; of one that imitates alone, all but its rows.

    Args:
        train: the tasks of `data.train`, in the dataset's order.
        evaluation: those of `data.eval` that are tried; empty without.

    Raises:
        RlfError: a row holds what JSON cannot carry to the agent, or an image that cannot be read.
    """
    options, ingest = job_argv(plan.spec, job), openrlhf_settings(plan.spec).ingest
    job.train.parent.mkdir(parents=True, exist_ok=True)
    if not plan.spec.imitates_only:
        shared = ingest is None
        _write_rows(job.train, training_rows(keep_images(train, job, shared=shared), plan.spec))
        if evaluation:
            _write_rows(job.evaluation, evaluation_rows(keep_images(evaluation, job, shared=shared), plan.spec.eval))
        lora = plan.spec.model.lora  # OpenRLHF loads the agent before it makes the vLLM engine of the same process
        merging = "" if lora is None else _MERGING.format(alpha=lora.alpha, rank=lora.rank)
        job.agent.write_text(f"{_AGENT}{merging}", encoding="utf-8")
    _write_json(job.env, {"set": VARIABLES, "secrets": secrets(plan)})
    job.plan.write_text(plan_to_json(plan), encoding="utf-8")
    job.launch.write_text(launch_script(plan, options), encoding="utf-8")
    job.launch.chmod(0o755)
    if ingest is not None and ingest.certificate is not None:
        shutil.copyfile(ingest.certificate, job.certificate)
    _write_json(job.argv, options)  # last: a driver that continues takes it for the sign that there is a job


def secrets(plan: Plan) -> list[str]:
    """Names of the variables that tools, rewards and reports are filled in with, and the token of `engine.ingest`."""
    engine, names = openrlhf_settings(plan.spec), mentioned(item.text for item in plan.interpolated)
    if engine.wandb is not None:
        names |= {"WANDB_API_KEY"}
    if engine.ingest is not None:
        names |= {INGEST_TOKEN}
    return sorted(names)


def launch_script(plan: Plan, options: Sequence[str]) -> str:
    """A script that starts the job from its own folder, one option a line."""
    address = openrlhf_settings(plan.spec).ray_address
    command = shlex.join(["torchrun", *launcher(plan.spec)] if plan.spec.imitates_only else ENTRY)
    if address is not None:
        command = f"ray job submit --address={shlex.quote(address)} --working-dir=. -- {command}"
    starts = [index for index, word in enumerate(options) if word.startswith("--")]
    by_option = [options[start:end] for start, end in zip(starts, [*starts[1:], len(options)], strict=True)]
    lines = [
        "#!/usr/bin/env bash",
        f"# {plan.spec.name}: plan {plan.plan_hash}",
        "set -euo pipefail",
        'cd "$(dirname "$0")"',
        *(f': "${{{name}:?set it: a tool, a reward or a report reads it}}"' for name in secrets(plan)),
        *(f"export {name}={shlex.quote(value)}" for name, value in VARIABLES.items()),
        " \\\n    ".join([f"exec {command}", *map(shlex.join, by_option)]),
    ]
    return "\n".join(lines) + "\n"


def _write_rows(path: Path, rows: Iterable[JobRow]) -> None:
    with path.open("w", encoding="utf-8") as stream:
        stream.writelines(f"{write_row(row)}\n" for row in rows)


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
