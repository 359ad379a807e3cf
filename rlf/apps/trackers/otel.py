"""OpenTelemetry: steps, trajectories, turns, tool calls and judge calls as spans of one trace, over OTLP/HTTP.

Names are those of the GenAI semantic conventions; what these do not have is `rlf.*`. Ids are made from the run's id,
so that a step that is reported again after a resume has the same ones. Durations are measured; rlf keeps no start of
a trajectory, so each begins with its step, and its turns follow one another.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from rlf.trackers import TrackedRun, Tracker, TrackerWriter, metrics_of
from rlf.types.events import EvaluationFinished, RunEvent, RunFinished, RunStatus, StepFinished
from rlf.types.score import Score, Scored, ScoreUsage
from rlf.types.tool import Outcome
from rlf.types.trajectory import StopReason

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

    from rlf.types.trajectory import CallRecord, Turn

Key = tuple[str | int, ...]
"""What a span's id is made from."""
_MAX_SPANS = 512
"""Of one request."""


def _open_session() -> Any:
    """A session in which a redirect is an error.

    Of the exporters, 1.45 takes one for success, and earlier ones follow it with the headers that hold a key.
    """
    import requests

    def refuse_redirect(answer: Any, *_: Any, **__: Any) -> None:
        if 300 <= answer.status_code < 400:
            raise ConnectionError(f"{answer.url}: HTTP {answer.status_code}: a redirect that is not followed")

    session = requests.Session()
    session.hooks["response"].append(refuse_redirect)
    return session


class OtelTracker(Tracker):
    """Writes spans by the GenAI conventions of OpenTelemetry: run, step, trajectory, turn, tool call and judge call.

    What else its exporter reads is in the environment, e.g. OTEL_EXPORTER_OTLP_HEADERS with a key.
    """

    module: ClassVar[str | None] = "opentelemetry.exporter.otlp.proto.http"
    install: ClassVar[str] = "opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"
    takes_trajectories: ClassVar[bool] = True
    kind: Literal["otel"] = "otel"
    endpoint: str = "http://localhost:4318/v1/traces"
    """Where a collector takes traces over OTLP/HTTP."""
    service: str = "rlf"
    """`service.name` of the spans."""
    content: bool = False
    """Also the texts of turns, arguments and results, which the conventions leave out unless they are asked for."""

    def open(self, run: TrackedRun) -> TrackerWriter:
        """Begins a trace, or continues that of the run's id."""
        return _Writer(self, run)


class _Writer:
    """Sends the spans of each event; one that the collector refuses ends the tracker, as any error does."""

    def __init__(self, tracker: OtelTracker, run: TrackedRun) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource

        gives_session = any("CREDENTIAL_PROVIDER" in name for name in os.environ)  # it opens a session of its own
        session = None if gives_session else _open_session()
        self._exporter: Any = OTLPSpanExporter(endpoint=tracker.endpoint, session=session)
        self._resource = Resource.create({"service.name": tracker.service})
        self._content, self._endpoint, self._run = tracker.content, tracker.endpoint, run
        self._model = str(dict(run.spec.get("model", {})).get("path", ""))
        self._description_by_tool = {tool["name"]: tool.get("description") for tool in run.spec.get("tools", ())}
        self._started_ns, self._started_s = time.time_ns(), time.monotonic()
        self._spans: list[Any] = []

    def __call__(self, event: RunEvent) -> None:
        if isinstance(event, StepFinished | EvaluationFinished):
            self._add_event(event)
        elif isinstance(event, RunFinished):
            values = {"rlf.run.id": self._run.run_id, "rlf.run.status": event.status.value, "rlf.step": event.step}
            error = event.status.value if event.status is RunStatus.FAILED else None
            lasted_s = time.monotonic() - self._started_s  # the wall clock may be set meanwhile
            self._add(f"run {self._run.name}", (), None, self._started_ns, lasted_s, values, error, event.error)
        self._send()

    def close(self) -> None:
        self._exporter.shutdown()

    def _add_event(self, event: StepFinished | EvaluationFinished) -> None:
        name = "step" if isinstance(event, StepFinished) else f"evaluation {event.mode}"
        advantages = event.advantages if isinstance(event, StepFinished) else ()
        metrics, key = metrics_of(event), (name, event.step)
        longest_s = max([metrics.get("time/step_s", 0.0), *(each.trajectory.duration_s for each in event.trajectories)])
        start_ns = time.time_ns() - round(longest_s * 1e9)
        values = {"rlf.step": event.step} | {f"rlf.metric.{each}": value for each, value in metrics.items()}
        parent = self._add(f"{name} {event.step}", key, self._context(()), start_ns, longest_s, values)
        for scored, advantage in zip_longest(event.trajectories, advantages):
            own = {"rlf.step": event.step, "rlf.phase": name, "rl.advantage": advantage}
            self._add_trajectory(scored, parent, start_ns, own, key)

    def _add_trajectory(
        self, scored: Scored, parent: SpanContext, start_ns: int, values: dict[str, Any], key: Key
    ) -> None:
        trajectory, key = scored.trajectory, (*key, scored.trajectory.id)
        num_sampled = sum(trajectory.action_mask)
        values |= self._names("invoke_agent") | {
            "gen_ai.agent.name": self._run.name,
            "gen_ai.conversation.id": trajectory.id,
            "gen_ai.usage.input_tokens": len(trajectory.tokens) - num_sampled,
            "gen_ai.usage.output_tokens": num_sampled,
            "rlf.task.id": trajectory.task.id,
            "rlf.stop": trajectory.stop.value,
            "rl.reward": scored.reward,
        }
        values |= {f"rlf.reward.{score.term}": score.value for score in scored.scores}
        name, lasted_s = f"invoke_agent {self._run.name}", trajectory.duration_s
        error = None if trajectory.error is None else trajectory.stop.value
        context = self._add(name, key, parent, start_ns, lasted_s, values, error, trajectory.error)
        at_ns = start_ns
        for number, turn in enumerate(trajectory.turns):
            is_cut = trajectory.stop is StopReason.LENGTH and turn is trajectory.turns[-1]
            finish = "length" if is_cut else "tool_call" if turn.calls else "stop"
            at_ns = self._add_turn(turn, finish, context, at_ns, (*key, number))
        for score in scored.scores:
            if score.usage is not None:
                self._add_judge(score, score.usage, context, start_ns + round(lasted_s * 1e9), key)

    def _add_turn(self, turn: Turn, finish: str, parent: SpanContext, at_ns: int, key: Key) -> int:
        """The spans of a turn and of its calls; when they end."""
        values = self._names("chat") | {
            "gen_ai.conversation.id": key[2],
            "gen_ai.usage.input_tokens": turn.start,
            "gen_ai.usage.output_tokens": turn.end - turn.start,
            "gen_ai.response.finish_reasons": [finish],
        }
        texts = self._texts({"content": turn.text})  # as it was sampled; the calls in it are spans
        message = {"role": "assistant", "parts": [{"type": "text", **texts}], "finish_reason": finish}
        values |= {"gen_ai.output.messages": json.dumps([message], ensure_ascii=False)} if texts else {}
        fault = turn.failures[0].kind.value if turn.failures else None
        self._add(f"chat {self._model}", key, parent, at_ns, turn.sample_s, values, fault)
        at_ns += round(turn.sample_s * 1e9)
        for number, record in enumerate(turn.calls):
            self._add_call(record, parent, at_ns, (*key, number))
        return at_ns + round(turn.tools_s * 1e9)

    def _add_call(self, record: CallRecord, parent: SpanContext, at_ns: int, key: Key) -> None:
        call, result = record.call, record.result
        values = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.call.id": "/".join(map(str, key[2:])),
            "gen_ai.tool.type": "function",
            "gen_ai.tool.description": self._description_by_tool.get(call.name),
            "gen_ai.agent.name": self._run.name,
            "rlf.tool.outcome": result.outcome.value,
            "rlf.tool.cached": result.cached,
            "rlf.tool.attempts": len(result.attempts),
        }
        arguments = json.dumps(dict(call.arguments), ensure_ascii=False, default=str)
        texts = self._texts({"gen_ai.tool.call.arguments": arguments, "gen_ai.tool.call.result": result.text})
        error = None if result.outcome is Outcome.OK else result.outcome.value
        words = None if error is None else texts.pop("gen_ai.tool.call.result", None)  # only an ok call has one
        lasted_s = result.queue_s + result.run_s
        self._add(f"execute_tool {call.name}", key, parent, at_ns, lasted_s, values | texts, error, words)

    def _add_judge(self, score: Score, usage: ScoreUsage, parent: SpanContext, at_ns: int, key: Key) -> None:
        values = {
            "gen_ai.operation.name": "evaluate",
            "gen_ai.evaluation.name": score.term,
            "gen_ai.evaluation.score.value": score.value,
            "gen_ai.evaluation.score.label": score.state.value,
            "rlf.judge.tokens": usage.num_tokens,
            "rlf.judge.cost_usd": usage.cost_usd,
        }
        values |= self._texts({"gen_ai.evaluation.explanation": score.reason})
        error = score.state.value if score.state.may_pass else None
        self._add(f"evaluate {score.term}", (*key, "judge", score.term), parent, at_ns, score.elapsed_s, values, error)

    def _names(self, operation: str) -> dict[str, Any]:
        return {"gen_ai.operation.name": operation, "gen_ai.provider.name": "rlf", "gen_ai.request.model": self._model}

    def _texts(self, values: dict[str, str]) -> dict[str, Any]:
        return {name: self._run.redact(text) for name, text in values.items()} if self._content else {}

    def _context(self, key: Key) -> SpanContext:
        """Ids of a span, the same in every process that reports it."""
        from opentelemetry.trace import SpanContext, TraceFlags

        own = "\x1f".join(map(str, (self._run.run_id, *key)))
        ids = (hashlib.blake2b(of.encode(), digest_size=size) for of, size in ((self._run.run_id, 16), (own, 8)))
        trace_id, span_id = (int.from_bytes(each.digest(), "big") for each in ids)
        return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    def _add(
        self,
        name: str,
        key: Key,
        parent: SpanContext | None,
        start_ns: int,
        lasted_s: float,
        values: Mapping[str, Any],
        error: str | None = None,
        words: str | None = None,
    ) -> SpanContext:
        """Args: error: a class of errors, of which there are few; words: what is known of this one."""
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import Status, StatusCode

        known = {each: value for each, value in values.items() if value is not None}
        status = Status(StatusCode.UNSET)
        if error is not None:
            known["error.type"], status = error, Status(StatusCode.ERROR, self._run.redact(words or error))
        self._spans.append(
            ReadableSpan(
                name,
                context := self._context(key),
                parent,
                self._resource,
                known,
                status=status,
                start_time=start_ns,
                end_time=start_ns + round(lasted_s * 1e9),
            )
        )
        return context

    def _send(self) -> None:
        from opentelemetry.sdk.trace.export import SpanExportResult

        for start in range(0, len(self._spans), _MAX_SPANS):
            if self._exporter.export(self._spans[start : start + _MAX_SPANS]) is not SpanExportResult.SUCCESS:
                raise ConnectionError(f"{self._endpoint} takes no spans. Start a collector there, or name another one")
        self._spans.clear()
