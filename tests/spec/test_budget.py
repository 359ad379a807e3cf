"""What a trajectory begins with is counted by the model's own tokenizer, where it is on this machine."""

import json
import shutil

from rlf.builtin.names import builtin_path
from rlf.data import load_tasks
from rlf.runs.plans import check_spec
from rlf.spec import check_inputs, load_spec
from rlf.spec.budget import MAX_CHARACTERS, PromptSizes, fits_no_budget, measure_prompts
from rlf.spec.model_files import read_context
from rlf.spec.prompt_sizes import _sample_tasks


def measured(run, *overrides):
    spec = load_spec([run], overrides).spec
    return measure_prompts(spec, load_tasks(**spec.data.train.model_dump(), declared=["look"]))


def test_the_least_budget_is_the_shortest_prompt_and_the_shortest_turn(project):
    sizes = measured(project())
    assert check_inputs(load_spec([project()], [f"rollout.max_total_tokens={sizes.least}"])) == []
    (fault,) = check_inputs(load_spec([project()], [f"rollout.max_total_tokens={sizes.least - 1}"]))
    assert f"Write at least {sizes.least}" in fault.message


def test_the_share_of_prompts_without_room_for_a_turn_is_counted():
    # 10 + 3 and 11 + 3 fit 14 tokens, 12 + 3 and 20 + 3 do not: 2 of 4
    assert PromptSizes((10, 11, 12, 20), 10, 3, "a turn").share_cut(14) == 0.5


def test_a_prompt_that_no_budget_holds_is_a_fault_and_is_not_counted_in_tokens(project, monkeypatch):
    row = {"question": "x" * (MAX_CHARACTERS + 1), "answer": "a"}
    run = project({"rows.jsonl": f"{json.dumps(row)}\n"})
    monkeypatch.setattr("rlf.spec.budget.measure_prompts", None)  # which would take a second and 200 MB
    (fault,) = check_inputs(load_spec([run], ["data.train.path=./rows.jsonl"]))
    assert "has 1,000,001 characters; rollout.max_total_tokens is" in fault.message
    assert not fits_no_budget(MAX_CHARACTERS + 1, 100_000)


def test_fewer_prompts_are_counted_where_they_are_long(project):
    for size, num_counted in ((10, 200), (100_000, 25)):
        rows = [{"question": "a" * size, "answer": "a"}] * 200
        run = project({"rows.jsonl": "".join(f"{json.dumps(row)}\n" for row in rows)})
        spread, shortest, _ = _sample_tasks(
            load_tasks(
                **load_spec([run], ["data.train.path=./rows.jsonl"]).spec.data.train.model_dump(), declared=["look"]
            )
        )
        assert (len(spread), len(shortest)) == (num_counted, 8)


def test_a_model_that_was_not_fetched_is_not_measured_and_one_in_the_hub_cache_is(project, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    run = project()
    assert measured(run, "model.path=some/model") is None
    folder = tmp_path / "hub/models--some--model"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs/main").write_text("abc\n")
    shutil.copytree(builtin_path("tiny"), folder / "snapshots/abc")
    assert measured(run, "model.path=some/model") == measured(run)


def test_tools_that_the_template_does_not_tell_are_a_fault(project):
    template = "<tool_call> arguments{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}"
    template += "{% if add_generation_prompt %}go{% endif %}"
    run = project()
    shutil.copytree(builtin_path("tiny"), "model")
    (run.parent.parent / "model/chat_template.jinja").write_text(template)
    (fault,) = check_inputs(load_spec([run], ["model.path=./model"]))
    assert "does not show the model the tools look" in fault.message


def test_only_the_tools_of_a_row_are_counted(project):
    rows = '{"question": "q", "answer": "a", "t": []}\n'
    run = project({"rows.jsonl": rows})
    overrides = ["data.train.path=./rows.jsonl", "rollout.max_total_tokens=100"]
    with_tools = measured(run, *overrides)
    without = measured(run, *overrides, "data.train.tools=t")
    assert without.shortest < with_tools.shortest


def test_prompts_that_leave_no_room_are_warned_of(project):
    long = "word " * 100
    rows = "".join(f'{{"id": "{i}", "question": "{q}", "answer": "a"}}\n' for i, q in enumerate(["q", "r", "s", long]))
    run = project({"rows.jsonl": rows})
    (warning,) = [w for w in check_spec([run], ["data.train.path=./rows.jsonl"]).warnings if "room" in w.message]
    assert str(warning).startswith(
        "specs/run.yaml:11:21 rollout.max_total_tokens: got 100; 25 % of the training prompts"
    )
    assert check_spec([run], ["data.train.path=./rows.jsonl", "data.train.limit=3"]).warnings == tuple(
        w for w in check_spec([run], ["data.train.path=./rows.jsonl"]).warnings if "room" not in w.message
    )


def test_a_format_whose_calls_need_an_argument_is_measured_with_one(project):
    sizes = measured(project(), "chat.format=search_r1")
    assert "a call of 'look'" in sizes.turn_words
    assert measured(project(), "tools=[]").turn_words == "an answer of one token with its end"


def warned_of(key, run, *overrides):
    return [str(warning) for warning in check_spec([run], overrides).warnings if f" rollout.{key}: " in str(warning)]


def test_answers_that_turns_cut_off_are_counted_and_warned_of(project):
    rows = [{"question": "q", "answer": "w " * number} for number in range(1, 11)]
    run = project({"rows.jsonl": "".join(json.dumps(row) + "\n" for row in rows)})
    data = ("data.train.path=./rows.jsonl", "rollout.max_total_tokens=1000")
    answers = sorted(measured(run, *data).answers)
    assert len(answers) == 10 and answers == sorted(set(answers))
    (warning,) = warned_of("max_new_tokens", run, *data, f"rollout.max_new_tokens={answers[2]}")
    figures = f"7 of 10 sampled answers need more (median {answers[5]}, longest {answers[-1]})"
    assert figures in warning and f"Write at least {answers[-1]}, or null." in warning
    assert warned_of("max_new_tokens", run, *data, f"rollout.max_new_tokens={answers[-1] + 50}") == []


def test_a_turn_that_holds_no_call_is_warned_of_with_the_size_of_the_call(project):
    sizes = measured(project())
    (warning,) = warned_of("max_new_tokens", project(), f"rollout.max_new_tokens={sizes.turn - 1}")
    assert f"a call of 'look', takes {sizes.turn} tokens" in warning
    assert warned_of("max_new_tokens", project(), f"rollout.max_new_tokens={sizes.turn}") == []


def test_answers_that_are_no_text_or_that_nothing_reads_are_not_counted(project):
    run = project({"rows.jsonl": '{"question": "q", "answer": {"rows": [1]}}\n'})
    assert measured(run, "data.train.path=./rows.jsonl").answers == ()
    assert len(measured(run).answers) == 64
    assert measured(run, "rewards=[{kind: rule, name: form, rule: tool_format}]").answers == ()


def test_trajectories_longer_than_the_models_positions_are_a_fault(project):
    (fault,) = check_inputs(load_spec([project()], ["rollout.max_total_tokens=1025"]))
    assert "got 1025; the model takes at most 1024 tokens (max_position_embeddings). Write at most 1024" in str(fault)
    assert check_inputs(load_spec([project()], ["rollout.max_total_tokens=1024"])) == []


def test_stretched_positions_count_and_so_do_those_under_other_names(tmp_path):
    for config, positions in (
        ({"max_position_embeddings": 100}, 100),
        ({"n_positions": 50}, 50),
        ({"text_config": {"max_position_embeddings": 70}}, 70),
        ({"max_position_embeddings": 100, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}, 200),
        (
            {
                "max_position_embeddings": 160,
                "rope_parameters": {"factor": 4.0, "original_max_position_embeddings": 40},
            },
            160,
        ),
        ({}, None),
    ):
        (tmp_path / "config.json").write_text(json.dumps(config))
        assert read_context(tmp_path) == positions


def test_a_module_that_the_model_lacks_gets_no_adapter(project):
    lora = "+model.lora={target_modules: [q_proj, v_prj]}"
    (fault,) = check_inputs(load_spec([project()], [lora]))
    assert "the model has no module 'v_prj'; did you mean 'v_proj'?" in str(fault)
