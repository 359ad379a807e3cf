"""`rule: math`: the answer is the same number, expression or set as the gold."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Literal

from pydantic import Field

from rlf.core import RunError
from rlf.core.clocks import within
from rlf.processes.channel import Channel
from rlf.processes.held import END_S, Child
from rlf.rewards.answers import Answer
from rlf.rewards.kinds.rule import Rule
from rlf.rewards.normalization import golds, normalize, shown
from rlf.rewards.term import KnownSample, RewardContext, Scorer, Scoring, Verdict
from rlf.sandbox.guest.wire import BadFrame, Bounds
from rlf.types import Trajectory

_MAX_CHARS = 4000
_START_S = 120.0
_BUSY = 10
"""How much longer than its processor time a comparison may take."""
_AGAIN = 2
"""How many times its processor time a comparison has when it is tried again."""
_COMMAND = (sys.executable, "-m", "rlf.apps.rules.math_worker")
_REPLY = Bounds(1000)
_TOO_MUCH: Mapping[str, Any] = {}
"""Compared by identity: the answer used up the time of a comparison."""


class Math(Rule):
    """1 if answer and a gold are mathematically equal by the library math-verify, else 0.

    - LaTeX and plain expressions: "1/2", "0.5" and "\\frac{1}{2}" are the same.
    - A gold is read in whole: "3, 5, 7" is three numbers, "2^{10}" is 1024, and "x < 2 or x > 3" a union.
    - Two numbers with units are compared (5 cm is 50 mm, and not 5 m); else units, currency and percent signs are left
      out, and degrees are also radians. In prose the number is read as by `numeric`: "not 5" and "5 or 6" are not 5.
    - A gold that is no mathematics in whole ("10:30", "March 5", "4210_5", "\\text{Evelyn}") is compared as text, which
      `rlf check` warns of; one that is and cannot be read ("2+") is unscorable.
    - An answer that takes too long is compared once more with twice the time, and is worth 0 only then. Where the gold
      cannot be read in time, or the machine is too busy, the trajectory is unscorable.
    """

    needs_answer: ClassVar[bool] = True
    sample: ClassVar[KnownSample] = KnownSample(gold={"gold": "1/2", "answer": r"It is \boxed{\frac{1}{2}}."})

    gold_advice: ClassVar[str] = "Write them as LaTeX, or `rule: exact_match`."

    rule: Literal["math"] = "math"
    timeout_s: float = Field(default=5.0, gt=0)
    """Processor time that one comparison has; where ten times as long has gone by without it, the machine is busy."""
    workers: int = Field(default=2, ge=1, le=16)
    """Processes that compare, at most."""

    def judge(self, trajectory: Trajectory) -> Verdict:
        """The verdict where none must be computed: no answer, the gold's own text, numbers with units, prose."""
        from rlf.apps.rules.math_text import is_same_quantity

        answer = (trajectory.answer or "").strip()
        if not answer:
            return Verdict(0.0, "no answer")
        texts = golds(trajectory.task.answer)
        found = [answer == gold.strip() or is_same_quantity(answer[-_MAX_CHARS:], gold) for gold in texts]
        if True in found:
            return Verdict(1.0, "right")
        if None in found:
            return Verdict(None, "to be compared")
        return Verdict(0.0, f"got {answer[-80:]!r}; expected {shown(texts)}")

    def read_gold(self, gold: str) -> Answer:
        from rlf.apps.rules.math_text import gold_latex

        latex = gold_latex(gold)
        if latex is None:
            return Answer("text", normalize(gold), fault="is no mathematics in whole, and is compared as text")
        return Answer("mathematics", latex)

    @asynccontextmanager
    async def open(self, context: RewardContext) -> AsyncIterator[Scorer]:
        """Processes start with the first comparison that needs one and end here."""
        comparer = _Comparer(self)
        try:
            yield comparer
        finally:
            await comparer.close()


class _Comparer:
    """Asks worker processes; one that does not answer in time is ended and another takes its place."""

    def __init__(self, rule: Math) -> None:
        self._rule = rule
        self._permits = asyncio.Semaphore(rule.workers)
        self._idle: list[_Worker] = []

    async def score(self, trajectory: Trajectory, scoring: Scoring) -> Verdict:
        """Compares the answer with all golds."""
        quick = self._rule.judge(trajectory)
        if quick.value is not None:
            return quick
        texts, answer = golds(trajectory.task.answer), (trajectory.answer or "")[-_MAX_CHARS:]
        cpu_s = self._rule.timeout_s
        async with self._permits:
            reply = await self._compare(texts, answer, cpu_s)
            if reply is _TOO_MUCH:
                cpu_s *= _AGAIN
                reply = await self._compare(texts, answer, cpu_s)
        if reply is None:
            return Verdict(None, f"not compared within {_BUSY * cpu_s:g} s", is_unanswered=True)
        if reply is _TOO_MUCH:
            return Verdict(0.0, f"not compared within {cpu_s:g} s")
        if not reply["is_readable"]:
            return Verdict(None, f"the gold {' or '.join(texts)[:200]!r} is not mathematics")
        if reply["is_equal"]:
            return Verdict(1.0, "right")
        return Verdict(0.0, f"got {answer[-80:]!r}; expected {shown(texts)}")

    async def _compare(self, texts: Sequence[str], answer: str, cpu_s: float) -> Mapping[str, Any] | None:
        """A worker's answer; None when there was none in time, _TOO_MUCH when the answer is to blame for that."""
        worker = self._idle.pop() if self._idle else await _start_worker()
        limit_s, is_read = _BUSY * cpu_s, False
        try:
            found = await worker.ask({"golds": texts}, limit_s)
            is_read = True
            if found["is_readable"]:
                found |= await worker.ask({"answer": answer, "cpu_s": cpu_s}, limit_s)
            self._idle.append(worker)
            return found
        except EOFError:
            return _TOO_MUCH if is_read and await worker.ended_itself() else None
        except (TimeoutError, BadFrame):
            return None
        finally:
            if worker not in self._idle:
                await worker.close()

    async def close(self) -> None:
        """Ends the processes."""
        while self._idle:
            await self._idle.pop().close()


class _Worker:
    """A process that compares, asked over its socket."""

    def __init__(self) -> None:
        # Without this process's environment and the keys in it: the library may run what a policy writes.
        self._child = Child(_COMMAND, env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))})
        self._channel = Channel(self._child.end)
        self._channel.watch(self._child.pid)

    async def ask(self, question: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """Its answer. Raises TimeoutError, EOFError where it ended, and BadFrame."""
        with within(limit_s):
            return (await self._channel.answer(question, (), _REPLY)).read()

    async def ended_itself(self) -> bool:
        """Whether its own limits of time and memory ended it."""
        return await self._child.wait(END_S) not in (None, -signal.SIGKILL, -signal.SIGTERM)

    async def close(self) -> None:
        """Ends it, and waits until it is gone."""
        self._channel.close()
        self._child.kill()
        await self._child.wait_killed()


async def _start_worker() -> _Worker:
    """A worker that is ready. Raises RunError."""
    worker = _Worker()
    try:
        await worker.ask({}, _START_S)
    except BaseException as fault:
        await worker.close()
        if isinstance(fault, EOFError | TimeoutError | BadFrame):
            raise RunError(f"{' '.join(_COMMAND)} does not start. What it printed on stderr says why.") from fault
        raise
    return worker
