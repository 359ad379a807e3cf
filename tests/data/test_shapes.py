"""Rows as other projects write them, templates, examples and tools of rows."""

import json

import pyarrow
import pyarrow.parquet
import pytest

from rlf.core import SpecError
from rlf.data import dataset_hash, load_tasks
from rlf.types import Message

SEARCH_R1 = {
    "data_source": "nq",
    "prompt": [{"role": "user", "content": "who wrote it?"}],
    "ability": "fact-reasoning",
    "reward_model": {"style": "rule", "ground_truth": {"target": ["Ann", "Anna"]}},
    "extra_info": {"split": "train", "index": 7},
}
FTRL = {
    "messages": [{"role": "system", "content": "Use tools."}, {"role": "user", "content": "how far?"}],
    "tools": json.dumps([{"type": "function", "function": {"name": name}} for name in ("look", "measure")]),
    "codes": json.dumps({"measure": "def measure(): ..."}),
    "unsolved_set": json.dumps({"measure": ["3"]}),
    "solve_rate": 0.5,
    "data_source": "ftrl",
    "split": "train",
    "answer": "3 km",
}


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def save(name, *rows):
        text = rows[0] if isinstance(rows[0], str) else "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return save


def load_faulty(path, **options):
    with pytest.raises(SpecError) as caught:
        load_tasks(path, **options)
    return str(caught.value)


def contents(tasks):
    return [[(message.role, message.content) for message in task.messages] for task in tasks]


def test_rows_of_search_r1_and_verl_load_without_conversion(tmp_path):
    path = tmp_path / "train.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([SEARCH_R1]), path)
    (task,) = load_tasks(
        str(path), answer="reward_model.ground_truth.target", kind="data_source", id="extra_info.index"
    )
    assert (task.id, task.answer, task.kind) == ("7", ["Ann", "Anna"], "nq")
    assert task.messages == (Message("user", "who wrote it?"),)


def test_rows_of_ftrl_load_without_conversion(write):
    row = FTRL | {"id": 1}
    columns = {"prompt": "messages", "tools": "tools", "kind": "data_source", "declared": ["look", "measure", "add"]}
    (task,) = load_tasks(write("a.jsonl", row), **columns)
    assert (task.tools, task.answer, len(task.messages)) == (("look", "measure"), "3 km", 2)
    (gold,) = load_tasks(write("a.jsonl", row), prompt="messages", answer="unsolved_set.measure")
    assert gold.answer == ["3"]


def test_rows_that_describe_tools_that_nobody_declares_are_reported_with_their_number(write):
    path = write("a.jsonl", FTRL | {"id": 1}, FTRL | {"id": 2}, {"messages": FTRL["messages"], "answer": "1", "id": 3})
    words = load_faulty(path, prompt="messages", tools="tools", declared=["look"])
    assert "a.jsonl tools: 3 rows describe tools that the spec does not declare: 'measure' in 2. Declare them" in words


def test_messages_may_be_json_as_text_and_any_other_text_is_a_question(write):
    path = write("a.jsonl", {"prompt": json.dumps(FTRL["messages"]), "answer": 1}, {"prompt": "[1, 2]", "answer": 1})
    first, second = load_tasks(path)
    assert [message.role for message in first.messages] == ["system", "user"]
    assert second.messages == (Message("user", "[1, 2]"),)


def test_a_dotted_name_goes_into_mappings_lists_and_json_text(write):
    path = write("a.jsonl", {"q": {"text": ["x", "y"]}, "a": '{"b": [{"c": 5}]}', "a.d": 6})
    assert load_tasks(path, prompt="q.text.1", answer="a.b.0.c")[0].answer == 5
    assert load_tasks(path, prompt="q.text.1", answer="a.d")[0].answer == 6


def test_a_dotted_name_that_leads_nowhere_is_reported_with_what_is_there(write):
    assert load_faulty(
        write("a.jsonl", SEARCH_R1), answer="reward_model.ground_truth.targets", id="extra_inf.index"
    ) == (
        "a.jsonl answer: no column 'reward_model.ground_truth.targets'; did you mean 'target'? "
        "(reward_model.ground_truth has: target). Name the column with the answer, or write `answer: null` when no "
        "reward term needs it.\n"
        "a.jsonl id: no column 'extra_inf.index'; did you mean 'extra_info'? (columns: data_source, prompt, ability, "
        "reward_model, extra_info). Name the column with the id."
    )


def test_text_that_is_no_json_is_reported_with_its_line(write):
    path = write("a.jsonl", {"prompt": "p", "a": '{"b": 1}'}, {"prompt": "p", "a": "{"})
    said = load_faulty(path, answer="a.b")
    assert said == "a.jsonl:2:1 a.b: 'a' is text and not JSON, so it has no keys."


def test_an_id_column_names_every_row(write):
    path = write("a.jsonl", {"prompt": "p", "answer": 1, "n": 1}, {"prompt": "p", "answer": 1})
    assert load_faulty(path, id="n") == (
        "a.jsonl:2:1 n: the row has no id; every row needs a unique one. Fill it in, or name another column."
    )


def test_a_template_makes_the_question_and_the_system_prompt(write):
    path = write("a.jsonl", {"q": "one?", "facts": ["a", "b"], "who": "Ann", "odd name": 3, "answer": 1})
    template = "{% for fact in facts %}\n- {{ fact }}\n{% endfor %}\n{{ q }} {{ row['odd name'] }}"
    (task,) = load_tasks(path, template=template, system="You are {{ who }}.")
    assert contents([task]) == [[("system", "You are Ann."), ("user", "- a\n- b\none? 3")]]


def test_a_template_may_be_in_a_file(write):
    template = write("ask.jinja", "Question: {{ q }}\n")
    (task,) = load_tasks(write("a.jsonl", {"q": "one?", "answer": 1}), template=template)
    assert task.messages[0].content == "Question: one?"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (
            "{{ qq }}",
            "a.jsonl template: the template names 'qq'; did you mean 'q'? (columns: q, answer). Name a column.",
        ),
        (
            "a\n{{ q",
            "a.jsonl template: not a Jinja2 template: line 2: unexpected end of template, expected 'end of print "
            "statement'. Correct that line.",
        ),
        (
            "{{ q.x }}",
            "a.jsonl:1:1 template: the template cannot be filled in: 'str object' has no attribute 'x'. "
            "Correct the row or the template.",
        ),
        (
            "{{ q.__class__ }}",
            "a.jsonl:1:1 template: the template cannot be filled in: access to attribute '__class__' of 'str' object "
            "is unsafe. Correct the row or the template.",
        ),
        ("{{ '' }}", "a.jsonl:1:1 template: got the content ''; expected text. Write what the user says."),
        ("no.jinja", "a.jsonl template: no.jinja: no such file. Check the path."),
    ],
)
def test_a_template_that_cannot_be_used_is_reported(write, template, message):
    assert load_faulty(write("a.jsonl", {"q": "one?", "answer": 1}), template=template) == message


def test_a_template_changes_nothing_of_the_row(write):
    path = write("a.jsonl", {"q": "one?", "facts": ["a"], "answer": 1})
    assert "cannot be filled in" in load_faulty(path, template="{{ facts.append('b') }}{{ q }}")


EXAMPLES = [{"prompt": "2 + 2?", "answer": "4"}, {"prompt": "1 + 1?", "answer": "2"}]
SHOWN = [("user", "2 + 2?"), ("assistant", "4"), ("user", "1 + 1?"), ("assistant", "2")]


def test_examples_come_between_the_system_prompt_and_the_question(write):
    path = write("a.jsonl", {"prompt": "3 + 3?", "answer": "6"})
    asked = [("system", "Add."), *SHOWN, ("user", "3 + 3?")]
    assert contents(load_tasks(path, system="Add.", examples=EXAMPLES)) == [asked]
    assert contents(load_tasks(path, system="Add.", examples=write("few.jsonl", *EXAMPLES))) == [asked]


def test_examples_without_a_prompt_are_asked_as_the_template_asks(write):
    path = write("a.jsonl", {"q": "3?", "answer": "6"})
    tasks = load_tasks(path, template="Q: {{ q }}", examples=[{"q": "2?", "answer": "4"}])
    assert contents(tasks) == [[("user", "Q: 2?"), ("assistant", "4"), ("user", "Q: 3?")]]


def test_an_example_without_an_answer_is_reported(write):
    path = write("a.jsonl", {"prompt": "3 + 3?", "answer": "6"})
    words = "the answer is None; examples are text. Write {prompt: ..., answer: ...}."
    assert load_faulty(path, examples=[EXAMPLES[0], {"prompt": "p"}]) == f"a.jsonl examples: example 2: {words}"
    few = write("few.jsonl", EXAMPLES[0], {"prompt": "p"})
    assert load_faulty(path, examples=few) == f"few.jsonl:2:1 examples: example 2: {words}"


def test_a_row_names_the_tools_that_it_may_use(write):
    values = [["look"], "look", '["add", "look"]', None, []]
    rows = [{"prompt": "p", "answer": 1, "tools": value} for value in values]
    tasks = load_tasks(write("a.jsonl", *rows), tools="tools", declared=["look", "add"])
    assert [task.tools for task in tasks] == [("look",), ("look",), ("add", "look"), None, ()]
    assert [task.may_use("add") for task in tasks] == [False, False, True, True, False]
    assert dataset_hash(tasks) != dataset_hash(load_tasks(write("a.jsonl", *rows)))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (["lok"], "no tool 'lok'; did you mean 'look'? (declared: look). Name one of these."),
        (3, "got 3; expected a list of tool names. Write e.g. [search, calculator]."),
        ([3], "got 3; expected the name of a tool. Write a list of names."),
    ],
)
def test_tools_of_a_row_that_are_none_are_reported_with_the_line(write, value, message):
    path = write("a.jsonl", {"prompt": "p", "answer": 1, "tools": value})
    assert load_faulty(path, tools="tools", declared=["look"]) == f"a.jsonl:1:1 tools: {message}"
