"""`build: {kind: llm}`: tasks that a language model writes, behind any OpenAI-compatible endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Literal

from pydantic import Field

from rlf.apps.build.client import PROMPTS, Client, prompt_file
from rlf.apps.build.kind import BuildKind, BuildShape
from rlf.apps.build.maker import LlmMaker, Stages
from rlf.apps.build.plays import SourceTools
from rlf.apps.build.review import MOST_PLANTED
from rlf.core import RlfError, hash_json, hash_path
from rlf.core.kinds import StrictModel
from rlf.core.meter import COST, Meter
from rlf.endpoints.spec import EndpointSpec, SamplingSpec
from rlf.sandbox import SandboxLimits, SandboxSpec, open_sandbox

_REPLY_TOKENS = 500
"""Of one answer, for an estimate."""
_TOKEN_CHARS = 4


class BuildBudget(StrictModel):
    """The most that new answers may cost; a build that reaches it stops, and continues where it is allowed more."""

    tokens: int | None = Field(default=None, ge=1)
    """Prompt and completion tokens."""
    cost_usd: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """US dollars, by the servers' own word or `prices`."""


class LlmBuild(BuildKind):
    """Tasks that a language model writes stage by stage; what it writes is validated, run in a sandbox, and proven."""

    kind: Literal["llm"] = "llm"
    count: int = Field(100, ge=1)
    """Number of tasks that are tried; those that are dropped are not made up for."""
    endpoints: tuple[EndpointSpec, ...] = Field(min_length=1)
    """Servers of one model."""
    reviewers: tuple[EndpointSpec, ...] = ()
    """Servers of a second model, which judges what each task means, and some with a planted fault among them: the share
    that it catches is in the certificate. Without them nobody judges it."""
    seeds: tuple[str, ...] = Field(min_length=1)
    """Topics or questions that tasks start from, in turn."""
    prompts: str | None = None
    """Folder with prompts of your own, relative to the build file; those that it lacks are rlf's."""
    repairs: int = Field(3, ge=0, le=10)
    """Further answers that a stage is asked for, each with what was wrong with the last one."""
    budget: BuildBudget = BuildBudget()
    sampling: SamplingSpec = SamplingSpec(temperature=0.7, max_tokens=4096)
    structured_output: bool = True
    """Whether the server is given the JSON Schema of each answer; one that refuses it is asked again without."""
    concurrency: int = Field(8, ge=1)
    """Tasks that are made at once."""
    deadline_s: float = Field(600.0, gt=0, allow_inf_nan=False)
    """Time of one answer, all attempts together."""
    sandbox: SandboxSpec = SandboxSpec(limits=SandboxLimits(wall_s=5.0))
    """Where functions run, here and in runs."""

    def estimate(self, shape: BuildShape) -> dict[str, float]:
        """Requests, tokens and cost without repairs, for answers of 500 tokens."""
        hops, parallel = sum(shape.hops) / 2, sum(shape.parallel) / 2
        means = {"single": 1.0, "parallel_single": parallel, "multi": hops, "parallel_multi": hops * parallel}
        steps = sum(share * means[scenario.value] for scenario, share in shape.scenarios.items())
        dials = shape.complexity
        scaled = steps if dials.function or dials.parameters or dials.types else 0.0
        extra = float(dials.num_distractors)
        reviews = min(MOST_PLANTED, self.count) / self.count + 1 if self.reviewers else 0.0
        requests = 3 + 1 + 2 * steps + scaled + (1 + extra if extra else 0) + reviews
        files = [prompt_file(name, self._own_prompts) for name in ("decompose", "verify", "document", "deploy")]
        prompt_chars = sum(len(file.read_text(encoding="utf-8")) for file in files) / len(files)
        prompt_tokens = self.count * requests * (prompt_chars / _TOKEN_CHARS + _REPLY_TOKENS)
        completion_tokens = self.count * requests * _REPLY_TOKENS
        prices = self.endpoints[0].prices
        cost = (prompt_tokens * prices.prompt_usd + completion_tokens * prices.completion_usd) / 1e6
        return {
            "tasks": float(self.count),
            "requests": round(self.count * requests),
            "prompt_tokens": round(prompt_tokens),
            "completion_tokens": round(completion_tokens),
            "cost_usd": cost,
        }

    @contextmanager
    def open(self, shape: BuildShape, folder: Path) -> Iterator[LlmMaker]:
        """A maker with a part for each task; answers are kept in the folder."""
        for name, endpoints in {"endpoints": self.endpoints, "reviewers": self.reviewers}.items():
            if len({endpoint.model for endpoint in endpoints}) > 1:
                raise RlfError(f"build.{name}: the endpoints serve different models. Name endpoints of one model.")
        if self.reviewers and self.reviewers[0].model == self.endpoints[0].model:
            raise RlfError("build.reviewers: got the model that makes the tasks. Name another one.")
        with asyncio.Runner() as runner:
            stack = AsyncExitStack()
            try:
                meter = Meter()
                client = runner.run(self._open_client(stack, folder / "answers", self.endpoints, meter))
                reviewer = None
                if self.reviewers:
                    reviewer = runner.run(self._open_client(stack, folder / "answers", self.reviewers, meter))
                sandbox = open_sandbox(self.sandbox)
                runner.run(stack.enter_async_context(sandbox))
                stages = Stages(client, sandbox, shape, self.sandbox, self.repairs, reviewer)
                yield LlmMaker(runner, stages, shape, self.seeds, self.concurrency, count=self.count, seed=self.seed)
            finally:
                runner.run(stack.aclose())

    @asynccontextmanager
    async def open_tools(self, folder: Path) -> AsyncIterator[SourceTools]:
        """The files of the tools, over the sandbox."""
        async with open_sandbox(self.sandbox) as sandbox:
            yield SourceTools(folder, sandbox, self.sandbox.limits)

    def source_hash(self) -> str:
        """Covers the prompts."""
        folders = [PROMPTS, *([] if self._own_prompts is None else [self._own_prompts])]
        return hash_json(
            [[path.name, hash_path(path)] for folder in folders for path in sorted(folder.glob("*.jinja"))]
        )

    def code_files(self, codes: Mapping[str, str]) -> dict[str, str]:
        """A file for each tool."""
        return {f"tools/{name}.py": code for name, code in codes.items()}

    @property
    def _own_prompts(self) -> Path | None:
        return None if self.prompts is None else self._folder / self.prompts

    async def _open_client(
        self, stack: AsyncExitStack, folder: Path, endpoints: Sequence[EndpointSpec], meter: Meter
    ) -> Client:
        from rlf.endpoints.pool import EndpointPool  # it loads aiohttp

        pool = EndpointPool(endpoints)
        stack.push_async_callback(pool.close)
        bounds = {"tokens": self.budget.tokens, COST: self.budget.cost_usd}
        return Client(
            pool,
            folder,
            model=endpoints[0].model,
            sampling=self.sampling,
            prompts=self._own_prompts,
            repairs=self.repairs,
            deadline_s=self.deadline_s,
            budget={unit: most for unit, most in bounds.items() if most is not None},
            structured=self.structured_output,
            meter=meter,
        )
