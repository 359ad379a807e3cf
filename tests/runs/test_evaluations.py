"""Evaluations of their own: repeated exactly, continued after a kill, and held side by side."""

import json
import os
import re
import shutil
import signal
import threading
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

import rlf
from rlf.apps.compare.views import compare_runs
from rlf.apps.evaluate import play
from rlf.apps.evaluate import prepare as module
from rlf.apps.evaluate.play import EvaluationProgress, Spool, SpoolEntry
from rlf.apps.evaluate.prepare import EvaluationOptions
from rlf.apps.evaluate.run import try_targets
from rlf.cli.main import app
from rlf.core import RlfError, SpecError
from rlf.core.redact import Redactor
from rlf.lineage.records import TrajectoryFilter
from rlf.reports.evaluations import read_evaluations
from rlf.rollout.rollout import Rollout
from rlf.runs.place import open_reader
from rlf.runs.targets import endpoint_of
from rlf.spec.models import EvalSpec
from rlf.types import Notice, RunStatus, Scored, StopReason

from ..processes import Process
from ..reports import synthetic
from .conftest import ROOT

SEARCH = ROOT / "specs" / "search.yaml"
FEW = ("eval.limit=4", "eval.greedy=false")


def tried(runs, *names, asked=None, endpoint=None, shown=None):
    """The ids of finished evaluations."""
    keep = (lambda item: None) if shown is None else shown.append
    done = try_targets(
        names, asked or EvaluationOptions(), endpoint=endpoint, runs_folder=runs, command=["rlf", "eval"], show=keep
    )
    assert done.status is RunStatus.FINISHED
    return done


def trajectories(runs, run_id, mode="sampled"):
    with open_reader(runs) as reader:
        step = next(item.step for item in reader.evaluations(run_id) if item.mode == mode)
        wanted = TrajectoryFilter(phase=mode, step=step)
        return [reader.whole(run_id, item).scored for item in reader.trajectories(run_id, wanted)]


def metrics(runs, run_id):
    with open_reader(runs) as reader:
        found = {item.mode: item.metrics for item in reader.evaluations(run_id)}
    return {mode: {k: v for k, v in each.items() if not k.startswith("time/")} for mode, each in found.items()}


def test_a_runs_last_evaluation_is_repeated_token_for_token(trained):
    runs, run_id = trained
    done = tried(runs, run_id)
    with open_reader(runs) as reader:
        (repeat,) = read_evaluations(reader, done.run_ids, done.original_by_id).repeats
        record = reader.get_run(done.run_ids[0]).record
        trained_last = {item.mode: item.metrics for item in reader.evaluations(run_id) if item.step == 2}
    assert (repeat.num_same, repeat.num_compared, repeat.metrics_differ) == (16, 16, ())
    repeated = metrics(runs, done.run_ids[0])
    for mode, values in trained_last.items():
        assert {name: repeated[mode].get(name) for name in values if not name.startswith("time/")} == {
            name: value for name, value in values.items() if not name.startswith("time/")
        }
    assert (record.engine, record.parent_id, record.parent_step) == ("evaluation", run_id, 2)
    assert {"model", "tokenizer", "template", "data", "spec"} <= {file.role for file in record.files}
    again = tried(runs, done.run_ids[0])
    assert again.original_by_id == {again.run_ids[0]: done.run_ids[0]}
    with open_reader(runs) as reader:
        assert reader.get_run(again.run_ids[0]).record.plan_hash == record.plan_hash


def test_samples_give_unbiased_chances_by_k(trained):
    runs, run_id = trained
    done = tried(runs, run_id, asked=EvaluationOptions(overrides=FEW, num_samples=4))
    scored = trajectories(runs, done.run_ids[0])
    assert len(scored) == 16
    solved = {}
    for item in scored:
        solved[item.trajectory.task.id] = solved.get(item.trajectory.task.id, 0) + (item.success >= 1.0)
    found = metrics(runs, done.run_ids[0])["sampled"]
    # pass@2 of n = 4 samples with c right: 1 - C(4 - c, 2) / 6; pass^2: C(c, 2) / 6
    pairs = {0: 0, 1: 0, 2: 1, 3: 3, 4: 6}
    assert found["pass@2"] == pytest.approx(sum(1 - pairs[4 - c] / 6 for c in solved.values()) / 4)
    assert found["pass^2"] == pytest.approx(sum(pairs[c] / 6 for c in solved.values()) / 4)
    assert found["pass@1"] == pytest.approx(found["success"])
    assert found["pass^4"] == sum(c == 4 for c in solved.values()) / 4


def test_more_samples_than_memory_holds_are_refused():
    with pytest.raises(ValidationError, match="less than or equal to 10000"):
        EvalSpec(num_samples=100_000_000)


def test_a_greedy_evaluation_has_no_samples(trained):
    runs, run_id = trained
    done = tried(runs, run_id, asked=EvaluationOptions(overrides=("eval.limit=2",), greedy=True))
    assert list(metrics(runs, done.run_ids[0])) == ["greedy"]
    with pytest.raises(RlfError, match="--greedy and -k"):
        EvaluationOptions(greedy=True, num_samples=2)
    with pytest.raises(RlfError, match="--temperature: got 0"):
        EvaluationOptions(temperature=0.0)


def evaluate_and_be_killed(runs, run_id, asked, at):
    """An evaluation in batches of four that is killed after so many of them."""
    module.BATCH = 4
    num_done = 0

    def show(item):
        nonlocal num_done
        num_done += isinstance(item, EvaluationProgress) and item.num_done > 0
        if num_done == at:
            os.kill(os.getpid(), signal.SIGKILL)

    tried(runs, run_id, asked=asked, shown=SimpleNamespace(append=show))


@pytest.mark.parametrize(("schedule", "at", "kept"), [("logical", 7, 4), ("clock", 16, 3)])
def test_a_killed_evaluation_continues_where_it_was(trained, schedule, at, kept, tmp_path, monkeypatch):
    runs = tmp_path / "runs"
    shutil.copytree(trained[0], runs)
    with open_reader(runs) as reader:
        before = {run.record.id for run in reader.list_runs()}
    monkeypatch.setattr(module, "BATCH", 4)
    asked = EvaluationOptions(overrides=("eval.limit=12", f"rollout.schedule={schedule}", "eval.greedy=true"))
    with Process(evaluate_and_be_killed, runs, trained[1], asked, at) as killed:
        _, errors = killed.communicate(120)
        assert killed.returncode == -signal.SIGKILL, errors
    with open_reader(runs) as reader:
        (stopped,) = {run.record.id for run in reader.list_runs()} - before
    shown = []
    done = tried(runs, trained[1], asked=asked, shown=shown)
    assert done.run_ids == (stopped,)
    mode = "greedy" if at > 12 else "sampled"
    assert next(item.num_done for item in shown if isinstance(item, EvaluationProgress) and item.mode == mode) == kept
    whole = tried(runs, trained[1], asked=asked)
    assert whole.run_ids != done.run_ids
    assert metrics(runs, stopped) == metrics(runs, whole.run_ids[0])
    for mode in ("sampled", "greedy"):
        one, other = (trajectories(runs, run_id, mode) for run_id in (stopped, whole.run_ids[0]))
        assert [item.trajectory.tokens for item in one] == [item.trajectory.tokens for item in other]
    assert not (runs / stopped).exists()


def test_several_targets_are_held_side_by_side_question_by_question(trained):
    runs, run_id = trained
    done = tried(runs, f"{run_id}@1", run_id, "builtin:tiny", asked=EvaluationOptions(files=(SEARCH,), overrides=FEW))
    with open_reader(runs) as reader:
        found = compare_runs(reader, done.run_ids)
        report = read_evaluations(reader, done.run_ids)
    assert [contrast.num_questions for contrast in found.contrasts] == [4, 4]
    models = [item for item in found.differences if item.cause == "model"]
    assert len(set(next(item.values for item in models if item.what == "model"))) == 3
    assert [row.target for row in report.rows] == [f"{run_id}@1", f"{run_id}@2", "builtin:tiny"]


def test_every_target_is_checked_before_the_first_is_tried(trained):
    runs, run_id = trained
    with open_reader(runs) as reader:
        before = len(reader.list_runs())
    with pytest.raises(RlfError, match="names no model"):
        tried(runs, run_id, "nothing")
    with open_reader(runs) as reader:
        assert len(reader.list_runs()) == before


def test_nothing_is_written_for_a_target_without_questions(tmp_path):
    with pytest.raises(RlfError, match="it has no tools, questions or rewards"):
        tried(tmp_path / "runs", "builtin:tiny")
    with pytest.raises(SpecError, match=r"eval\.limit"):
        tried(tmp_path / "runs", "builtin:tiny", asked=EvaluationOptions(files=(SEARCH,), limit=0))
    assert not (tmp_path / "runs").exists()


def rows_without_answers(folder):
    file = folder / "new.jsonl"
    file.write_text("".join(json.dumps({"question": f"Where is {n}?", "kind": "one"}) + "\n" for n in "ab"))
    return file


def test_questions_without_answers_are_scored_by_the_rewards_that_need_none(trained, tmp_path):
    runs, run_id = trained
    file = rows_without_answers(tmp_path)
    with pytest.raises(RlfError, match=r"has no column 'answer', but every reward term compares"):
        tried(runs, run_id, asked=EvaluationOptions(data=str(file)))
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        f"extends: {SEARCH}\nrewards:\n  - {{use: {ROOT / 'reward_specs/exact_match.yaml'}, weight: 1.0}}\n"
        "  - {kind: rule, name: well_formed, rule: tool_format, weight: 0.1}\n"
    )
    shown = []
    done = tried(runs, run_id, asked=EvaluationOptions(files=(spec,), data=str(file)), shown=shown)
    notice = next(item for item in shown if isinstance(item, Notice) and "terms" in item.data)
    assert notice.data["terms"] == ["exact_match"]
    with open_reader(runs) as reader:
        row = read_evaluations(reader, done.run_ids).rows[0]
    assert list(row.terms) == ["well_formed"] and row.num_questions == 2


def test_an_evaluation_is_no_run_that_was_trained(trained):
    from rlf.apps.keep.forks import fork_checkpoint, reproduce

    runs, run_id = trained
    (found,) = tried(runs, run_id, asked=EvaluationOptions(overrides=FEW)).run_ids
    for use in (
        lambda: reproduce(found, live=False, runs_folder=runs, view=None, command=[]),
        lambda: fork_checkpoint(found, [], [], runs_folder=runs, view=None, command=[]),
    ):
        with pytest.raises(RlfError, match=f"run {found}: is an evaluation of run {run_id}"):
            use()


def test_the_model_of_an_evaluation_is_that_of_its_run(trained, tmp_path):
    from rlf.apps.keep.export import export_model

    runs, run_id = trained
    (found,) = tried(runs, run_id, asked=EvaluationOptions(overrides=FEW)).run_ids
    assert export_model(found, tmp_path / "out", runs_folder=runs).run_id == run_id
    (alone,) = tried(runs, "builtin:tiny", asked=EvaluationOptions(files=(SEARCH,), overrides=FEW)).run_ids
    with pytest.raises(RlfError, match="an evaluation whose target is not a run and has no model"):
        export_model(alone, tmp_path / "other", runs_folder=runs)


@contextmanager
def a_server(answer):
    """An OpenAI-compatible server that answers each request by a function of its messages; with the bodies it got."""
    bodies = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            bodies.append(body)
            status, values = answer(body["messages"])
            data = json.dumps(values).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self):
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", bodies
    finally:
        server.shutdown()
        server.server_close()


def a_choice(**message):
    finish = "tool_calls" if "tool_calls" in message else "stop"
    choice = {"index": 0, "message": {"role": "assistant", "content": None, **message}, "finish_reason": finish}
    return {"choices": [choice], "usage": {"prompt_tokens": 10, "completion_tokens": 3, "cost": 0.001}}


def searching(messages):
    """Searches for the question's first word, then answers with the last word of what was found."""
    if messages[-1]["role"] != "tool":
        call = {"name": "search", "arguments": json.dumps({"query": messages[-1]["content"]})}
        return 200, a_choice(tool_calls=[{"id": "c1", "type": "function", "function": call}])
    return 200, a_choice(content=messages[-1]["content"].split()[0])


def test_a_model_behind_a_server_is_tried_with_the_tools_and_stands_in_the_same_table(trained):
    runs, run_id = trained
    with a_server(searching) as (url, bodies):
        endpoint = endpoint_of(url, "big")
        done = tried(runs, run_id, asked=EvaluationOptions(files=(SEARCH,), overrides=FEW), endpoint=endpoint)
    assert {tool["function"]["name"] for tool in bodies[0]["tools"]} == {"search", "calculator"}
    assert bodies[0]["model"] == "big" and bodies[0]["temperature"] == 1.0
    assert bodies[-1]["messages"][-1]["role"] == "tool"
    scored = trajectories(runs, done.run_ids[1])
    assert [item.trajectory.stop for item in scored] == [StopReason.ANSWERED] * 4
    assert all(not item.trajectory.tokens and len(item.trajectory.turns) == 2 for item in scored)
    assert all(item.reward is not None for item in scored)
    with open_reader(runs) as reader:
        row = read_evaluations(reader, done.run_ids).rows[1]
        assert compare_runs(reader, done.run_ids).contrasts[0].num_questions == 4
    assert (row.target, row.num_tokens, row.num_calls) == (f"big at {url}", 6.0, 1.0)
    assert row.cost_usd == pytest.approx(4 * 2 * 0.001)


def test_what_breaks_is_apart_from_zeros(trained):
    runs, _ = trained

    def broken(messages):
        return (500, {"error": {"message": "down"}}) if "river" in messages[0]["content"] else searching(messages)

    asked = EvaluationOptions(files=(SEARCH,), overrides=("eval.limit=6", "eval.greedy=false"))
    with a_server(broken) as (url, _):
        endpoint = endpoint_of(url, "big").model_copy(update={"timeout_s": 4})
        done = tried(runs, asked=asked, endpoint=endpoint)
    with open_reader(runs) as reader:
        row = read_evaluations(reader, done.run_ids).rows[0]
    assert 0 < row.num_failed < 6 and row.num_questions == 6 - row.num_failed
    assert any("the model's server" in cause for cause in row.causes)


def test_an_evaluation_of_which_nothing_could_be_scored_fails_and_is_continued(trained):
    runs, _ = trained
    with a_server(lambda _: (400, {"error": {"message": "down"}})) as (url, _):
        command = ["eval", str(SEARCH), "--endpoint", url, "--model", "big", "--limit", "2", "--runs", str(runs)]
        result = CliRunner().invoke(app, [*command, "eval.greedy=false"])
        asked = EvaluationOptions(files=(SEARCH,), limit=2, overrides=("eval.greedy=false",))
        big = endpoint_of(url, "big")
        again = try_targets([], asked, endpoint=big, runs_folder=runs, command=["rlf", "eval"], show=lambda item: None)
        call = {"endpoint": url, "model": "big", "limit": 2, "runs_folder": runs}
        with pytest.raises(RlfError, match="the evaluation failed: 2 of 2 trajectories have no value"):
            rlf.evaluate([], SEARCH, {"eval.greedy": False}, **call)
    assert result.exit_code == 1
    with open_reader(runs) as reader:
        found = reader.list_runs()[0]
    assert found.error == again.reason and found.error in result.output.replace("\n", " ")
    assert found.error.startswith("2 of 2 trajectories have no value, too many for a result; the sampler broke 2")
    assert "down" in found.error
    assert (found.status, again.run_ids) == ("failed", (found.record.id,))


def test_every_command_that_plays_a_model_behind_a_server_takes_the_time_of_a_request():
    sections = (ROOT / "docs" / "reference" / "commands.md").read_text().split("\n## ")
    asking = [section for section in sections if "| `--endpoint " in section]
    assert len(asking) == 6 and all("| `--timeout " in section for section in asking)


def test_a_server_that_never_answers_is_waited_for_aloud_and_given_up(trained, monkeypatch):
    runs, _ = trained
    monkeypatch.setattr(play, "SILENT_S", 0.1)
    monkeypatch.setattr(play, "_GIVE_UP", 4)
    over, shown = threading.Event(), []
    asked = EvaluationOptions(files=(SEARCH,), limit=64, max_concurrency=4, overrides=("eval.greedy=false",))
    with a_server(lambda _: (200, {"late": over.wait(20)})) as (url, bodies):
        big = endpoint_of(url, "big", timeout_s=0.2)
        done = try_targets([], asked, endpoint=big, runs_folder=runs, command=["rlf", "eval"], show=shown.append)
        over.set()
    assert done.status is RunStatus.FAILED and re.match(r"the first \d+ trajectories have no value", done.reason)
    assert "no answer within" in done.reason and "0.2 s (--timeout)" in done.reason and len(bodies) < 40
    assert any(isinstance(one, Notice) and f"waiting for {url}" in one.text for one in shown)


@pytest.mark.parametrize("schedule", ["clock", "logical"])
def test_an_evaluation_most_of_which_a_judge_broke_fails_with_its_words_and_is_continued(
    trained, tmp_path, monkeypatch, schedule
):
    runs, _ = trained
    (tmp_path / "late_judge.py").write_text(
        "from pathlib import Path\n\nCALLS = Path(__file__).with_name('calls')\n\n\n"
        "def judge(trajectory):\n"
        "    number = len(CALLS.read_text()) if CALLS.exists() else 0\n"
        "    CALLS.write_text('x' * (number + 1))\n"
        "    if 2 <= number < 6:\n"
        "        raise ConnectionError('the judge is down')\n"
        "    return 1.0\n"
    )
    rewards = [{"name": "good", "kind": "python", "callable": f"{tmp_path}/late_judge.py:judge", "range": [0, 1]}]
    spec = tmp_path / "judged.yaml"
    text = SEARCH.read_text().replace("../tool_specs", str(ROOT / "tool_specs"))
    spec.write_text(
        text[: text.index("rewards:")] + f"rewards: {json.dumps(rewards)}\n" + text[text.index("rollout:") :]
    )
    again = {"runs_folder": runs, "command": ["rlf", "eval"], "show": lambda item: None}
    asked = EvaluationOptions(files=(spec,), limit=6, overrides=("eval.greedy=false", f"rollout.schedule={schedule}"))
    stopped = try_targets(["builtin:tiny"], asked, **again)
    assert stopped.status is RunStatus.FAILED
    assert re.match(r"4 of 6 .* reward term 'good' broke 4 of them\. .*the judge is down", stopped.reason)
    assert metrics(runs, stopped.run_ids[0]) == {}, "no figures of the two that were scored"
    done = try_targets(["builtin:tiny"], asked, **again)
    assert (done.status, done.run_ids) == (RunStatus.FINISHED, stopped.run_ids)
    assert metrics(runs, done.run_ids[0])["sampled"]["num_questions"] == 6
    num_asked = len((tmp_path / "calls").read_text())
    assert num_asked == (12 if schedule == "logical" else 6 + 4), "a logical batch is played as a whole"


def test_an_endpoint_that_refuses_is_named_before_anything_is_written(trained):
    runs, _ = trained
    endpoint = endpoint_of("http://127.0.0.1:9/v1", "big")
    with open_reader(runs) as reader:
        before = [run.record.id for run in reader.list_runs()]
    with pytest.raises(RlfError, match=r"127\.0\.0\.1"):
        tried(runs, asked=EvaluationOptions(files=(SEARCH,), overrides=FEW), endpoint=endpoint)
    with open_reader(runs) as reader:
        assert [run.record.id for run in reader.list_runs()] == before


def test_inspects_log_has_every_trajectory_with_its_scores(trained):
    from rlf.apps.evaluate.inspect_log import log_values

    runs, run_id = trained
    done = tried(runs, run_id, asked=EvaluationOptions(overrides=FEW, num_samples=2))
    with open_reader(runs) as reader:
        values = log_values(reader, done.run_ids[0], reader.evaluations(done.run_ids[0])[0])
    assert len(values["samples"]) == 8 and {sample["epoch"] for sample in values["samples"]} == {1, 2}
    assert values["results"]["scores"][0]["name"] == "exact_match"
    assert values["eval"]["model"] == f"rlf/{run_id}@2"


def test_inspect_reads_back_the_log(trained):
    reason = "inspect-ai is not installed: its log is NOT read back by inspect"
    log = pytest.importorskip("inspect_ai.log", reason=reason)
    from rlf.apps.evaluate.inspect_log import write_log

    runs, run_id = trained
    done = tried(runs, run_id, asked=EvaluationOptions(overrides=FEW, num_samples=2))
    found = log.read_eval_log(str(write_log(done.run_ids[0], runs)))
    scored = trajectories(runs, done.run_ids[0])
    assert (found.status, found.eval.model, len(found.samples)) == ("success", f"rlf/{run_id}@2", 8)
    assert found.results.scores[0].metrics["success"].value == metrics(runs, done.run_ids[0])["sampled"]["success"]
    assert [sample.scores["exact_match"].value for sample in found.samples] == [item.reward for item in scored]
    called = [sample for sample in found.samples if any(message.role == "tool" for message in sample.messages)]
    assert all(sample.messages[1].tool_calls for sample in called)


def test_logs_are_refused_before_anything_is_tried_where_inspect_is_not_installed(monkeypatch):
    import importlib.util

    from rlf.apps.evaluate.inspect_log import check_log

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RlfError, match=r"pip install 'rlf\[inspect\]'"):
        check_log("inspect")
    with pytest.raises(RlfError, match="expected inspect"):
        check_log("wandb")


def test_ctrl_c_keeps_what_is_over_and_the_same_call_continues(trained):
    runs, run_id = trained
    asked = EvaluationOptions(overrides=("eval.limit=6", "eval.greedy=false", "rollout.schedule=clock", "seed=3"))

    def interrupt(item):
        if getattr(item, "num_done", 0) == 2:
            signal.raise_signal(signal.SIGINT)

    done = try_targets([run_id], asked, runs_folder=runs, command=["rlf"], show=interrupt)
    assert done.status is RunStatus.INTERRUPTED
    shown = []
    again = tried(runs, run_id, asked=asked, shown=shown)
    assert again.run_ids == done.run_ids
    assert next(item.num_done for item in shown if hasattr(item, "num_done")) >= 2


def test_the_command_prints_one_table_or_lines_of_json(trained, tmp_path):
    runs, run_id = trained
    command = ["eval", f"{run_id}@1", run_id, "--limit", "2", "eval.greedy=false", "--runs", str(runs)]
    result = CliRunner().invoke(app, [*command, "--html", str(tmp_path / "page.html")])
    assert result.exit_code == 0 and f"A  {run_id}@1" in result.output and "rlf runs compare" in result.output
    assert "<html" in (tmp_path / "page.html").read_text()
    lines = [json.loads(line) for line in CliRunner().invoke(app, [*command, "--json"]).stdout.splitlines()]
    assert {"started", "progress", "evaluation", "finished"} <= {line.get("event") for line in lines}
    assert [row["target"] for row in lines[-1]["data"]["rows"]] == [f"{run_id}@1", f"{run_id}@2"]
    wrong = CliRunner().invoke(app, ["eval", "--endpoint", "http://127.0.0.1:9/v1"])
    assert wrong.exit_code == 2 and "--endpoint and --model go together" in wrong.output


def test_what_was_played_is_read_again_whatever_ends_of_lines_a_text_has(tmp_path):
    played = replace(synthetic.trajectory(0, succeeds=True), answer="one\u2028two\x85three")
    spool, rollout = Spool(tmp_path / "played.jsonl", Redactor({})), Rollout(played.id, played.task, 0, 0)
    spool.add([SpoolEntry(Scored(played, (), 1.0, 1.0), {})])
    assert spool.read([rollout])[played.id].scored.trajectory.answer == played.answer
    whole = spool.path.read_text()
    for edited in (whole.replace('"tokens"', '"tokes"'), whole.replace('"scored"', '"skored"'), "[]\n3\n" + whole[2:]):
        spool.path.write_text(edited)
        assert spool.read([rollout]) == {}  # it is played again
