"""An engine of a package: a written policy that nothing changes, and a number of steps."""

import os
import signal
from typing import ClassVar, Literal

from rlf.chat.encoding import load_tokenizer
from rlf.core.identity import hash_path
from rlf.engines.engine import Engine
from rlf.rollout.scripted import ScriptedPolicy
from rlf.spec.engines import Feature
from rlf.training.collection import Collector
from rlf.training.evaluation import step_metrics
from rlf.training.harness import build_harness
from rlf.training.outages import Outages
from rlf.types.events import CheckpointSaved, Notice, StepFinished


class Toy(Engine):
    """Counts steps."""

    LACKS: ClassVar = dict.fromkeys(Feature, "the toy only counts")
    kind: Literal["toy"] = "toy"
    dies_at: int | None = None
    """The step after which it kills itself."""

    def open(self, opening):
        return ToyRun(opening, self.dies_at)


class ToyRun:
    place, threads, step = "a test", 0, 0

    def __init__(self, opening, dies_at):
        spec, emit = self.spec, self.emit = opening.plan.spec, opening.emit
        self.dies_at, self.folder, self.flush = dies_at, opening.folder, opening.flush
        tokenizer = load_tokenizer(opening.inputs.model_path)
        self.harness = build_harness(spec, tokenizer, lambda *words: emit(Notice(*words, {})), opening.traffic)
        policy, self.chat = ScriptedPolicy(tokenizer, ["It is 42.<|im_end|>"]), self.harness.chat
        settings = {"seed": spec.seed, "emit": emit, "outages": Outages(600, lambda *words: emit(Notice(*words, {})))}
        self.collector = Collector(policy, self.harness, opening.inputs.train, spec.train, spec.rollout, **settings)

    def go_back(self, start, last_step):
        self.step = start.step

    def leave_job(self): ...

    async def run(self):
        async with self.harness.opened():
            for step in range(self.step + 1, self.spec.train.steps + 1):
                found = await self.collector.collect(step, (step - 1) * self.spec.train.prompts_per_step)
                metrics = step_metrics(found.collected, found.kept, num_groups=found.num_groups, own={"toy": step})
                self.emit(StepFinished(step, metrics, found.collected, [0.0] * len(found.collected)))
                self.step, path = step, self.folder / f"step-{step}"
                path.parent.mkdir(exist_ok=True)
                path.write_text(str(step))
                self.emit(CheckpointSaved(step, str(path), hash_path(path)))
                self.flush()
                if step == self.dies_at:
                    os.kill(os.getpid(), signal.SIGKILL)
