"""What a trajectory begins with is counted by the model's own tokenizer, where it is on this machine."""

import shutil

from rlf.builtin.names import builtin_path
from rlf.data import load_tasks
from rlf.spec import check_inputs, load_spec
from rlf.spec.budget import PromptSizes, measure_prompts


def measured(run, *overrides):
    spec = load_spec([run], overrides).spec
    return measure_prompts(spec, load_tasks(**spec.data.train.model_dump()))


def test_the_least_budget_is_the_shortest_prompt_and_the_shortest_turn(project):
    sizes = measured(project())
    assert check_inputs(load_spec([project()], [f"rollout.max_total_tokens={sizes.least}"])) == []
    (fault,) = check_inputs(load_spec([project()], [f"rollout.max_total_tokens={sizes.least - 1}"]))
    assert f"Write at least {sizes.least}" in fault.message


def test_the_share_of_prompts_without_room_for_a_turn_is_counted():
    # 10 + 3 and 11 + 3 fit 14 tokens, 12 + 3 and 20 + 3 do not: 2 of 4
    assert PromptSizes((10, 11, 12, 20), 10, 3, "a turn").share_cut(14) == 0.5


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
    assert "does not tell the model about the tools look" in fault.message
