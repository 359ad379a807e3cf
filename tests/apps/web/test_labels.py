"""Labels of people: one file, as the calibration of judges reads it."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from rlf.rewards.labels import read_labelled_lines

from ...reports.synthetic import run_record

RUN = f"/runs/{run_record().id}"
GOOD, BROKEN = f"{RUN}/t/train/1/0", f"{RUN}/t/train/1/1"


@pytest.fixture
def folder(runs_folder, tmp_path):
    return shutil.copytree(runs_folder, tmp_path / "runs")


@pytest.fixture
def client(clients, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("OTHER_API_KEY", "a-very-secret-value")
    return clients(runs_folder=folder, project=tmp_path)


def _label(client, place: str, **said) -> int:
    return client.post(f"/api/v1{place}/label", json=said).status_code


def test_a_label_is_a_line_that_judges_are_compared_with_and_replaces_the_one_before(client, folder):
    file = folder / "labels.jsonl"
    file.write_text('{"question": "by hand", "answer": "x", "label": 90}\n')
    assert _label(client, GOOD, label=False, kind="guessed") == 200
    assert _label(client, GOOD, label=True, comment="<b>found</b> with a-very-secret-value") == 200
    assert _label(client, BROKEN, label=0.25) == 200
    by_hand, good, broken = read_labelled_lines(file)
    assert by_hand.label == 90 and good.label is True and broken.label == 0.25
    assert good.answer == good.gold == "Fenpus" and good.question == "What is the employer of Bitbal?"
    played = good.trajectory()
    assert [record.call.name for record in played.calls] == ["search"] and played.calls[0].result.text
    assert broken.turns[0].failures == ("bad_json",) and broken.stop == "infra_failure"
    assert "a-very-secret-value" not in file.read_text()
    shown = client.get("/labels").text
    assert "&lt;b&gt;found&lt;/b&gt;" in shown and "--labels" in shown and "guessed" not in shown
    assert _label(client, GOOD) == 200
    assert [line.label for line in read_labelled_lines(file)] == [90, 0.25]
    assert [one["label"] for one in client.get("/api/v1/labels").json()] == [0.25]


@pytest.mark.parametrize("label", ["good", [1], {"a": 1}])
def test_what_is_no_label_is_refused_and_nothing_is_written(client, folder, label):
    assert _label(client, GOOD, label=label) == 422
    assert not (folder / "labels.jsonl").exists()


def test_a_file_with_a_wrong_line_is_named_and_kept(client, folder):
    (folder / "labels.jsonl").write_text('{"label": "perhaps"}\n')
    answer = client.post(f"/api/v1{GOOD}/label", json={"label": True})
    assert answer.status_code == 422 and "labels.jsonl" in json.dumps(answer.json())
    assert (folder / "labels.jsonl").read_text() == '{"label": "perhaps"}\n'


def test_a_queue_leads_through_a_list_to_what_nobody_has_labelled(client):
    places = []
    for _ in range(9):
        answer = client.get(f"{RUN}/queue?phase=train", follow_redirects=False)
        assert answer.status_code == 303
        found = re.search(r"/t/(train/\d/\d)\?phase=train&queue=1", answer.headers["location"])
        if found is None:
            break
        places.append(found[1])
        page = client.get(answer.headers["location"]).text
        assert f'data-next="{RUN}/queue?phase=train' in page
        _label(client, f"{RUN}/t/{found[1]}", label=True)
    assert places == ["train/1/0", "train/1/1", "train/2/0", "train/2/1"]
    assert answer.headers["location"].startswith("/labels")
    assert client.get(f"{RUN}/t?phase=train").text.count('class="tag">good<') == 4


def test_a_page_that_is_read_only_shows_labels_and_takes_none(clients, client, folder):
    _label(client, GOOD, label=True, comment="as I saw it")
    reader = clients(runs_folder=folder, read_only=True)
    assert reader.post(f"/api/v1{GOOD}/label", json={"label": False}).status_code == 404
    page = reader.get(GOOD).text
    assert "as I saw it" in page and "data-label" not in page and "Label these" not in reader.get(f"{RUN}/t").text
