"""What is asked of Ray: `python ray_script.py ADDRESS (submit|state|follow|stop) JOB`, or `start SECONDS OPTIONS ...`.

Run by the interpreter that has Ray, which need not be the one that runs rlf; imports nothing else beside the standard
library. Ray's own client knows the cluster's certificates, tokens and headers.

    submit    takes `{"entrypoint": text, "runtime_env": {...}}` from standard input, since it holds secrets
    state     prints PENDING, RUNNING, STOPPED, SUCCEEDED, FAILED, or UNKNOWN for a job that the server does not know
    follow    prints the job's whole output as it comes, until it is over; 0 where it succeeded
    stop      ends the job, and returns when it is over
    start     `ray start` with the time that a busy machine takes, and stays until it ends
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

OVER = ("STOPPED", "SUCCEEDED", "FAILED")
_PATIENCE_S = 600.0
"""Time that the job server may be away while a job is followed."""
_PAUSE_S = 1.0
_STOP_S = 60.0


def ask_job_server(address: str, action: str, job: str) -> int:
    """Does one action; its exit code."""
    from ray.job_submission import JobSubmissionClient

    client = JobSubmissionClient(address)
    if action == "submit":
        client.submit_job(submission_id=job, **json.load(sys.stdin))
        return 0
    if action == "state":
        _print_line(_job_state(client, job))
        return 0
    if action == "follow":
        return asyncio.run(_follow_job(client, job))
    return _stop(client, job)


def _job_state(client: Any, job: str) -> str:
    try:
        return str(client.get_job_status(job).value)
    except RuntimeError as error:
        if "does not exist" in str(error):
            return "UNKNOWN"
        raise


async def _follow_job(client: Any, job: str) -> int:
    """Continues after a lost connection: the output is sent from its beginning then, and what is known left out."""
    num_printed, seen = 0, time.monotonic()
    while True:
        try:
            num_sent = 0
            async for text in client.tail_job_logs(job):
                new = text[max(0, num_printed - num_sent) :]
                num_sent += len(text)
                num_printed += len(new)
                _print_line(new)
            state, seen = _job_state(client, job), time.monotonic()
            if state in (*OVER, "UNKNOWN"):
                break
        except Exception as error:  # aiohttp's, requests' and Ray's own, whatever they are
            if time.monotonic() - seen > _PATIENCE_S:
                raise
            _print_line(f"the job server does not answer: {error!r}\n")
        await asyncio.sleep(_PAUSE_S)
    if state == "FAILED" and num_printed == 0:  # it never came to its own words
        _print_line(f"{client.get_job_info(job).message}\n")
    return int(state != "SUCCEEDED")


def _print_line(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _stop(client: Any, job: str) -> int:
    deadline = time.monotonic() + _STOP_S
    if _job_state(client, job) != "UNKNOWN":
        client.stop_job(job)
    while (state := _job_state(client, job)) not in (*OVER, "UNKNOWN") and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
    return int(state not in (*OVER, "UNKNOWN"))


_POLL_S = 0.1
_NEEDED = ("gcs_server", "raylet")
"""Ray's names of the processes without which no node reports; it runs without the others."""


def start_ray(patience_s: float, options: Sequence[str]) -> None:
    """Starts Ray, and stays until it ends.

    Ray 2.55 gives its raylet 30 s to report, in a local variable of `Node.__init__` that no option and no variable of
    the environment reaches. Its loop calls `services.get_node`, which here returns only when there is an answer, or
    none will come. The raylet itself ends where its agents do not report in time; a variable gives them as long.
    """
    from ray._private import node, services
    from ray.scripts.scripts import cli

    os.environ.setdefault("RAY_agent_register_timeout_ms", f"{patience_s * 1000:.0f}")
    started: list[Any] = []
    start_processes, get_node = node.Node.start_ray_processes, services.get_node
    deadline = time.monotonic() + patience_s

    def start(self: Any) -> None:
        started.append(self)
        start_processes(self)

    def wait_for_node(*address: Any) -> Any:
        while True:
            try:
                return get_node(*address)
            except RuntimeError:
                for one in started:
                    _end_if_dead(one)
                if time.monotonic() > deadline:
                    raise
            time.sleep(_POLL_S)

    node.Node.start_ray_processes, services.get_node = start, wait_for_node
    cli(args=["start", *options])


def _end_if_dead(node: Any) -> None:
    """Ends this process where one of Ray's has, with its last line before a stack: it would be waited for in vain."""
    for name, process in (dead for dead in node.dead_processes() if dead[0] in _NEEDED):
        logs = Path(node.get_logs_dir_path())
        texts = [(logs / f"{name}{ending}") for ending in (".err", ".out")]
        lines = [line for path in texts if path.is_file() for line in path.read_text(errors="replace").splitlines()]
        words = next((f": {line.strip()}" for line in reversed(lines) if line.strip() and "(+0x" not in line), "")
        sys.exit(f"Ray's {name} ended with code {process.returncode} before it reported{words}")


if __name__ == "__main__":
    if sys.argv[1] == "start":
        start_ray(float(sys.argv[2]), sys.argv[3:])
    else:
        sys.exit(ask_job_server(*sys.argv[1:]))
