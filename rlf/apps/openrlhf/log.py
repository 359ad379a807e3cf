"""OpenRLHF's output, read back: which model loads, steps and evaluations with their numbers, and what went wrong.

Ray forwards the lines of its actors to the job's output with `(PPOTrainer pid=12)` before them, in colour. Lines that
are none of these are a person's to read; the file is kept.
"""

from __future__ import annotations

import ast
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# OpenRLHF reports a step only by this line of its log; the dictionary is Python's repr, not JSON.
_STEP = re.compile(r"Global step (\d+): (\{.*\})")
# Two wordings: the first of the synchronous trainer, the second of the asynchronous one (0.11.2).
_EVALUATION = re.compile(r"(?:Evaluation completed in \S+, global_step|Eval at step) (\d+)(?:, eval_metrics)?:")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# Ray prefixes lines of actors with `(Name pid=1)`, vLLM those of its engine with `(EngineCore pid=2)` and words of its
# logger; the exception's class comes after that.
_ERROR = re.compile(
    r"^(?:\([^)]*\) )*(?:ERROR \S+ \S+ \[[^\]]*\] )?((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit)): ?(.*)$"
)
_DIED = re.compile(r"^(?:\([^)]*\) )?\s*class_name: (\w+)$")
_SAMPLER = "RolloutRayActor"
_ENGINE = "EngineDeadError"
"""vLLM's own word for the process that it starts within that actor."""
_OURS = (
    "rlf.core.errors.RunError",
    "rlf.core.errors.OutageError",
    "rlf.core.errors.RlfError",
    "rlf.core.errors.SpecError",
)
_WRAPPERS = ("RayTaskError", "RayActorError", "ActorDiedError", "WorkerCrashedError")
# What processes print that lost another one: gloo, NCCL, torch's store, vLLM of its engine. It names no cause.
_LOST = re.compile(
    r"gloo|nccl|TCPStore|Dist(Backend|Network|Store)Error|EngineDead|Engine core initialization failed|Broken ?Pipe|"
    r"connection (was |is )?(closed|reset|refused|lost)|ConnectionReset|socket",
    re.IGNORECASE,
)

METRICS: Mapping[str, str] = {
    "policy_loss": "loss/policy",
    "heldout_loss": "loss/heldout",
    "critic_loss": "loss/value",
    "entropy_loss": "policy/entropy",
    "ppo_clip_ratio": "policy/clip_fraction",
    "ppo_kl": "policy/kl_old",
    "kl": "policy/kl_ref",
    "vllm_kl": "policy/mismatch_kl",
    "is_filter_ratio": "policy/filter_fraction",
    "actor_grad_norm": "policy/grad_norm",
    "actor_lr": "policy/learning_rate",
    "critic_grad_norm": "critic/grad_norm",
    "timing/generation": "time/generate_s",
    "timing/make_experience": "time/experience_s",
    "timing/ppo_train": "time/update_s",
    "timing/broadcast": "time/sync_s",
    "timing/step_total": "time/step_s",
}
"""rlf's name of each of OpenRLHF's; what is absent here rlf computes itself from the trajectories."""


@dataclass(frozen=True, slots=True)
class JobLogLine:
    """A step is over, or an evaluation after it."""

    step: int
    metrics: Mapping[str, float] | None = None
    """Of a step, by rlf's names; what is no number is left out. None: the line is of an evaluation."""


class LogReader:
    """Follows a job's output."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> list[str]:
        """Whole lines that have come since the last call, without colours."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [_COLOUR.sub("", line) for line in whole.decode(errors="replace").splitlines()]


def parse_line(line: str) -> JobLogLine | None:
    """The step or evaluation that a line reports; None for other lines."""
    if match := _STEP.search(line):
        found = _numbers(match[2])
        return JobLogLine(int(match[1]), {ours: found[theirs] for theirs, ours in METRICS.items() if theirs in found})
    if match := _EVALUATION.search(line):
        return JobLogLine(int(match[1]))
    return None


def find_error(lines: Iterable[str]) -> str | None:
    """The error that ended a job, in words: rlf's own before others, the innermost of a chain; None without."""
    lines = list(lines)
    found = [(match[1], match[2].strip()) for line in lines if (match := _ERROR.match(line))]
    own = [words for name, words in found if name in _OURS]
    if own:
        return own[-1]
    failures = [f"{name}: {words}" for name, words in found if not name.endswith(_WRAPPERS)]
    causes = [words for words in failures if not _LOST.search(words)]
    last = failures[-1] if failures else None
    return causes[-1] if causes else _find_death(lines) or last


def _find_death(lines: Sequence[str]) -> str | None:
    """Words about the actor whose process ended, which leaves no error of its own; None where Ray reports none."""
    died = [match[1] for line in lines if (match := _DIED.match(line))]
    if not died and any(_ENGINE in line for line in lines):
        died = [_SAMPLER]
    if not died:
        return None
    if died[0] != _SAMPLER:
        return f"the process of {died[0]} died; most often the machine ran out of memory"
    return (
        "the process that samples died: the machine ran out of memory, or a tool or reward that runs inside it ended "
        "it. Write `isolation: process` for python tools that may."
    )


def _numbers(text: str) -> dict[str, float]:
    """The finite numbers of a printed dict."""
    plain = re.sub(r"(?<=[:\s,(\[-])(?:nan|inf)(?=[,}\s)\]])", "None", text).replace("-None", "None")
    try:
        values = ast.literal_eval(plain)
    except (SyntaxError, ValueError):
        return {}
    numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
    return {name: float(value) for name, value in numbers.items() if math.isfinite(value)}


_ACTOR = re.compile(r"^\((\w+) pid=\d+\) ")
# OpenRLHF's progress bar of the whole training, which begins when every model is up.
_LOADED = "Episode [1/1]:"
_LOADS = {
    "RolloutRayActor": "vLLM loads the model",
    "PolicyModelActor": "the policy is loaded",
    "ReferenceModelActor": "the reference is loaded",
    "CriticModelActor": "the critic is loaded",
}
"""By the actor whose first line says so, in the words for a person who waits."""
_SILENT_S = 20.0
"""Time after which it is reported again that the job loads."""
_MAX_CHARS = 100


class Loading:
    """Follows the output of a job until its models are up."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = self._told = clock()
        self._seen: set[str] = set()
        self._last = ""
        self.is_over = False

    def read(self, lines: Iterable[str]) -> Iterator[str]:
        """What there is to say after new lines of the output, or after none."""
        for line in lines:
            if _LOADED in line:
                self.is_over = True
                return
            if line.strip():
                self._last = line.strip()
            match = _ACTOR.match(line)
            if match and match[1] in _LOADS and match[1] not in self._seen:
                self._seen.add(match[1])
                yield self._say(_LOADS[match[1]])
        if self._clock() - self._told >= _SILENT_S:
            yield self._say(f"still loading; the job's last line: {self._last[:_MAX_CHARS] or 'none yet'}")

    def _say(self, words: str) -> str:
        self._told = self._clock()
        return f"{words} ({self._told - self._began:.0f} s)"
