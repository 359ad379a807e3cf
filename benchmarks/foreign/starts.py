"""How many processes of an MCP server 64 tasks of 8 trajectories take, 16 at once: `python starts.py SERVER.py`.

The server is one of EnvFactory's, unchanged, beside its repository's `envs/intermediate` with scenarios: each task has
one of these with a time of its own. A trajectory calls each tool that takes no argument.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from rlf.environments import EnvSpec
from rlf.environments.playing import follow, open_bench
from rlf.types import Message, Task, ToolCall

NUM_TASKS, NUM_EACH, AT_ONCE = 64, 8, 16
RESET = {"tool": "load_scenario", "arguments": {"scenario": "{scenario}"}}


def count(log: Path) -> int:
    return len(log.read_text().splitlines())


async def play(server: Path, python: str, log: Path) -> str:
    kept = server.parents[1] / "intermediate" / f"{server.stem}_checkpoint.json"
    scenarios = [one["scenario_data"] for one in json.loads(kept.read_text())["scenarios"]]
    tasks = [
        Task(
            f"t{at}",
            (Message("user", "Go."),),
            columns={
                "scenario": scenarios[at % len(scenarios)] | {"current_time": f"2024-01-01T09:00:{at % 60:02}"},
                "calls": [],
            },
        )
        for at in range(NUM_TASKS)
    ]
    command = f'echo start >> {log}; exec "$0" "$1"'
    env = EnvSpec.model_validate(
        {
            "kind": "mcp",
            "server": {"command": "sh", "args": ["-c", command, python, str(server)], "start_timeout_s": 120},
            "reset": RESET,
            "save": {"tool": "save_scenario"},
            "after": "calls",
            "limits": {"max_concurrency": AT_ONCE, "reset_s": 120, "score_s": 120},
        }
    )
    calls = [ToolCall(tool.name, {}) for tool in env.tools if not tool.input_schema.get("required")]
    before, started = count(log), time.perf_counter()
    async with open_bench(env, [], seed=0) as bench:
        parts = [(task, follow(calls)) for task in tasks for _ in range(NUM_EACH)]
        played = [
            one for at in range(0, len(parts), AT_ONCE) for one in await bench.play_together(parts[at : at + AT_ONCE])
        ]
    num = count(log) - before
    failed = [one.failure for one in played if one.failure]
    return (
        f"{server.stem}: {num} processes for {len(played)} trajectories of {len(calls)} calls, {len(failed)} failed "
        f"{failed[:1]}, {time.perf_counter() - started:.0f} s"
    )


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        print(asyncio.run(play(Path(sys.argv[1]).resolve(), sys.argv[2], Path(folder, "log"))))
