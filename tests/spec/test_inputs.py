"""What a spec names is looked at: model folder, chat template, rows of data."""

import json

import pytest

from rlf.builtin.names import builtin_path
from rlf.chat import FORMATS
from rlf.plan.checks import find_faults
from rlf.spec import check_inputs, load_spec

HERMES = (builtin_path("tiny") / "chat_template.jinja").read_text(encoding="utf-8")
KNOWN = ", ".join(FORMATS.names())


@pytest.fixture
def list_faults(project):
    def check(*overrides, template=HERMES, config=None, changes=None):
        config = json.dumps({"chat_template": template}) if config is None else config
        folder = {"model/config.json": "{}", "model/tokenizer_config.json": config}
        run = project({**folder, **(changes or {})})
        return [str(fault) for fault in check_inputs(load_spec([run], ["model.path=./model", *overrides]))]

    return check


def test_a_model_whose_template_is_known_has_no_fault(list_faults):
    assert list_faults() == [] and list_faults("chat.format=hermes") == []


def test_the_template_may_be_a_file_or_one_of_several(list_faults):
    assert list_faults(config="{}", changes={"model/chat_template.jinja": HERMES}) == []
    assert list_faults(template=[{"name": "default", "template": "x"}, {"name": "tool_use", "template": HERMES}]) == []


def test_a_template_of_no_known_format_must_be_named(list_faults):
    assert list_faults(template="plain") == [
        "specs/run.yaml:1:1 chat.format: got auto, but the model's chat template is of no known chat format; "
        f"expected one of {KNOWN}. Name the format."
    ]


def test_a_named_format_that_the_template_contradicts_is_reported(list_faults):
    assert list_faults("chat.format=hermes", template="plain") == [
        "override chat.format: got 'hermes', but the model's chat template is not of that format. "
        f"Use a model of that format (known: {KNOWN})."
    ]


def test_a_model_without_a_template_is_reported(list_faults):
    assert list_faults(config="{}") == [
        "override model.path: model: has no chat template. "
        "Use an instruction-tuned model, or put a chat_template.jinja into the folder."
    ]


def test_a_tokenizer_config_that_is_no_json_is_reported(list_faults):
    (line,) = list_faults(config="{")
    assert line.startswith("override model.path: model: tokenizer_config.json is not JSON: ")


def test_files_of_a_model_that_hold_no_object_are_reported(list_faults):
    changes = {"model/config.json": "[]", "model/generation_config.json": ""}
    assert list_faults(changes=changes) == [
        "override model.path: model: config.json holds no JSON object. Fetch the model's files again.",
        "override model.path: model: generation_config.json is not JSON: Expecting value: line 1 column 1 (char 0).",
    ]


def test_faults_of_rows_are_at_the_rows_and_of_all_inputs_at_once(list_faults):
    rows = '{"question": "q", "answer": "a"}\n{"question": "q", "answer": null}\n'
    lines = list_faults("data.train.path=./rows.jsonl", config="{}", changes={"rows.jsonl": rows})
    assert lines[0].startswith("override model.path: ")
    assert lines[1:] == [
        "rows.jsonl:2:1 answer: the row has no answer; every row needs one. Fill it in or drop the row."
    ]


WORLD = """class World:
    def reset(self):
        return "Go."

    def go(self) -> str:
        "Goes on."
        return "on"

    def score(self):
        SCORE
"""
SCORES = [
    ('return {"goal": 1.0}', "(known: goal)"),
    ('return {"goal": 1.0} if self else {}', None),
    ('if self:\n            return {"goal": 1}\n        return {"near": 0.5}', "(known: goal, near)"),
    ("return float(self.go() == 'on')", "(known: score)"),
    ("made = dict([('goal', 1.0)])\n        return made", None),
    ("pass\n    reward = 0.5", None),
    ("raise OSError", None),
    ("return {name: 1.0 for name in ('goal', 'gaol')}", None),
]


@pytest.mark.parametrize(("score", "known"), SCORES)
def test_a_score_that_the_worlds_source_does_not_give_is_a_fault_and_says_which_there_are(project, score, known):
    rewards = "rewards=[{kind: env, name: goal, score: gaol}]"
    run = project({"world.py": WORLD.replace("SCORE", score)})
    loaded = load_spec([run], ["+env={kind: python, callable: world.py:World}", rewards])
    found = [str(fault) for fault in (*find_faults(loaded), *check_inputs(loaded))]
    assert len(found) == (known is not None), found
    assert known is None or ("the world gives no score 'gaol'" in found[0] and known in found[0])
