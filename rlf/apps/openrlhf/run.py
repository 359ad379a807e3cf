"""A run of OpenRLHF: writes the job, starts it here or on a cluster, follows it, and leaves nothing running."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import secrets
import shutil
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from rlf.apps.openrlhf.checks import check_place, check_secrets
from rlf.apps.openrlhf.cluster import COLLECT, DONE, GOES_ON, START_CHECKED, Cluster, read_checkpoints, submission_id
from rlf.apps.openrlhf.emit import ENTRY, write_job
from rlf.apps.openrlhf.ingest import Ingest
from rlf.apps.openrlhf.job import (
    Job,
    JobAttempt,
    MachinePlace,
    drop_surplus,
    latest_checkpoint,
    new_attempt,
    point_to,
    read_attempt,
    read_place,
    step_of,
    write_attempt,
    write_place,
)
from rlf.apps.openrlhf.log import Loading, LogReader, find_error
from rlf.apps.openrlhf.process import LOOPBACK_ONLY, JobWatch, free_port, local_ray, logged
from rlf.apps.openrlhf.settings import INGEST_TOKEN, Layout, openrlhf_settings
from rlf.apps.openrlhf.spool_pool import Encode, SpoolPool
from rlf.apps.openrlhf.supervised import draw_demonstrations, launcher, write_imitated
from rlf.apps.openrlhf.transfer import receiving
from rlf.chat.encoding import load_tokenizer
from rlf.chat.format import ChatFormat
from rlf.chat.on_disk import read_tokenizer
from rlf.core.errors import RlfError, RunError
from rlf.engines.engine import Inputs, Start
from rlf.plan import Plan
from rlf.spec.model_files import folder_on_disk
from rlf.training.harness import Harness, build_harness, open_demonstrations
from rlf.types.events import CheckpointSaved, EventSink, Notice
from rlf.types.score import Scored

logger = logging.getLogger(__name__)

_POLL_S = 0.25
_KEPT_LINES = 2_000
"""Of the job's output, for the words of its error."""
_LATE_S = 60.0
"""Time that trajectories of a step may take to come from the nodes before a warning."""


_STAGES = {
    "parts": "tools and rewards are open",
    "ray": "Ray runs; next it loads the models, which takes a while",
    "models": "vLLM and the trained models are up",
    "trainer": "DeepSpeed starts OpenRLHF's supervised trainer; next it loads the model",
}
"""What is reached before the first step, reported as a notice, with the words for a person who waits."""


class OpenRlhfRun:
    """One run as a job of OpenRLHF."""

    def __init__(
        self,
        plan: Plan,
        inputs: Inputs,
        folder: Path,
        *,
        emit: EventSink,
        flush: Callable[[], None] = lambda: None,
        encode: Encode | None = None,
        place: MachinePlace | None = None,
        opening_calls: bool = False,
    ) -> None:
        """Builds what can be built here; nothing is written yet.

        Args:
            folder: the run's; the job folder lies in it.
            emit: takes every event, in order.
            flush: returns when every event emitted so far is safe.
            encode: makes what the lineage stores of a trajectory; None: nothing is made ahead.
            place: where it runs, unless it ran somewhere before; None: here.
            opening_calls: whether every other trajectory opens with a written tool call.

        Raises:
            RlfError: this place cannot run the job, or a part of it cannot be built.
        """
        self._plan, self._engine = plan, openrlhf_settings(plan.spec)
        self._inputs = inputs
        self._emit, self._flush = emit, flush
        self._pool = SpoolPool(encode)
        self.job = Job.of_run(folder, self._engine.output)
        self._place = read_place(self.job) or place or MachinePlace()
        self._opening_calls = opening_calls
        address = self._engine.ray_address
        self._cluster = None if address is None else Cluster(address, self._place, emit)
        self._ingest = self._engine.ingest
        if self._cluster is None:
            check_place(self._place, plan.spec)
        if self._ingest is not None:
            check_secrets([INGEST_TOKEN])
        # transformers' own, which asks for torch too, takes longer to load than all else here.
        model = folder_on_disk(inputs.model_path)
        known = None if model is None else read_tokenizer(model)
        tokenizer = known or load_tokenizer(inputs.model_path)
        self._harness: Harness = build_harness(plan.spec, tokenizer, self._notify)
        self.step = 0
        self._checkpoint: Path | None = None
        """Where it continues from."""
        self._last_recorded: int | None = None
        """The last step that the lineage has of an earlier launch; None in a new run."""
        self._goes_on = False
        """Whether the launch of a driver that died is followed to its end, rather than another made."""
        self._leaves_job = False
        """Whether a cluster's job continues when this driver ends."""
        self._watch: JobWatch | None = None
        """Of a job on this machine while it runs."""
        self._imitated: list[list[Scored]] | None = None
        """What each step imitates, where all do."""

    def _notify(self, level: str, text: str) -> None:
        self._emit(Notice(level, text, {}))

    def _reach(self, stage: str) -> None:
        self._emit(Notice("info", _STAGES[stage], {"stage": stage}))

    @property
    def chat(self) -> ChatFormat:
        """The format that the run's conversations are written in."""
        return self._harness.chat

    @property
    def place(self) -> str:
        """Where it trains."""
        return (
            self._engine.ray_address
            or self._place.name
            or f"{Layout.of(self._plan.spec).total_gpus(self._engine)} GPUs"
        )

    @property
    def threads(self) -> int:
        """0: OpenRLHF decides it."""
        return 0

    def go_back(self, start: Start, last_step: int) -> None:
        """Follows a job that a cluster still has; else continues from what DeepSpeed wrote last, or the lineage knows.

        Raises:
            RlfError: a step was named, and the checkpoints are not on this machine's disk or the job still runs.
        """
        self._last_recorded = last_step
        if start.named and (self._cluster is not None or self._ingest is not None):
            raise RlfError(
                "--from: a cluster's job continues from the last state that its nodes wrote. Leave the option out, or "
                "start a new run."
            )
        if self._cluster is not None and self.job.argv.is_file():
            state = self._cluster.state(submission_id(self.job, read_attempt(self.job).number))
            self._goes_on = state in (*GOES_ON, DONE)
        if self._goes_on:
            self.step = last_step
        elif self._ingest is not None and self.job.argv.is_file():
            saved = asyncio.run(self._settle_alone())
            self.step = saved[-1].step if saved else 0
        else:
            newer = None if start.named or start.skipped else latest_checkpoint(self.job)
            self._checkpoint = newer or start.checkpoint
            self.step = 0 if self._checkpoint is None else step_of(self._checkpoint)

    def leave_job(self) -> None:
        """A cluster's job then continues without this driver; one on this machine ends with it."""
        self._leaves_job = True

    async def run(self) -> None:
        """Runs the job to its end. Cancelled, it ends the job, reads what is left of it and re-raises."""
        async with nullcontext() if self._ingest is None else receiving(self._ingest, self.job):
            if self._plan.spec.imitates_only:
                await self._draw()
            if self._goes_on:
                attempt = read_attempt(self.job)
                after = self._last_recorded or 0
            else:
                attempt, after = await self._new_launch(), 0
            ingest = self._ingest_of(attempt, after=after)
            try:
                await self._launch(ingest, attempt.number)
            except (asyncio.CancelledError, RunError):
                ingest.poll(last=True)
                self.step = max(self.step, ingest.step)
                self._tell_left(ingest, attempt)
                raise
            finally:
                self._pool.close()
                if self._ingest is None and not self._leaves_job:
                    await asyncio.to_thread(self._drop_checkpoints)
            await asyncio.to_thread(self._drop_records)

    async def _draw(self) -> None:
        """Writes what the steps imitate, also for a job that is there: it names what the lineage is given."""
        async with self._harness.tools:
            shown = open_demonstrations(self._plan.spec, self._harness)
            assert shown is not None, "a run that imitates nothing"
            self._imitated = await draw_demonstrations(self._plan.spec, shown)
            await asyncio.to_thread(write_imitated, self._imitated, await shown.heldout(), self.job)

    def _ingest_of(self, attempt: JobAttempt, *, after: int, until: int | None = None) -> Ingest:
        return Ingest(
            self._plan.spec,
            self.job,
            attempt,
            emit=self._emit,
            pool=self._pool,
            after=after,
            until=until,
            usage=self._usage,
            imitated=self._imitated,
        )

    def _tell_left(self, ingest: Ingest, attempt: JobAttempt) -> None:
        """Reports what a stop or a failure cut off, once: the mark is made when the lineage has it."""
        if not attempt.left_is_told:
            ingest.tell_left()
            self._flush()
            write_attempt(self.job, attempt.model_copy(update={"left_is_told": True}))

    def _drop_checkpoints(self) -> None:
        """Removes the one above `checkpoint.keep` of a job that is over, once the lineage knows the newest."""
        self._flush()
        drop_surplus(self.job, self._plan.spec.checkpoint.keep)

    def _drop_records(self) -> None:
        """Removes what is left of the agents' records of a job that is over, once the lineage has all of them.

        With `ingest` these are the copies on this machine; each agent's last file stays on its node.
        """
        self._flush()
        shutil.rmtree(self.job.spool if self._ingest is None else self.job.folder / "spool", ignore_errors=True)

    async def _new_launch(self) -> JobAttempt:
        """Writes what the next launch of the job reads; reports what an earlier one left."""
        number = 1
        if self._last_recorded is not None and self.job.argv.is_file():  # else it ended before it had a job
            number = self._catch_up(self._last_recorded) + 1
        if not self.job.argv.is_file() and self._imitated is None:
            # Opens tools and rewards once: what is wrong with them is reported before anything is started.
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(self._harness.tools)
                await stack.enter_async_context(self._harness.reward)
            self._reach("parts")
            self.job.folder.mkdir(parents=True, exist_ok=True)
        # Also for a job that is there: the runs folder may have moved, and changes of data may have been accepted.
        write_job(self._plan, self._inputs.train, self._inputs.evaluation, self.job)
        if self._ingest is None:
            point_to(self.job, self._checkpoint)
        write_place(self.job, self._place)
        attempt = new_attempt(self.job, number, first_step=self.step + 1, opening_calls=self._opening_calls)
        write_attempt(self.job, attempt)
        return attempt

    def _catch_up(self, recorded: int) -> int:
        """Reports what a killed driver had not: steps up to the checkpoint, and what the kill cut off.

        Returns that launch's number.
        """
        attempt = read_attempt(self.job)
        ingest = self._ingest_of(attempt, after=min(recorded, self.step), until=self.step)
        ingest.poll(last=True)
        self._tell_left(ingest, attempt)
        return attempt.number

    async def _launch(self, ingest: Ingest, number: int) -> None:
        job_env = json.loads(self.job.env.read_text())
        check_secrets(job_env["secrets"])
        options: list[str] = json.loads(self.job.argv.read_text())
        started = self._on_cluster if self._cluster is not None else self._on_this_machine
        async with started(number, options, job_env) as process:
            logger.info("job %s: attempt %d started", self.job.folder, number)
            await self._follow(process, ingest, self.job.log(number))

    @asynccontextmanager
    async def _on_cluster(
        self, number: int, options: list[str], job_env: dict[str, Any]
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        assert self._cluster is not None, "a cluster without an address"
        name = submission_id(self.job, number)
        if not self._goes_on:
            await self._cluster.submit(name, self.job, [*START_CHECKED, *ENTRY, *options], job_env)
        done = "continues" if self._goes_on else "is submitted"
        self._emit(Notice("info", f"job {name} {done} on {self._cluster.address}", {"job": name}))
        log = self.job.log(number)
        async with self._cluster.followed(name, log, stops=lambda: not self._leaves_job) as process:
            yield process

    async def _settle(self) -> list[CheckpointSaved]:
        """Has the nodes send what they have left, and report their checkpoints. Raises RunError."""
        assert self._cluster is not None, "a cluster without an address"
        name = f"{submission_id(self.job, read_attempt(self.job).number)}-nodes-{secrets.token_hex(2)}"
        log = self.job.folder / "logs" / f"{name}.log"
        job_env = json.loads(self.job.env.read_text())
        check_secrets(job_env["secrets"])
        await self._cluster.submit(name, self.job, COLLECT, job_env)
        async with self._cluster.followed(name, log) as process:
            await process.wait()
        return read_checkpoints(LogReader(log).read())

    async def _settle_alone(self) -> list[CheckpointSaved]:
        assert self._ingest is not None, "nodes whose disk this machine can read"
        async with receiving(self._ingest, self.job):
            return await self._settle()

    @asynccontextmanager
    async def _on_this_machine(
        self, number: int, options: list[str], job_env: dict[str, Any]
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        environment = self._place.environment(job_env["set"] | LOOPBACK_ONLY)
        command = [self._place.python, "-m", "openrlhf.cli.train_ppo_ray", *options]
        log, folder = self.job.log(number), self.job.folder
        if self._imitated is not None:
            environment["PATH"] = os.pathsep.join([str(Path(self._place.python).parent), environment.get("PATH", "")])
            starter = [self._place.python, "-m", "torch.distributed.run", "--master_port", str(free_port())]
            command = [*starter, *launcher(self._plan.spec), *options]
            self._reach("trainer")
            async with logged(command, log=log, environment=environment, folder=folder) as process:
                with self._watched([process.pid], environment):
                    yield process
            return
        ray_log = log.with_name(f"ray-{number}.log")
        async with local_ray(self._place, log=ray_log, environment=environment, folder=folder) as (address, ray):
            environment["RAY_ADDRESS"] = address
            self._reach("ray")
            async with logged(command, log=log, environment=environment, folder=folder) as process:
                with self._watched([ray, process.pid], environment):
                    yield process

    @contextmanager
    def _watched(self, roots: list[int], environment: Mapping[str, str]) -> Iterator[None]:
        self._watch = JobWatch(roots, self._gpus(environment))
        try:
            yield
        finally:
            self._watch.close()

    def _gpus(self, environment: Mapping[str, str]) -> str:
        """The GPUs that Ray gives to the job, the first ones that it sees; empty where it trains on a CPU."""
        if environment.get("DS_ACCELERATOR") == "cpu":
            return ""
        number = Layout.of(self._plan.spec).total_gpus(self._engine)
        visible = environment.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(number))))
        return ",".join(visible.split(",")[:number])

    def _usage(self, step_s: float) -> Mapping[str, float]:
        return {} if self._watch is None else self._watch.take(step_s)

    async def _follow(self, process: asyncio.subprocess.Process, ingest: Ingest, log: Path) -> None:
        """Reports events until the job is over. Raises RunError when it failed."""
        lines: deque[str] = deque(maxlen=_KEPT_LINES)
        loading, patience = Loading(), _Patience()
        ended = asyncio.ensure_future(process.wait())
        while not ended.done():
            await asyncio.wait([ended], timeout=_POLL_S)
            if self._watch is not None:
                await asyncio.to_thread(self._watch.look)
            new = await asyncio.to_thread(ingest.poll)
            await asyncio.to_thread(ingest.drop_recorded, self._flush)
            lines += new
            self.step = max(self.step, ingest.step)
            if not loading.is_over and self._imitated is None:
                for words in loading.read(new):
                    self._emit(Notice("info", words, {"stage": "loading"}))
                if loading.is_over:
                    self._reach("models")
                    self._usage(0)  # the GPUs were idle until now
            if patience.ends(ingest.awaits):
                self._notify("warning", self._late(ingest.awaits))
        lines += ingest.poll(last=self._ingest is None)
        if self._ingest is not None:
            await self._take_the_rest(ingest)
        self.step = max(self.step, ingest.step)
        if process.returncode != 0:
            why = find_error(lines) or f"it ended with code {process.returncode}"
            raise RunError(f"the OpenRLHF job failed after step {ingest.step}: {why}\nIts whole output: {log}")

    def _late(self, awaited: str) -> str:
        assert self._ingest is not None, "records that are waited for without engine.ingest"
        address = f"{self._ingest.scheme}://{self._ingest.host}:{self._ingest.port}"
        return (
            f"{awaited} is over, but its trajectories do not arrive from the nodes. Check that they reach {address}. "
            "They keep them and try again."
        )

    async def _take_the_rest(self, ingest: Ingest) -> None:
        """Takes from the nodes what they could not send before the job ended."""
        try:
            saved = await self._settle()
        except RunError as error:
            self._notify("warning", f"records and checkpoints left on the nodes are unknown here: {error}")
            saved = []
        ingest.poll(last=True)
        for checkpoint in saved:
            ingest.tell_checkpoint(checkpoint)


class _Patience:
    """Says once for each thing that is waited for that it takes long."""

    def __init__(self) -> None:
        self._awaited, self._since = "", time.monotonic()

    def ends(self, awaited: str) -> bool:
        """Whether the wait is too long; reported once."""
        if awaited != self._awaited:
            self._awaited, self._since = awaited, time.monotonic()
        late = bool(awaited) and time.monotonic() - self._since > _LATE_S
        if late:
            self._since = math.inf
        return late
