"""Requests to a Ray cluster's job server: `python ray_job.py ADDRESS (submit|state|follow|stop) JOB`.

Run by the interpreter that has Ray, which need not be the one that runs rlf; imports nothing else beside the standard
library. Ray's own client knows the cluster's certificates, tokens and headers.

    submit    takes `{"entrypoint": text, "runtime_env": {...}}` from standard input, since it holds secrets
    state     prints PENDING, RUNNING, STOPPED, SUCCEEDED, FAILED, or UNKNOWN for a job that the server does not know
    follow    prints the job's whole output as it comes, until it is over; 0 where it succeeded
    stop      ends the job, and returns when it is over
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

OVER = ("STOPPED", "SUCCEEDED", "FAILED")
_PATIENCE_S = 600.0
"""Time that the job server may be away while a job is followed."""
_PAUSE_S = 1.0
_STOP_S = 60.0


def main(address: str, action: str, job: str) -> int:
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


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
