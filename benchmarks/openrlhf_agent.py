"""CPU time of one trajectory in OpenRLHF's rollout actor without sampling: rlf's agent beside OpenRLHF's executor.

Both play the same two turns (a call of the built-in search tool, an answer) with a sampler that answers at once. What
is measured is everything but vLLM: prompt, parsing, call, reward, response, and on rlf's side limits, retries and the
record of the trajectory; "no record" is rlf without it, since the other side makes none. OpenRLHF's side is its
MultiTurnAgentExecutor with the shortest agent for the same task.
Results of the tool come from a cache on both sides, or are waited for: 0.05 to 0.2 s, one call after the other. All are
the same, so that rlf makes the tokens of one alone; with `--apart` each is another. Batches of 128 trajectories
alternate in one process; the figures are medians, of CPU time and by the clock.

    python benchmarks/openrlhf_agent.py [BATCHES] [--slow [--apart]]
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import importlib
import importlib.util
import itertools
import json
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from rlf.apps.openrlhf.spool import SpoolWriter  # noqa: E402
from rlf.builtin.encyclopedia.search import search  # noqa: E402
from rlf.chat.encoding import encode_template, load_tokenizer  # noqa: E402
from rlf.spec import load_spec  # noqa: E402
from tests.apps.openrlhf.agents import CALL, RIGHT, label, new_job, opened  # noqa: E402
from tests.apps.openrlhf.fakes import Params  # noqa: E402

ROWS, SAMPLES = 16, 8
TINY = str(ROOT / "rlf/builtin/tiny/checkpoint")


class InstantEngine:
    """Answers the first turn of a trajectory with a call and the second with the answer, at once."""

    def __init__(self, tokenizer: Any) -> None:
        self._outputs = [
            SimpleNamespace(
                token_ids=list(encode_template(tokenizer, text)), text=text, finish_reason="stop", logprobs=None
            )
            for text in (CALL, RIGHT)
        ]
        self._prompt_size = 0

    async def generate(self, prompt_token_ids: list[int], sampling_params: Any, multi_modal_data: Any = None) -> Any:
        await asyncio.sleep(0)
        self._prompt_size = self._prompt_size or len(prompt_token_ids)
        return SimpleNamespace(outputs=[self._outputs[len(prompt_token_ids) > self._prompt_size]])


def load_executor() -> Any:
    """OpenRLHF's module of agents, without its package's other imports."""
    found = importlib.util.find_spec("openrlhf")
    assert found is not None and found.submodule_search_locations, "pip install --no-deps openrlhf==0.11.2"
    package = ModuleType("openrlhf.utils")
    package.__path__ = [str(Path(next(iter(found.submodule_search_locations))) / "utils")]
    sys.modules["openrlhf.utils"] = package
    return importlib.import_module("openrlhf.utils.agent")


_delays = itertools.count()


async def slow_search(query: str) -> str:
    """A passage of the encyclopedia, after a while."""
    await asyncio.sleep(0.05 + 0.15 * (next(_delays) % 16) / 15)
    return search(query)


async def apart_search(query: str) -> str:
    """The same, with a line that no other call gets."""
    return f"{await slow_search(query)}\nThis was call {next(_delays)}."


def shortest_agent(agents: Any, waited: Callable[[str], Awaitable[str]] | None) -> Any:
    """OpenRLHF's executor with an agent that searches, answers and compares, and does nothing else."""

    cached_search = functools.cache(search)

    class Search(agents.AgentInstanceBase):  # type: ignore[misc]
        def __init__(self) -> None:
            pass

        async def step(self, state_dict: dict[str, Any], **_: Any) -> dict[str, Any]:
            text = state_dict["action_text"]
            called = re.search(r"<tool_call>\n(.*)\n</tool_call>", text)
            if called is None:
                value = float(text.removesuffix("<|im_end|>").strip().lower() == "fentes")
                return {"rewards": torch.tensor(value), "environment_feedback": "", "done": True}
            arguments = json.loads(called[1])["arguments"]
            found = await waited(**arguments) if waited else cached_search(**arguments)
            feedback = (
                f"\n<|im_start|>user\n<tool_response>\n{found}\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
            )
            return {"rewards": torch.tensor(0.0), "environment_feedback": feedback, "done": False}

    return agents.MultiTurnAgentExecutor(Search)


async def unrecorded(_: SpoolWriter, record: object) -> None:
    """In place of `SpoolWriter.append`."""


async def measure_batch(play: Callable[[int], Awaitable[Any]]) -> tuple[float, float]:
    """Milliseconds a trajectory, of CPU and by the clock, of one batch of `ROWS` groups played at once."""
    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*(play(row) for row in range(ROWS) for _ in range(SAMPLES)))
    num = ROWS * SAMPLES
    return (time.process_time() - cpu) * 1000 / num, (time.perf_counter() - wall) * 1000 / num


WAITED = (
    "tools=[{{name: search, description: Finds passages., inputSchema: {{type: object, properties: {{query: "
    "{{type: string}}}}, required: [query]}}, target: {{kind: python, callable: 'benchmarks.openrlhf_agent:{}'}}, "
    "limits: {{max_concurrency: 512}}}}]"
)


async def measure(num_batches: int, folder: Path, waited: Callable[[str], Awaitable[str]] | None) -> None:
    """Plays batches of both in turn and prints what they took."""
    tokenizer = load_tokenizer(TINY)

    def load(*overrides: str) -> Any:
        return load_spec([ROOT / "specs/search.yaml"], ["engine.kind=openrlhf", *overrides])

    job = new_job(
        load, folder, f"rollout.num_generations={SAMPLES}", *([WAITED.format(waited.__name__)] if waited else [])
    )
    prompt = "<|im_start|>user\nWhere was Rinten born?<|im_end|>\n<|im_start|>assistant\n"
    theirs = shortest_agent(load_executor(), waited)
    labels = [label(row) for row in range(ROWS)]
    async with opened(job) as agent:
        params, engine, their_engine = Params(logprobs=None), InstantEngine(tokenizer), InstantEngine(tokenizer)

        async def ours(row: int) -> Any:
            return await agent.execute("row", labels[row], params, tokenizer, engine)

        async def peer(row: int) -> Any:
            own = Params(logprobs=None, max_tokens=200)
            return await theirs.execute(prompt, labels[row], own, 512, tokenizer, their_engine)

        responses = await asyncio.gather(peer(0), *(ours(0) for _ in range(SAMPLES)))
        assert [response["reward"] for response in responses] == [1.0] * (SAMPLES + 1)
        assert {len(response["action_ranges"]) for response in responses} == {2}
        figures: dict[str, list[tuple[float, float]]] = {"rlf": [], "no record": [], "OpenRLHF": []}
        recorded = SpoolWriter.append
        for number in range(num_batches + 1):
            for name, play in zip(figures, (ours, ours, peer), strict=True):
                with patch.object(SpoolWriter, "append", unrecorded if name == "no record" else recorded):
                    took = await measure_batch(play)
                if number:
                    figures[name].append(took)
    for place, what in enumerate(("of CPU", "by the clock")):
        columns = {name: [took[place] for took in values] for name, values in figures.items()}
        for name, values in columns.items():
            median = statistics.median(values)
            print(f"{name:>9}: {median:.3f} ms {what} a trajectory ({min(values):.3f} to {max(values):.3f})")
        theirs_ms = columns.pop("OpenRLHF")
        for name, values in columns.items():
            pairs = [one / other for one, other in zip(values, theirs_ms, strict=True)]
            print(f"    {name} / OpenRLHF: {statistics.median(pairs):.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("batches", nargs="?", type=int, default=15)
    parser.add_argument("--slow", action="store_true", help="results of the tool are waited for")
    parser.add_argument("--apart", action="store_true", help="and each is another")
    options = parser.parse_args()
    waited = apart_search if options.apart else slow_search if options.slow else None
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(measure(options.batches, Path(name), waited))
