"""Trajectories as pages and as JSON."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlf.reports.pages.render import Part, side

from ...reports.synthetic import run_record

RUN = f"/api/v1/runs/{run_record().id}"


@pytest.fixture
def listed(client):
    """Gives the places of a list, page by page."""

    def read(**asked):
        places, after = [], ""
        while after is not None:
            page = client.get(f"{RUN}/t", params={"limit": 1, "after": after, **asked}).json()
            places += [(s["phase"], s["step"], s["k"]) for row in page["rows"] for s in [row["summary"]]]
            after = page["next"]
        return places

    return read


@pytest.mark.parametrize("sort", ["place", "reward", "advantage"])
def test_pages_hold_every_trajectory_once(client, listed, sort):
    whole = client.get(f"{RUN}/t", params={"limit": 500, "sort": sort}).json()
    assert whole["next"] is None
    places = [(s["phase"], s["step"], s["k"]) for row in whole["rows"] for s in [row["summary"]]]
    assert listed(sort=sort) == places and len(set(places)) == len(places) > 1


def test_the_worst_come_first_by_reward(client):
    rows = client.get(f"{RUN}/t", params={"sort": "reward", "limit": 500}).json()["rows"]
    rewards = [row["summary"]["reward"] for row in rows]
    assert rewards == sorted(rewards) and None not in rewards


def test_filters_are_those_of_the_fields(client, listed):
    assert {place[0] for place in listed(phase="train")} == {"train"}
    failed = listed(tool="search", outcome="failed")
    assert failed and set(failed) < set(listed(tool="search"))
    assert client.get(f"{RUN}/t", params={"failure": "none_such"}).status_code == 422


@pytest.mark.parametrize("asked", [{"text": "Bitbal"}, {"text": "no such words"}, {"flipped": True}])
def test_json_and_pages_find_the_same_by_text_and_by_flips(client, listed, asked):
    found = client.get(f"{RUN}/t", params=asked).json()["rows"]
    places = [(s["phase"], s["step"], s["k"]) for row in found for s in [row["summary"]]]
    query = {"result": "flipped"} if "flipped" in asked else asked
    page = client.get(f"/runs/{run_record().id}/t", params=query).text
    assert all(f"/{phase}/{step}/{k}?" in page for phase, step, k in places)
    if "text" in asked:
        assert listed(**asked) == places and bool(places) == (asked["text"] == "Bitbal")
    if len(places) > 1:
        shown = client.get(f"{RUN}/t/{'/'.join(map(str, places[0]))}", params=asked).json()
        assert (shown["previous"], shown["next"]) == (None, "/".join(map(str, places[1])))


def test_a_question_stands_beside_each_trajectory(client):
    rows = client.get(f"{RUN}/t").json()["rows"]
    assert {row["question"] for row in rows} == {"What is the employer of Bitbal?"}


def test_one_trajectory_has_its_system_prompt_its_group_and_its_neighbours(client):
    shown = client.get(f"{RUN}/t/train/1/0").json()
    assert shown["side"]["messages"][0] == {"label": "system", "text": "Tools: search, calculator", "fed": True}
    assert (shown["previous"], shown["next"]) == ("sampled/2/5", "train/1/1") or shown["next"] == "train/1/1"
    assert [one["k"] for one in shown["group"]] == [0]


def test_hostile_text_stays_text(client):
    page = client.get(f"/runs/{run_record().id}/t/train/1/1").text
    assert "\x1b" not in page and "\u202e" not in page


def test_tokens_say_which_were_sampled(client):
    page = client.get(f"{RUN}/t/train/1/0/tokens").json()
    assert page["num_tokens"] == len(page["tokens"]) and page["num_sampled"] == sum(
        t["sampled"] for t in page["tokens"]
    )
    assert {token["turn"] for token in page["tokens"]} == {None, 1, 2}
    part = client.get(f"{RUN}/t/train/1/0/tokens", params={"begin": 3, "end": 5}).json()["tokens"]
    assert part == page["tokens"][3:5]


def test_answers_to_one_question_stand_side_by_side(client):
    shown = client.get(f"{RUN}/questions/heldout-0000").json()
    assert len(shown["sides"]) == len(shown["summaries"]) > 1
    assert client.get(f"{RUN}/questions/none").status_code == 422


@pytest.mark.parametrize("words", [["11 letters?"], ["11 letters?", "Which town?"]])
def test_a_group_shows_what_agents_sent_in_place_of_the_task(client, monkeypatch, words):
    made = []

    def sent(*of):
        made.append(words[len(made) % len(words)])
        return replace(side(*of), messages=(Part("user", made[-1], True),))

    monkeypatch.setattr("rlf.apps.web.trajectories.side", sent)
    page = client.get(f"/runs/{run_record().id}/questions/heldout-0000").text
    headline = words[0] if len(words) == 1 else "What is the employer of Bitbal?"
    assert f"<b>question</b>\n{headline}</pre>" in page
    wanted = [made.count(one) if len(words) > 1 else 0 for one in words]
    assert [page.count(f"<b>user</b>\n{one}</pre>") for one in words] == wanted


@pytest.mark.parametrize("asked", ["step=9" + "9" * 30, "after=train/9" + "9" * 30 + "/1", "outcome=bogus"])
def test_what_cannot_be_asked_for_is_refused(client, asked):
    assert client.get(f"{RUN}/t?{asked}").status_code == 422


@pytest.mark.parametrize("place", ["train/99/0", "none/1/0"])
def test_what_is_not_there_is_missing(client, place):
    assert client.get(f"{RUN}/t/{place}").status_code == 404


def test_a_page_shows_what_the_calls_of_an_agent_continue(client, monkeypatch):
    place = f"/runs/{run_record().id}/t/train/1/0"
    assert ">contexts<" not in client.get(place).text
    words = lambda one: ["", *["continues turn 1 & <more>"] * (len(one.turns) - 1)]  # noqa: E731
    monkeypatch.setattr("rlf.apps.web.pages.trajectories.show_links", words)
    page = client.get(place).text
    assert ">contexts<" in page
    assert '<a href="#turn-2">turn 2</a> <span class="soft">continues turn 1 &amp; &lt;more&gt;</span>' in page
