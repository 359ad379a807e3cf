"""`rlf climb`: the cheapest rung that is enough, in one lineage, and continued where it was stopped."""

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from rlf.apps.climb.climb import Climb, ClimbOptions, Rung, _Ladder, climb
from rlf.apps.climb.command import _show, climb_command
from rlf.apps.openrlhf import OpenRlhf
from rlf.apps.openrlhf.job import Job
from rlf.apps.prompt import search as searching
from rlf.apps.prompt.command import prompt
from rlf.core import RlfError
from rlf.core.yaml_text import dump_yaml
from rlf.endpoints.spec import EndpointSpec
from rlf.engines.local import Local
from rlf.runs.place import open_reader

from ...processes import Process
from ...runs.conftest import ROOT, SMALL
from ...runs.test_demonstrations import conversation
from ...runs.test_evaluations import a_server

SEARCH = [ROOT / "specs" / "search.yaml"]
FEW = [*SMALL, "eval.every=null", "eval.limit=4", "train.steps=3", "checkpoint.every=1"]
NOTHING_SUCCEEDS = [
    *("data.eval.answer=null", "success=null"),
    "rewards=[{kind: rule, name: never, rule: regex, pattern: 'a^', weight: 1}]",
]
NEVER = ClimbOptions(target=1.0, samples=2)


def with_demonstrations(folder):
    path = folder / "shown.jsonl"
    path.write_text("".join(json.dumps(conversation(number)) + "\n" for number in range(4)))
    return [*FEW, f"+data.demonstrations={json.dumps({'path': str(path), 'steps': 2, 'per_step': 2})}"]


def up(overrides, runs, options=NEVER, notify=lambda line: None):
    return climb(SEARCH, overrides, options, runs_folder=runs, command=["rlf", "climb"], notify=notify)


def numbers(done):
    """All of a climb but its times, and where its runs and models are."""
    return [replace(rung, run_id=None, model=None, time_s=0.0) for rung in done.rungs]


def runs_of(folder):
    with open_reader(folder) as reader:
        return {run.id: (run.name, run.engine, run.last_step) for run in reader.run_lines()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A climb over all rungs that a spec with demonstrations has, where none is enough."""
    folder = tmp_path_factory.mktemp("climb")
    (folder / "runs").mkdir()  # a folder that is there without a lineage
    overrides = with_demonstrations(folder)
    return overrides, folder / "runs", up(overrides, folder / "runs")


def test_a_rung_after_another_is_climbed_and_says_why_it_was_not_enough(whole):
    _, runs, done = whole
    base, prompt, shown, distilled, rewards = done.rungs
    assert [rung.name for rung in done.rungs] == ["base", "prompt", "demonstrations", "distillation", "rewards"]
    assert distilled.run_id is None and "there rewards teach" in distilled.words
    assert done.reached is None and prompt.run_id is None and "no model rewrites prompts" in prompt.words
    assert "below the target of 100%. None of 2 samples solves" in base.words
    assert (shown.num_rollouts, shown.num_sampled) == (0, 0) and min(base.time_s, shown.time_s) > 0 == prompt.time_s
    assert rewards.num_rollouts == 1 * 2 * 4 and rewards.num_sampled > 0  # two of three steps imitate
    assert [runs_of(runs)[id_] for id_ in [rung.run_id for rung in done.rungs if rung.run_id is not None]] == [
        ("search", "evaluation", 0),
        ("search-demonstrations", "local", 2),
        ("search-rewards", "local", 1),
    ]
    with open_reader(runs) as reader:
        began_with = reader.get_run(rewards.run_id).record.plan["spec"]["model"]["path"]
    better = shown if shown.success >= base.success else base
    assert began_with == (better.model or "builtin:tiny")


def test_the_same_command_reads_what_is_done_and_trains_nothing_again(whole):
    overrides, runs, done = whole
    before = runs_of(runs)
    assert up(overrides, runs) == done and runs_of(runs) == before


def test_the_first_rung_whose_interval_lies_above_the_target_is_the_last(whole):
    overrides, runs, done = whole
    again = up(overrides, runs, ClimbOptions(target=0.0, samples=2))
    assert (again.reached, len(again.rungs)) == ("base", 1) and "enough, the target is 0%" in again.rungs[0].words
    low, success = done.rungs[0].low, done.rungs[0].success
    assert up(overrides, runs, ClimbOptions(target=(low + success) / 2, samples=2)).reached != "base"


def climb_and_be_killed(overrides, runs, moment):
    def notify(line):
        if line.startswith(moment):
            os.kill(os.getpid(), signal.SIGKILL)

    up(overrides, runs, notify=notify)


@pytest.mark.parametrize("moment", ["base:", "demonstrations: run", "rewards: run"])
def test_a_climb_killed_in_any_stage_comes_to_the_same_numbers(whole, tmp_path, moment):
    overrides, _, done = whole
    with Process(climb_and_be_killed, overrides, tmp_path / "runs", moment) as killed:
        _, errors = killed.communicate(240)
        assert killed.returncode == -signal.SIGKILL, errors
    assert numbers(up(overrides, tmp_path / "runs")) == numbers(done)
    kinds = sorted(name for name, *_ in runs_of(tmp_path / "runs").values())
    assert kinds == ["search", "search-demonstrations", "search-rewards"]  # each once


def test_a_prompt_that_is_better_is_what_later_rungs_have(whole, tmp_path, monkeypatch):
    def search(files, overrides, options, *, file, **_):
        file.parent.mkdir(exist_ok=True)
        texts = {"data": {part: {"system": "Search first."} for part in ("train", "eval")}}
        file.write_text(dump_yaml({"extends": [str(files[0])], **texts}))
        return searching.PromptResult("search", "tiny", 2, 30, 400, 1, 0.0, 0.5, {"system message": "x"}, file, 0.0)

    monkeypatch.setattr(searching, "search", search)
    monkeypatch.setattr(searching, "check_writer", lambda writer: None)
    writer = EndpointSpec(url="http://127.0.0.1:9/v1", model="writer")
    done = up(FEW, tmp_path / "runs", replace(NEVER, writer=writer))
    base, prompt, shown, _, rewards = done.rungs
    assert (prompt.num_rollouts, prompt.num_sampled) == (30, 400) and prompt.run_id != base.run_id
    assert shown.run_id is None and "there are no demonstrations" in shown.words
    with open_reader(tmp_path / "runs") as reader:
        plan = reader.get_run(rewards.run_id or prompt.run_id).record.plan["spec"]
    assert (plan["data"]["train"]["system"] == "Search first.") is (prompt.success >= base.success)


def test_demonstrations_that_ship_with_rlf_are_imitated_as_the_spec_says(tmp_path):
    ladder = _Ladder([ROOT / "specs" / "cold_start.yaml"], [], NEVER, tmp_path, [], print)
    shown, steps = ladder._declared()
    assert (shown["path"], shown["steps"], steps) == ("builtin:shop/demonstrations", None, 100)


def test_solutions_of_tasks_are_imitated_at_five_times_the_rate_for_rewards(tmp_path, monkeypatch):
    changes = ["data.demonstrations=null", "data.train.limit=8", "train.learning_rate=0.001"]
    ladder, trained = _Ladder([ROOT / "specs" / "cold_start.yaml"], changes, NEVER, tmp_path, [], print), []
    shown, steps = ladder._declared()
    assert (shown["learning_rate"], steps) == (0.005, 20)
    monkeypatch.setattr(ladder, "_train", lambda name, changes: trained.extend(changes))
    ladder._demonstrations()
    assert "train.lr_schedule=constant" in trained  # the rate of the spec falls
    assert len(Path(shown["path"]).read_text().splitlines()) == 8


def test_where_no_sample_solves_anything_the_policy_learns_by_what_is_said_against_it_and_not_by_rewards(tmp_path):
    done = up([*FEW, *NOTHING_SUCCEEDS], tmp_path / "runs")
    *_, distilled, rewards = done.rungs
    assert "there is nothing to strengthen" in rewards.words and distilled.num_sampled > 0
    with open_reader(tmp_path / "runs") as reader:
        run = reader.get_run(distilled.run_id)
        assert run.record.plan["spec"]["train"]["algorithm"]["kind"] == "distillation"
        assert all(step.metrics["teacher/taught"] > 0 for step in reader.steps(run.record.id))
    # a round after which nothing succeeds is the last
    assert sorted(name for name, *_ in runs_of(tmp_path / "runs").values()) == ["search", "search-distillation"]


def test_where_all_samples_solve_their_question_only_more_questions_may_show_the_target(whole):
    _, runs, done = whole
    ladder = _Ladder(SEARCH, FEW, replace(NEVER, target=0.9), runs, [], lambda line: None)
    solved = replace(done.rungs[0], success=1.0, low=0.51, high=1.0, unsolved=0.0, solved=1.0)
    assert ladder._describe(solved, is_enough=False) == (
        "100.0% (51.0% to 100.0%): below the target of 90%. All samples solve their question: only more questions "
        "(`eval.limit`) may show the target"
    )


def test_a_spec_that_is_measured_by_nothing_is_refused(tmp_path):
    values = yaml.safe_load(SEARCH[0].read_text().replace("../", f"{ROOT}/"))
    del values["data"]["eval"], values["eval"]
    (tmp_path / "blind.yaml").write_text(yaml.safe_dump(values))
    with pytest.raises(RlfError, match=r"has no `data\.eval`"):
        climb([tmp_path / "blind.yaml"], [], NEVER, runs_folder=tmp_path / "runs", command=[], notify=print)
    assert not (tmp_path / "runs").exists()


def test_where_no_rung_is_enough_the_best_one_is_shown(tmp_path):
    names = ("demonstrations", 0.9, "demonstrated"), ("rewards", 0.8, "rewarded")
    rungs = [Rung(name, name, success, 0.7, 0.95, 0.1, 0.5, 8, 80, 1.0, model, "") for name, success, model in names]
    shown = _show(Climb("search", 0.9, None, tuple(rungs)), tmp_path)
    assert "no rung reaches 90%; the best is: demonstrations" in shown and "the model is demonstrated" in shown


def test_a_target_that_so_few_questions_cannot_show_is_warned_of(tmp_path):
    warned = []
    for target in (0.5, 0.52, 1.0):  # all of 4: 51.0 to 100 %
        _Ladder(SEARCH, FEW, ClimbOptions(target, samples=2), tmp_path, [], warned.append)
    assert [line.partition(":")[2] for line in warned] == [
        f" `--target` {target} is not to be shown by 4 questions: where all succeed, the interval begins at 51.0%. "
        "Raise `eval.limit`, or all rungs are tried"
        for target in ("52.0%", "100.0%")
    ]


def test_a_writers_key_that_is_refused_is_found_before_anything_is_measured(tmp_path, monkeypatch):
    pytest.importorskip("gepa")
    monkeypatch.setenv("WRITER_KEY", "wrong")
    with a_server(lambda messages: (401, {"error": {"message": "no such key"}})) as (url, asked):
        writer = EndpointSpec(url=url, model="writer", api_key_env="WRITER_KEY")
        with pytest.raises(RlfError, match=r"an endpoint refused the key: .*no such key"):
            up(FEW, tmp_path / "runs", replace(NEVER, writer=writer))
    assert not (tmp_path / "runs").exists() and [body["messages"] for body in asked] == [[]]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("http://127.0.0.1:9/v1", "m", "MINE"), "--writer-key-env: got 'MINE'"),
        (("host", "m"), "--writer-endpoint: got 'host'"),
        (("http://127.0.0.1:9/v1",), "--writer-endpoint and --writer-model go together"),
    ],
)
@pytest.mark.parametrize("command", [climb_command, prompt])
def test_what_is_wrong_with_a_writer_is_said_by_its_own_options(command, asked, words):
    writer = dict(zip(("writer_endpoint", "writer_model", "writer_key_env"), asked, strict=False))
    with pytest.raises(RlfError, match=words):
        command([str(SEARCH[0])], **writer)


@pytest.fixture
def in_place_of_jobs(monkeypatch):
    """OpenRLHF's runs without a job: the local engine does their steps, and leaves the model where a job would."""
    opened = []

    def open_run(engine, opening):
        run = Local(device="cpu").open(opening)
        play = run.run

        async def run_and_leave_the_model():
            await play()
            shutil.copytree(opening.folder / "model", Job.of_run(opening.folder, engine.output).model)

        run.run = run_and_leave_the_model
        opened.append(opening.plan.spec)
        return run

    monkeypatch.setattr(OpenRlhf, "open", open_run)
    return opened


def test_with_openrlhf_each_rung_is_a_run_of_its_own_that_begins_with_the_best_model_so_far(tmp_path, in_place_of_jobs):
    overrides = [*with_demonstrations(tmp_path), "engine={kind: openrlhf}"]
    done = up(overrides, tmp_path / "runs")
    base, _, shown, distilled, rewards = done.rungs
    imitates, samples = in_place_of_jobs
    assert (imitates.model.path, imitates.train.steps, imitates.data.eval) == ("builtin:tiny", 2, None)
    assert imitates.data.demonstrations.steps is None and samples.data.demonstrations is None
    assert samples.model.path == (shown.model if shown.success >= base.success else "builtin:tiny")
    assert (samples.train.steps, samples.data.eval is None) == (1, False)  # two of three imitate
    # Its trainer of demonstrations samples nothing: what it leaves is tried by an evaluation.
    (tried,) = [run for id_, run in runs_of(tmp_path / "runs").items() if id_ == shown.run_id]
    assert tried == ("search", "evaluation", 0) and shown.model.endswith("job/model") and shown.num_sampled == 0
    assert distilled.run_id is None and rewards.num_rollouts == 8 and rewards.model.endswith("job/model")
    assert up(overrides, tmp_path / "runs") == done and len(in_place_of_jobs) == 2


def test_with_openrlhf_the_policy_is_not_its_own_teacher(tmp_path, in_place_of_jobs):
    changes = ["engine={kind: openrlhf}", *NOTHING_SUCCEEDS]
    *_, distilled, rewards = up([*FEW, *changes], tmp_path / "runs").rungs
    assert distilled.words == "left out: with OpenRLHF the policy is not its own teacher"
    assert rewards.run_id is None and not in_place_of_jobs
