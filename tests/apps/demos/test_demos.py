"""`rlf demos`: what becomes a demonstration, from which origin, and why the rest does not."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from rlf.apps.demos import demos
from rlf.apps.demos.demos import DemosOptions, parse_conditions, write_demos
from rlf.apps.demos.origins import convert_row, from_run
from rlf.apps.demos.rows import (
    DemonstratedTurn,
    Demonstration,
    load_demonstrations,
    read_demonstration,
    write_demonstration,
)
from rlf.apps.demos.steps import play_each
from rlf.apps.evaluate.play import Spool
from rlf.builtin.names import builtin_path
from rlf.builtin.rooms.vault import COLOURS, plan_vault
from rlf.core import RlfError, SpecError
from rlf.endpoints.spec import EndpointSpec
from rlf.lineage.records import INTERRUPTED
from rlf.rewards.labels import LABELS, label_id
from rlf.runs.place import open_reader
from rlf.runs.plans import check_spec
from rlf.types import ToolCall, Trajectory

from ...processes import Process
from ...runs.conftest import ROOT
from ...runs.test_evaluations import a_choice, a_server

SHOP = [ROOT / "specs" / "shop.yaml"]
SEARCH = [ROOT / "specs" / "search.yaml"]


def write(out, spec=SHOP, overrides=(), runs_folder=Path("none"), **asked):
    return write_demos(spec, list(overrides), DemosOptions(closing="done", **asked), out, runs_folder=runs_folder)


def test_solutions_are_played_scored_and_read_back(tmp_path):
    done = write(tmp_path / "gold.jsonl", overrides=["data.train.limit=5"], gold=True)
    assert (done.num_kept, done.kept_by_origin, done.left_out) == (5, {"gold": 5}, {})
    first = load_demonstrations(str(done.path), declared=["orders", "cancel", "refund", "buy"])[0]
    assert [call.name for turn in first.turns for call in turn.calls] == ["orders", "cancel"]
    assert first.turns[1].results == ("cancelled 6919",) and first.turns[-1].content == "done"


def test_the_file_that_a_spec_names_need_not_be_there_yet(tmp_path):
    spec = tmp_path / "spec.yaml"
    spec.write_text(f"extends: {SHOP[0]}\nname: cold\ndata: {{demonstrations: {{path: demos.jsonl, steps: 2}}}}\n")
    done = write(tmp_path / "demos.jsonl", [spec], ["data.train.limit=2"], gold=True)
    assert done.num_kept == 2
    assert write(tmp_path / "demos.jsonl", [spec], ["data.train.limit=3"], gold=True).num_kept == 3


def test_a_solution_that_does_not_solve_its_task_is_left_out_and_counted(tmp_path):
    rows = [json.loads(line) for line in builtin_path("shop/orders_train").read_text().splitlines()[:4]]
    rows[0]["gold"] = rows[0]["gold"][:1]  # a look, and nothing else
    rows[1]["gold"] = None
    rows[2]["gold"] = [{"name": "cancel", "arguments": {"number": "1"}}, "sorry"]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = write(tmp_path / "gold.jsonl", overrides=[f"data.train.path={tmp_path / 'train.jsonl'}"], gold=True)
    assert done.num_kept == 1
    assert done.left_out == {"not success >= 1": 2, "neither its row nor its world has a solution": 1}


def test_nothing_of_the_evaluation_set_is_written(tmp_path):
    held = [f"data.train.path={builtin_path('shop/orders_heldout')}", "data.train.limit=3", "data.allow_test_data=true"]
    with pytest.raises(RlfError, match=r"no conversation is left to write \(3: its question stands in the evaluation"):
        write(tmp_path / "gold.jsonl", overrides=held, gold=True)
    assert not (tmp_path / "gold.jsonl").exists()


def test_kinds_are_balanced_and_copies_left_out(tmp_path):
    mixed = ["data.train.path=builtin:shop/orders_mixed_train", "data.train.limit=7"]
    done = write(tmp_path / "a.jsonl", overrides=mixed, gold=True, balance=True)
    assert set(done.kept_by_kind.values()) == {2} and done.left_out == {"its kind has as many as the rarest": 1}
    again = write(tmp_path / "b.jsonl", overrides=mixed, files=(tmp_path / "a.jsonl", tmp_path / "a.jsonl"))
    assert (again.num_kept, again.left_out) == (6, {"it is the same as another": 6})


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """A runs folder with a run on the search task: some of its trajectories succeed."""
    from rlf.runs.start import run

    from ...runs.test_runs import Watch

    folder = tmp_path_factory.mktemp("runs")
    few = ["train.steps=1", "data.train.limit=8", "train.prompts_per_step=8", "rollout.num_generations=4"]
    run(SEARCH, [*few, "eval.limit=4"], runs_folder=folder, view=Watch(), command=["rlf"])
    return folder


def test_the_best_of_each_question_come_from_a_run(evaluated, tmp_path):
    done = write(tmp_path / "a.jsonl", SEARCH, runs_folder=evaluated, runs=("latest",), best=1)
    shown = load_demonstrations(str(done.path), declared=["search", "calculator"])
    assert 0 < done.num_kept == len({one.task.question for one in shown}) <= 8
    assert done.left_out["not success >= 1"] > 0
    assert done.left_out["its question stands in the evaluation set"] > 0
    assert done.num_tokens is not None and done.num_tokens > 0
    few = write(
        tmp_path / "b.jsonl", SEARCH, runs_folder=evaluated, runs=("latest",), where="success == 1 and calls < 2"
    )
    assert all(len(one.turns) <= 2 for one in load_demonstrations(str(few.path)))


def test_what_people_labelled_as_good_becomes_demonstrations(evaluated, tmp_path):
    with open_reader(evaluated) as reader:
        run = reader.get_run("latest").record.id
        good, bad = [one for one in reader.trajectories(run) if one.phase == "train" and one.success == 1][:2]
    lines = [{"id": label_id(run, one.phase, one.step, one.k), "label": one is good} for one in (good, bad)]
    file = evaluated / LABELS
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    try:
        done = write(tmp_path / "a.jsonl", SEARCH, runs_folder=evaluated, runs=("latest",), where="label >= 1")
    finally:
        file.unlink()
    assert done.num_kept == 1 and done.left_out["not label >= 1"] == 1 and done.left_out["it has no label"] > 0


def test_a_demonstration_of_a_run_has_the_tokens_that_were_sampled(evaluated, tmp_path):
    """The base writes calls as the chat format does, so that both are the same."""
    import asyncio

    from rlf.apps.demos.origins import candidate_of
    from rlf.apps.demos.steps import play_demonstration
    from rlf.chat.encoding import load_tokenizer
    from rlf.lineage.reader import Reader
    from rlf.rollout.rollout import ChatPolicy
    from rlf.runs.place import open_lineage
    from rlf.training.harness import build_chat

    done = write(tmp_path / "a.jsonl", SEARCH, runs_folder=evaluated, runs=("latest",))
    spec = check_spec(SEARCH, []).plan.spec
    chat = build_chat(spec, load_tokenizer(str(builtin_path("tiny"))))
    rows = [json.loads(line) for line in done.path.read_text().splitlines()]
    with open_lineage(evaluated) as store:
        reader = Reader(store)
        for row in rows:
            origin = row["origin"]
            sampled = reader.trajectory(origin["run"], k=origin["k"], step=origin["step"], phase=origin["phase"])
            played = asyncio.run(
                play_demonstration(
                    chat, spec.shown_tools, read_demonstration(row), max_total_tokens=320, handling=ChatPolicy()
                )
            )
            assert list(played.tokens) == list(sampled.scored.trajectory.tokens)
            assert list(played.action_mask) == list(sampled.scored.trajectory.action_mask)
            # A turn without calls that no world answers is a summary, which the conversation holds as what was said.
            noted = replace(sampled.scored.trajectory.turns[0], calls=(), text="Found it.<|im_end|>")
            turns = (noted, *sampled.scored.trajectory.turns)
            one = candidate_of(
                replace(sampled.scored, trajectory=replace(sampled.scored.trajectory, turns=turns)), origin, chat, 0
            )
            assert one.demonstration is not None and one.demonstration.turns[0].content == "Found it."


def test_a_demonstration_has_its_summaries_where_its_contexts_are_full():
    context = ["rollout.max_turns=12", "+rollout.context={limit: 110, keep_last: 0, when_full: summarize}"]
    checked = check_spec([ROOT / "specs" / "rooms.yaml"], context)
    task = next(iter(checked.inputs.train))
    plan = plan_vault(task.question.split()[1])
    turns = list[DemonstratedTurn]()
    for room, colour in enumerate(plan.order, start=1):
        text = plan.room_text(room) if room < len(plan.order) else plan.treasure
        call = ToolCall("open", {"vault": plan.name, "door": COLOURS[colour]})
        turns.append(DemonstratedTurn("", calls=(call,), results=(text,)))
    turns.append(DemonstratedTurn(plan.treasure))
    summed_up = list(turns)
    for at in (5, 3):  # each context is full after three rooms, or two and a summary
        summed_up.insert(at, DemonstratedTurn(turns[at - 1].results[0]))
    moved = [*turns[:2], DemonstratedTurn("Room 3"), *turns[2:]]
    right = read_demonstration(write_demonstration(Demonstration(task, tuple(summed_up))))
    others = [Demonstration(task, tuple(each)) for each in (turns, moved, turns[:3])]
    played = play_each(checked.plan.spec, [right, *others])
    assert played is not None
    good, *refused = played
    assert isinstance(good, Trajectory) and len(good.forks) == 2 and good.answer == plan.treasure
    sampled = [turn.text.removesuffix("<|im_end|>") for turn in good.turns if not turn.calls]
    assert sampled == [plan.room_text(3), plan.treasure, plan.treasure]
    assert [why.partition(": ")[2].partition(" is written")[0] for why in refused[:2]] == ["turn 4", "turn 3"]
    assert all("a summary stands where the context is full, and nowhere else" in why for why in refused[:2])
    # It ends with the result that fills the context: nothing is said after it.
    assert isinstance(refused[2], Trajectory) and len(refused[2].turns) == 3


def test_a_teacher_plays_the_training_tasks_and_the_same_command_continues(tmp_path, monkeypatch):
    from rlf.apps.demos.demos import Teacher

    monkeypatch.chdir(tmp_path)
    few = ["data.train.limit=6"]
    runs = tmp_path / "runs"
    teacher = Teacher(target="builtin:tiny", samples=3)
    done = write(tmp_path / "a.jsonl", SEARCH, few, runs_folder=runs, teacher=teacher)
    assert done.kept_by_origin == {"run": done.num_kept} and 0 < done.num_kept < 18
    assert sum(done.left_out.values()) + done.num_kept == 18
    asked = {}
    played = SimpleNamespace(rows=())
    monkeypatch.setattr(demos, "load_function", lambda name: lambda *_, **options: asked.update(options) or played)
    served = EndpointSpec(url="http://127.0.0.1:9/v1", model="m", api_key_env="KEY", timeout_s=7)
    with pytest.raises(RlfError, match="no conversation is left"):
        write(tmp_path / "b.jsonl", SEARCH, few, runs_folder=runs, teacher=Teacher(endpoint=served))
    assert {key: asked[key] for key in ("endpoint", "model", "api_key_env", "timeout_s")} == {
        "endpoint": served.url, "model": "m", "api_key_env": "KEY", "timeout_s": 7,
    }  # fmt: skip


def teach(out, url, runs_folder, where="reward >= 0", max_usd=None):
    from rlf.apps.demos.demos import Teacher

    few = ["data.train.limit=6", "rollout.max_concurrency=1"]
    teacher = Teacher(endpoint=EndpointSpec(url=url, model="m"), max_usd=max_usd)
    return write(out, SEARCH, few, runs_folder, teacher=teacher, where=where)


def answer_once(messages):
    return 200, a_choice(content="Orr")


def test_what_a_teacher_has_played_is_not_paid_for_again(tmp_path):
    with a_server(answer_once) as (url, asked):
        done = teach(tmp_path / "a.jsonl", url, tmp_path / "runs")
        assert (done.num_kept, len(asked)) == (6, 6)
        (tmp_path / "a.jsonl").unlink()  # stopped after the play, before the file
        assert teach(tmp_path / "a.jsonl", url, tmp_path / "runs") == done
        trace = rf"rlf trace \S+ --runs {tmp_path / 'runs'}`"
        # Chosen otherwise, of the same play.
        with pytest.raises(RlfError, match=rf"6: not success >= 1\). Look at what was played: `{trace}"):
            teach(tmp_path / "b.jsonl", url, tmp_path / "runs", where="success >= 1")
        assert len(asked) == 6


def test_a_teacher_that_was_killed_pays_for_what_was_not_over_alone(tmp_path):
    killed = []

    def answer(messages):
        if len(asked) == 4 and not killed:
            killed.append(process.pid)
            os.kill(process.pid, signal.SIGKILL)
        return answer_once(messages)

    with a_server(answer) as (url, asked):
        with Process(teach, tmp_path / "a.jsonl", url, tmp_path / "runs") as process:
            _, errors = process.communicate(240)
            assert process.returncode == -signal.SIGKILL, errors
        assert teach(tmp_path / "a.jsonl", url, tmp_path / "runs").num_kept == 6
    assert len(asked) == 6 + 1  # the fourth was asked for twice


def test_the_same_command_asks_a_teacher_again_for_what_broke_alone(tmp_path):
    def refuse_some(messages):
        refuses = len(whole) < 6 and len({str(body["messages"]) for body in asked}) > 4
        return (400, {}) if refuses else answer_once(messages)

    whole = []
    with a_server(refuse_some) as (url, asked):
        done = teach(tmp_path / "a.jsonl", url, tmp_path / "runs")
        assert (done.num_kept, done.left_out, len(asked)) == (4, {"it broke, or has no reward": 2}, 6)
        whole += asked
        done = teach(tmp_path / "a.jsonl", url, tmp_path / "runs")
        assert (done.num_kept, done.left_out, len(asked)) == (6, {}, 8)
        assert teach(tmp_path / "a.jsonl", url, tmp_path / "runs") == done and len(asked) == 8


def test_what_is_carried_over_of_a_teacher_outlives_a_kill_before_it_is_written(tmp_path, monkeypatch):
    with a_server(answer_once) as (url, asked):
        teach(tmp_path / "a.jsonl", url, tmp_path / "runs", max_usd=0.0025)
        with monkeypatch.context() as patched:
            patched.setattr(Spool, "add", Mock(side_effect=SystemExit))  # registered, and nothing carried over
            with pytest.raises(SystemExit):
                teach(tmp_path / "a.jsonl", url, tmp_path / "runs")
        assert teach(tmp_path / "a.jsonl", url, tmp_path / "runs").num_kept == 6 == len(asked)


def test_a_teacher_whose_budget_is_spent_goes_on_where_it_was_once_there_is_more(tmp_path):
    with a_server(answer_once) as (url, asked):
        done = teach(tmp_path / "a.jsonl", url, tmp_path / "runs", max_usd=0.0025)
        assert (done.num_kept, len(asked)) == (3, 3)
        assert teach(tmp_path / "a.jsonl", url, tmp_path / "runs", max_usd=0.0025) == done and len(asked) == 3
        assert teach(tmp_path / "a.jsonl", url, tmp_path / "runs").num_kept == 6 == len(asked)


def test_what_a_resume_has_played_again_is_counted_once(evaluated):
    with open_reader(evaluated) as reader:
        (run,) = reader.run_lines()
        rows = reader.trajectories(run.id)
        left = [replace(rows[0], phase=INTERRUPTED), replace(rows[1], phase=INTERRUPTED, trajectory_id="alone")]
        stopped = SimpleNamespace(
            get_run=reader.get_run, whole=lambda *_: None, trajectories=lambda id_: [*left, *rows]
        )
        assert len(list(from_run(stopped, run.id, {}))) == 1 + len(rows)


CALL = {"name": "search", "arguments": {"query": "Orr"}}
TURN = f"<think>\nWhere?\n</think>\n\nI look.\n<tool_call>\n{json.dumps(CALL)}\n</tool_call>"
TOOLS = [{"type": "function", "function": {"name": "search", "description": "", "parameters": {"type": "object"}}}]
OPENAI = [
    {"role": "user", "content": "Which town?"},
    {
        "role": "assistant",
        "content": "I look.",
        "reasoning_content": "Where?",
        "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "search", "arguments": '{"query": "Orr"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "1", "content": "Vell lies on the Orr."},
    {"role": "assistant", "content": "Vell"},
]
FORMS = {
    "openai": {"messages": OPENAI, "tools": TOOLS},
    "openai as json text": {"messages": json.dumps(OPENAI), "tools": json.dumps(TOOLS)},
    "trl": {"prompt": OPENAI[:1], "completion": OPENAI[1:], "tools": TOOLS},
    "hermes": {
        "conversations": [
            {"from": "system", "value": f"You call functions. <tools>\n{json.dumps(TOOLS)}\n</tools>"},
            {"from": "human", "value": "Which town?"},
            {"from": "gpt", "value": TURN},
            {"from": "tool", "value": "<tool_response>\nVell lies on the Orr.\n</tool_response>"},
            {"from": "gpt", "value": "Vell"},
        ]
    },
    "sharegpt": {
        "conversations": [
            {"from": "human", "value": "Which town?"},
            {"from": "function_call", "value": json.dumps(CALL)},
            {"from": "observation", "value": "Vell lies on the Orr."},
            {"from": "gpt", "value": "Vell"},
        ],
        "tools": json.dumps(TOOLS),
    },
    "verl": {
        "messages": [
            {"role": "user", "content": "Which town?"},
            {"role": "assistant", "content": TURN},
            {"role": "user", "content": "<tool_response>\nVell lies on the Orr.\n</tool_response>"},
            {"role": "assistant", "content": "Vell"},
        ],
        "tools": TOOLS,
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_conversations_of_others_are_read_with_their_calls_thinking_and_tools(form):
    one = read_demonstration(convert_row(FORMS[form]))
    assert one.task.question == "Which town?" and [m.role for m in one.task.messages] == ["user"]
    assert [tool.name for tool in one.tools] == ["search"]
    (turn, answer) = one.turns
    assert [(call.name, dict(call.arguments)) for call in turn.calls] == [("search", {"query": "Orr"})]
    assert turn.results == ("Vell lies on the Orr.",) and answer.content == "Vell"
    if form != "sharegpt":  # which has no place for either
        assert (turn.content, turn.thinking) == ("I look.", "Where?")
    assert read_demonstration(write_demonstration(one)) == read_demonstration(write_demonstration(one))


def test_a_file_says_line_by_line_why_it_is_not_read(tmp_path):
    (tmp_path / "x.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in [{"text": "a"}, {"messages": OPENAI[:2] + OPENAI[3:]}, FORMS["verl"]])
    )
    done = write(tmp_path / "a.jsonl", SEARCH, files=(tmp_path / "x.jsonl",))
    assert done.num_kept == 1
    assert [why for why in done.left_out if "none of messages" in why]
    assert [why for why in done.left_out if "1 calls have 0 results" in why]


def test_results_are_matched_to_calls_by_their_ids():
    calls = [{"id": name, "function": {"name": name, "arguments": {}}} for name in "ab"]
    results = [{"role": "tool", "tool_call_id": name, "content": name.upper()} for name in "ba"]
    row = {"messages": [OPENAI[0], {"role": "assistant", "tool_calls": calls}, *results, OPENAI[3]]}
    assert read_demonstration(row).turns[0].results == ("A", "B")


def test_examples_in_a_prompt_are_not_imitated():
    examples = [{"role": "user", "content": "1?"}, {"role": "assistant", "content": "one"}]
    one = read_demonstration({"id": "x", "prompt": [*examples, OPENAI[0]], "completion": [OPENAI[3]]})
    assert len(one.task.messages) == 3 and len(one.turns) == 1
    assert read_demonstration(write_demonstration(one)) == one


@pytest.mark.parametrize("text", ["success", "success = 1", "import os", "success == yes", ""])
def test_a_condition_that_is_none_is_refused(text):
    with pytest.raises(RlfError, match="--where"):
        parse_conditions(text)


def test_an_unknown_name_in_a_condition_is_named_with_those_there_are(tmp_path):
    with pytest.raises(RlfError, match=r"nothing has 'succes' \(known: calls, goal, reward, step, success"):
        write(tmp_path / "a.jsonl", overrides=["data.train.limit=2"], gold=True, where="succes == 1")


def test_a_faulty_row_of_a_file_to_imitate_is_named_with_its_line(tmp_path):
    (tmp_path / "x.jsonl").write_text(json.dumps(FORMS["openai"]) + "\n" + json.dumps({"messages": []}) + "\n")
    with pytest.raises(SpecError, match=r"x\.jsonl:2:1"):
        load_demonstrations(str(tmp_path / "x.jsonl"))
