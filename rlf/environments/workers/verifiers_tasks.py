"""`python verifiers_tasks.py TASKSET ARGS`: a taskset of verifiers v1, asked line by line in JSON.

Runs in the environment that has verifiers; nothing of rlf is imported. Requests are `{"do": "describe"}`,
`{"do": "task", "index": 3}` and `{"do": "score", "index": 3, "messages": [...]}`; each is answered by one line.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def load_tasks(taskset: str, args: dict[str, Any]) -> list[Any]:
    """The tasks of a module or a file that exports one taskset. Raises ValueError for those with toolsets."""
    loaders = importlib.import_module("verifiers.v1.utils.loaders")
    v1, task = importlib.import_module("verifiers.v1"), importlib.import_module("verifiers.v1.task")
    if taskset.endswith(".py"):
        sys.path.insert(0, str(Path(taskset).parent))
        taskset = Path(taskset).stem
    made_by = loaders.taskset_class(taskset)
    config = task.concrete_type(made_by, v1.TasksetConfig) or v1.TasksetConfig
    built = made_by(config(**args))
    if not built.bounded:
        raise ValueError("the taskset never ends; give it an end, e.g. by an argument")
    tasks = list(built)
    if made_by.toolsets(built.config) or any(type(one).toolsets(one.config) for one in tasks[:1]):
        raise ValueError("it has toolsets, which are MCP servers: declare those as tools, or as `env: {kind: mcp}`")
    return tasks


def prompt_of(task: Any) -> str:
    """What the user says first, after the system's words."""
    texts = [task.data.system_prompt, task.data.prompt_text if task.data.prompt is not None else None]
    return "\n\n".join(text for text in texts if text)


async def score(task: Any, messages: Sequence[dict[str, str]]) -> dict[str, float]:
    """Rewards and metrics of a conversation, by name, and `reward`, the weighted sum."""
    trace_module, types = importlib.import_module("verifiers.v1.trace"), importlib.import_module("verifiers.v1.types")
    node = importlib.import_module("verifiers.v1.graph").MessageNode
    recorded = trace_module.TraceTask.model_construct(type=type(task).__name__, data=task.data)
    trace = trace_module.Trace.model_construct(task=recorded, agent=None, is_completed=True, ok=True)
    trace.nodes = [
        node(
            parent=place - 1 if place else None,
            message=(types.AssistantMessage if one["role"] == "assistant" else types.UserMessage)(
                content=one["content"]
            ),
            sampled=one["role"] == "assistant",
        )
        for place, one in enumerate(messages)
    ]
    await task.score(trace)
    found = {name: None if one is None else one.score for name, one in trace.rewards.items()} | trace.metrics
    if missing := [name for name, value in found.items() if value is None]:
        raise ValueError(f"{', '.join(missing)} gave nothing")
    return {**found, "reward": trace.reward}


async def answer(tasks: Sequence[Any], request: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request."""
    if request["do"] == "describe":
        return {"num_tasks": len(tasks), "rewards": [one.__name__ for one in tasks[0].hooks("reward")]}
    task = tasks[request["index"] % len(tasks)]
    if request["do"] == "task":
        return {"prompt": prompt_of(task)}
    return {"scores": await score(task, request["messages"])}


def main() -> None:
    """Answers until stdin ends. What the taskset prints goes to stderr."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    tasks: list[Any] = []
    for line in sys.stdin:
        try:
            tasks = tasks or load_tasks(sys.argv[1], json.loads(sys.argv[2]))
            done = asyncio.run(answer(tasks, json.loads(line)))
        except BaseException as fault:  # noqa: BLE001 - whatever it is, the other side hears of it
            done = {"error": f"{type(fault).__name__}: {fault}"}
        out.write(json.dumps(done) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
