"""Jobs of the search spec, with agents that are called in process."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path

from rlf.apps.openrlhf.agent import Agent
from rlf.apps.openrlhf.dataset import JobRow, Purpose, write_row
from rlf.apps.openrlhf.emit import write_job
from rlf.apps.openrlhf.job import Job, new_attempt, write_attempt
from rlf.apps.openrlhf.shared import Tally
from rlf.apps.openrlhf.spool import SpoolReader
from rlf.apps.openrlhf.spool_pool import FilesOpened
from rlf.chat.encoding import load_tokenizer
from rlf.engines.engine import load_inputs
from rlf.plan import compile as compile_plan
from rlf.types import Message, Task

from .fakes import FakeEngine, Params

CALL = '<tool_call>\n{"name": "search", "arguments": {"query": "Where was Rinten born?"}}\n</tool_call><|im_end|>'
RIGHT, WRONG = "Fentes<|im_end|>", "nowhere<|im_end|>"
SIZES = (
    *("data.train.limit=64", "data.eval.limit=64", "train.prompts_per_step=2", "rollout.num_generations=4"),
    *("train.steps=2", "eval.every=1", "eval.limit=2"),
)


def new_job(load, folder: Path, *overrides: str, evaluate_first: bool = False) -> Job:
    """A written job of the search spec: two prompts a step, four rollouts a prompt."""
    plan = compile_plan(load(*SIZES, *overrides))
    inputs = load_inputs(plan)
    job = Job(folder / "job", folder / "job")
    write_job(plan, inputs.train, inputs.evaluation, job)
    write_attempt(job, new_attempt(job, 1, first_step=1).model_copy(update={"evaluate_first": evaluate_first}))
    return job


def label(number: int, purpose: Purpose = Purpose.TRAIN) -> str:
    """The label of a question whose answer is Fentes."""
    task = Task(f"q{number}", (Message("user", "Where was Rinten born?"),), answer="Fentes")
    return json.loads(write_row(JobRow(purpose, number, task)))["label"]


@asynccontextmanager
async def opened(job: Job, tally: Tally | None = None):
    """The job's agent, closed afterwards."""
    agent = Agent(job.folder, tally)
    try:
        yield agent
    finally:
        await agent.close()


def play(
    job: Job, lines, *, number: int = 0, samples: int = 4, purpose: Purpose = Purpose.TRAIN, params=None, tally=None
):
    """What `execute` returns for the samples of one row, started together, and the engine that they sampled on."""
    tokenizer = load_tokenizer("rlf/builtin/tiny/checkpoint")
    engine, params = FakeEngine(tokenizer, lines), params or Params()

    async def run():
        async with opened(job, tally) as agent:
            calls = (agent.execute("row", label(number, purpose), params, tokenizer, engine) for _ in range(samples))
            return await asyncio.gather(*calls)

    return asyncio.run(run()), engine


def records(job: Job):
    """What the agents of the first launch wrote, but for the files that were opened."""
    return [line for line in spooled(job) if not isinstance(line, FilesOpened)]


def spooled(job: Job):
    """All that the agents of the first launch wrote."""
    return SpoolReader(job.spool / "attempt-1").read()
