"""Talking to a run's model: `rlf serve` as a job, whose answers the page passes on."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, Field

from rlf.apps.web.jobs import CommandJob, Jobs, JobState
from rlf.apps.web.settings import LOOPBACK
from rlf.cli.commands import HOMES
from rlf.core.errors import NotFoundError, RunError
from rlf.lineage.reader import Reader

_ACTION = "chat"
_ANSWER_S = 120


class ChatMessage(BaseModel, extra="forbid", frozen=True):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str = Field(max_length=100_000)


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """What the model answers, its tools run."""

    content: str
    num_tokens: int | None


def talk_commands(reader: Reader, run_id: str) -> list[str]:
    """The commands that talk to a run's newest checkpoint; none without one."""
    kept = any(saved.dropped is None for saved in reader.checkpoints(run_id))
    return [f"rlf {word} {run_id}" for word in ("chat", "serve") if word in HOMES and kept]


def find_server(jobs: Jobs, run_id: str) -> CommandJob | None:
    """The job that serves a run's model, or None."""
    running = (job for job in jobs.list() if job.action == _ACTION and job.state is JobState.RUNNING)
    return next((job for job in running if run_id in job.command.split()), None)


def start_server(jobs: Jobs, run_id: str) -> CommandJob:
    """Serves a run's newest checkpoint with its tools on a free port of this machine; once for a run."""
    if "serve" not in HOMES:
        raise NotFoundError("chat: `rlf serve` is not installed here.")
    return find_server(jobs, run_id) or jobs.start(_ACTION, ["serve", run_id, "--agent", "--port", "0"])


def ask(jobs: Jobs, run_id: str, messages: Sequence[ChatMessage]) -> ChatAnswer:
    """The answer of a run's served model. Raises RunError where there is none."""
    job = find_server(jobs, run_id)
    served = None if job is None else jobs.served(job.id)
    if served is None:
        raise RunError(f"chat: no server answers for {run_id}{' yet' if job else ''}. Start it, and wait a moment.")
    url, model = served
    if urlsplit(url).hostname not in LOOPBACK:  # of our own job; a file that somebody changed leads nowhere else
        raise RunError(f"chat: {url} is not on this machine.")
    body = {"model": model, "messages": [one.model_dump() for one in messages]}
    request = urllib.request.Request(
        f"{url.rstrip('/')}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_ANSWER_S) as answer:
            found = json.load(answer)
        text = found["choices"][0]["message"]["content"] or ""
        return ChatAnswer(text, found.get("usage", {}).get("completion_tokens"))
    except urllib.error.HTTPError as error:
        words = error.read(500).decode(errors="replace")
        raise RunError(f"chat: the model's server answered {error.code}: {words}") from error
    except (OSError, ValueError, LookupError) as error:
        raise RunError(f"chat: the model's server did not answer: {error}") from error
