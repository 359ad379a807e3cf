"""Several datasets as one: by weights, each in its order, no row twice, with what each row came from."""

from __future__ import annotations

import json

import pytest

from rlf.core import SpecError
from rlf.data import load_tasks, mixture_files
from rlf.data.mixture import _deal


def write(folder, mixture, **datasets):
    for name, rows in datasets.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = folder / "both.mix.yaml"
    path.write_text(mixture)
    return path


def test_rows_come_by_weight_under_common_columns_with_ids_of_their_dataset(tmp_path):
    maths = [{"prompt": f"m{number}", "answer": "1", "id": number} for number in range(9)]
    other = [{"asked": f"o{number}", "gold": {"text": "2"}} for number in range(9)]
    columns = "{prompt: asked, answer: gold.text, id: asked}"
    mixture = f"- {{path: maths.jsonl, weight: 2}}\n- {{path: other.jsonl, columns: {columns}}}"
    tasks = load_tasks(str(write(tmp_path, mixture, maths=maths, other=other)), kind="dataset")
    assert [task.id for task in tasks[:6]] == ["maths/0", "other/o0", "maths/1", "maths/2", "other/o1", "maths/3"]
    assert [task.messages[-1].content for task in tasks[:3]] == ["m0", "o0", "m1"]
    assert [task.answer for task in tasks[:2]] == ["1", "2"]
    assert {task.kind for task in tasks} == {"maths", "other"}
    assert len(tasks) == 14  # the tenth row of `maths` would be next: all nine, and five of `other`
    assert mixture_files(str(tmp_path / "both.mix.yaml")) == [str(tmp_path / f"{n}.jsonl") for n in ("maths", "other")]


def test_shares_are_never_off_by_more_than_one_row():
    shares, dealt = (0.5, 0.3, 0.2), [0, 0, 0]
    for number, (chosen, index) in enumerate(_deal(shares, [500, 300, 200]), 1):
        assert index == dealt[chosen]
        dealt[chosen] += 1
        assert all(abs(share * number - count) <= 1 for share, count in zip(shares, dealt, strict=True))
    assert dealt == [500, 300, 200]


@pytest.mark.parametrize(
    ("mixture", "words"),
    [
        ("- {path: a.jsonl, wait: 2}", "[0].wait: Extra inputs"),
        ("- {path: a.jsonl, weight: 0}", "[0].weight"),
        ("[]", "lists no dataset"),
        ("- {path: gone.jsonl}", "no such file"),
        ("{", "not YAML"),
    ],
)
def test_what_is_wrong_with_a_mixture_is_a_fault_with_its_place(tmp_path, mixture, words):
    with pytest.raises(SpecError) as error:
        load_tasks(str(write(tmp_path, mixture, a=[{"prompt": "p", "answer": "1"}])))
    assert words in str(error.value)
