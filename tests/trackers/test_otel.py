"""`report_to: otel` sends spans that a receiver of the official protocol reads, with a run's own numbers."""

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import rlf
from rlf.trackers import TRACKERS, TrackedRun
from rlf.types import RunFinished, RunStatus, StepFinished
from rlf.types.score import Score, Scored, ScoreState, ScoreUsage
from rlf.types.task import Message, Task
from rlf.types.tool import Outcome, ToolCall, ToolResult
from rlf.types.trajectory import SAMPLER, CallRecord, MissingRewardCause, StopReason, Trajectory, Turn

service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
pytest.importorskip("opentelemetry.sdk")

SPECS = Path(__file__).parents[2] / "specs"
SMALL = {"train.steps": 2, "train.prompts_per_step": 2, "rollout.num_generations": 4, "eval.limit": 4}


@contextmanager
def receiving(status=200):
    """A receiver of OTLP/HTTP on loopback: its address, and the spans by request."""
    spans = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.path == "/v1/traces" and self.headers["Content-Type"] == "application/x-protobuf"
            for resource in service.ExportTraceServiceRequest.FromString(body).resource_spans:
                spans.extend(span for scope in resource.scope_spans for span in scope.spans)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *words):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", spans
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def values_of(span):
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


def finish_reasons(values):
    return [each.string_value for each in values["gen_ai.response.finish_reasons"].values]


def by_operation(spans):
    found = {}
    for span in spans:
        found.setdefault(span.name.split()[0], []).append(span)
    return found


def test_a_run_is_one_trace_of_steps_trajectories_turns_and_calls_with_its_own_numbers(tmp_path):
    with receiving() as (url, spans):
        reports = {"report_to": [{"kind": "otel", "endpoint": url}]}
        run = rlf.run(SPECS / "search.yaml", SMALL | reports, runs_folder=tmp_path / "runs")
    assert run.status == "finished" and not [event for event in run.events() if "report_to" in event.text]
    kinds = by_operation(spans)
    assert len({span.trace_id for span in spans}) == 1
    assert len({span.span_id for span in spans}) == len(spans)
    (root,) = kinds["run"]
    assert values_of(root)["rlf.run.id"] == run.id and not root.parent_span_id
    parents = {span.span_id: span for span in spans}
    expected = {"step": "run", "evaluation": "run", "chat": "invoke_agent", "execute_tool": "invoke_agent"}
    for operation, parent in expected.items():
        assert kinds[operation]
        assert {parents[span.parent_span_id].name.split()[0] for span in kinds[operation]} == {parent}
    for call in map(values_of, kinds["execute_tool"]):
        assert call["gen_ai.agent.name"] == "search" and call["gen_ai.tool.type"] == "function"
        assert call["gen_ai.tool.call.id"] and call["gen_ai.tool.description"]
    stored = run.trajectories()
    assert len(kinds["invoke_agent"]) == len(stored)
    assert len(kinds["chat"]) == sum(each.num_turns for each in stored)
    assert len(kinds["execute_tool"]) == sum(each.num_calls for each in stored)
    trained = [values_of(span) for span in kinds["invoke_agent"] if values_of(span)["rlf.phase"] == "step"]
    of_run = {each.trajectory_id: each for each in run.trajectories(phase="train")}
    for values in trained:
        each = of_run[values["gen_ai.conversation.id"]]
        assert (values["rl.reward"], values["gen_ai.usage.output_tokens"]) == (each.reward, each.num_sampled)
        assert values["rl.advantage"] == pytest.approx(each.advantage)
    assert all(span.end_time_unix_nano >= span.start_time_unix_nano > 0 for span in spans)
    texts = [name for span in spans for name in values_of(span) if "message" in name or "arguments" in name]
    assert texts == []  # no content unless it is asked for


def test_a_step_that_is_reported_again_after_a_resume_has_the_same_ids(tmp_path):
    with receiving() as (url, spans):
        tracker = TRACKERS.get("otel")(endpoint=url)
        for first in (1, 2):
            writer = tracker.open(TrackedRun("20260101-000000-abcd", "search", tmp_path, first, {}))
            for step in range(first, 3):
                writer(StepFinished(step, {"success": 0.5}, (), ()))
            writer(RunFinished(RunStatus.FINISHED, 2))
            writer.close()
    steps = {}
    for span in spans:
        steps.setdefault(span.name, set()).add((span.trace_id, span.span_id))
    assert sorted(steps) == ["run search", "step 1", "step 2"] and all(len(ids) == 1 for ids in steps.values())


def test_texts_are_sent_on_request_and_without_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("SHOP_API_KEY", "hunter2-hunter2")
    with receiving() as (url, spans):
        reports = {"report_to": [{"kind": "otel", "endpoint": url, "content": True}], "train.steps": 1}
        rlf.run(SPECS / "search.yaml", SMALL | reports, runs_folder=tmp_path / "runs")
    chats = [values_of(span) for span in by_operation(spans)["chat"]]
    messages = [message for values in chats for message in json.loads(values["gen_ai.output.messages"])]
    assert len(messages) == len(chats) and {message["role"] for message in messages} == {"assistant"}
    for values, message in zip(chats, messages, strict=True):
        assert [message["finish_reason"]] == finish_reasons(values)
    assert any("<tool_call>" in message["parts"][0]["content"] for message in messages)
    tracker = TRACKERS.get("otel")(content=True)
    writer = tracker.open(TrackedRun("id", "n", tmp_path, 1, {}, redact=lambda text: text.replace("hunter2", "***")))
    assert writer._texts({"a": "the key hunter2"}) == {"a": "the key ***"}
    failed = CallRecord(ToolCall("shop", {}), ToolResult(Outcome.TOOL_ERROR, "the key hunter2 is old"))
    writer._add_call(failed, writer._context(()), 0, ("step", 1, "train/0/0", 0))
    assert writer._spans[-1].status.description == "the key *** is old"
    assert "gen_ai.tool.call.result" not in writer._spans[-1].attributes  # only of one that succeeded
    assert not [span for span in spans if "hunter2" in str(span)]


def test_what_asked_a_judge_is_a_span_of_its_own_and_one_without_an_answer_an_error(tmp_path):
    task = Task("t1", (Message("user", "?"),))
    trajectory = Trajectory("train/0/0", task, 0, [1, 2], [False, True], [0.0, -1.0], (), StopReason.ANSWERED, "yes")
    usage = ScoreUsage(num_replies=1, num_tokens=90, cost_usd=0.5)
    scores = (
        Score("style", 0.5, 1.0, "plain", elapsed_s=2.0, usage=usage),
        Score("truth", None, 1.0, "timeout", state=ScoreState.UNANSWERED, usage=usage),
        Score("rule", 1.0, 1.0),
    )
    with receiving() as (url, spans):
        writer = TRACKERS.get("otel")(endpoint=url).open(TrackedRun("id", "n", tmp_path, 1, {}))
        writer(StepFinished(1, {}, (Scored(trajectory, scores, None, None),), (None,)))
        writer.close()
    style, truth = by_operation(spans)["evaluate"]
    assert values_of(style)["gen_ai.evaluation.score.value"] == 0.5 and values_of(style)["rlf.judge.tokens"] == 90
    assert style.end_time_unix_nano - style.start_time_unix_nano == 2_000_000_000 and style.status.code == 0
    assert truth.status.code == 2 and "gen_ai.evaluation.score.value" not in values_of(truth)
    (played,) = by_operation(spans)["invoke_agent"]
    assert values_of(played)["rlf.reward.rule"] == 1.0 and "rl.reward" not in values_of(played)


def test_the_class_of_an_error_is_one_of_a_few_and_a_turn_without_room_ended_by_its_length(tmp_path):
    task, turns = Task("t1", (Message("user", "?"),)), (Turn(1, 2, 2, "a"), Turn(2, 3, 3, "b"))
    made = [
        Trajectory(str(stop), task, 0, [1, 2, 3], [False, True, True], [0.0, -1.0, -1.0], turns, stop, "", broken)
        for stop, broken in (
            (StopReason.LENGTH, None),
            (StopReason.INFRA_FAILURE, MissingRewardCause(SAMPLER, "the key hunter2 was refused")),
        )
    ]
    run = TrackedRun("id", "n", tmp_path, 1, {}, redact=lambda text: text.replace("hunter2", "***"))
    with receiving() as (url, spans):
        writer = TRACKERS.get("otel")(endpoint=url).open(run)
        writer(StepFinished(1, {}, tuple(Scored(each, (), None, None) for each in made), (None, None)))
        writer.close()
    whole, broken = by_operation(spans)["invoke_agent"]
    assert "error.type" not in values_of(whole) and values_of(broken)["error.type"] == "infra_failure"
    assert broken.status.message == "the key *** was refused"
    chats = [values_of(span) for span in by_operation(spans)["chat"]]
    assert [finish_reasons(values) for values in chats] == [["stop"], ["length"], ["stop"], ["stop"]]
    assert {values["gen_ai.conversation.id"] for values in chats} == {"length", "infra_failure"}


@pytest.mark.parametrize("status", [400, 307])
def test_a_run_continues_where_the_collector_refuses_or_sends_spans_elsewhere(tmp_path, status):
    with receiving(status=status) as (url, _):
        reports = {"report_to": [{"kind": "otel", "endpoint": url}], "train.steps": 1}
        run = rlf.run(SPECS / "search.yaml", SMALL | reports, runs_folder=tmp_path / "runs")
    warnings = [event.text for event in run.events() if "otel gets no more events of this run" in event.text]
    assert run.status == "finished" and len(warnings) == 1 and "takes no spans" in warnings[0]


def test_a_run_lasts_as_long_as_it_did_where_the_wall_clock_is_set_back_meanwhile(tmp_path, monkeypatch):
    now_ns = time.time_ns
    with receiving() as (url, spans):
        writer = TRACKERS.get("otel")(endpoint=url).open(TrackedRun("id", "n", tmp_path, 1, {}))
        monkeypatch.setattr(time, "time_ns", lambda: now_ns() - 3_600_000_000_000)
        writer(RunFinished(RunStatus.FINISHED, 2))
        writer.close()
    assert 0 <= spans[0].end_time_unix_nano - spans[0].start_time_unix_nano < 600_000_000_000
