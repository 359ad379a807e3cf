"""A second model judges what tasks mean; the share of planted bad tasks that it catches is measured in the build."""

import json
import re

import pytest

from rlf.apps.build.folder import build_world, read_certificate
from rlf.apps.build.review import PLANTS
from rlf.core import RlfError
from tests.apps.build.planted import SOUND, Script, chains, pair
from tests.apps.build.test_llm import serving, silent
from tests.apps.build.test_planted import completed, settings

WORDS = {"river_of_town": "the river that", "length_of_river": "how long a river"}
JOINS = {"sum": "add up", "largest": "longer one", "difference": "differ", "list": "and which"}


def find_faults(prompt):
    """The verdicts of a reader who compares words: what is combined, who is named, and which tools say one thing."""
    question = re.search(r"Main question: (.*)", prompt)[1]
    answer, join = (lambda found: (found[2], found[1]))(re.search(r"Final answer \((\w+)\): (.*)", prompt))
    calls = re.findall(r"^\d+\. .*?: (\w+)\((\{.*\})\) -> (.*)$", prompt, re.M)
    tools = [json.loads(each) for each in re.findall(r"^- (\{.*\})$", prompt, re.M)]
    words = {tool["name"]: tool["description"] for tool in tools}
    named = [value for _, arguments, _ in calls for value in json.loads(arguments).values() if isinstance(value, str)]
    ends_well = join != "value" or answer == calls[-1][2]
    return {
        "asks": int(ends_well and (join not in JOINS or JOINS[join] in question)),
        "calls": int(all(WORDS[name] in words[name] for name, *_ in calls)),
        "alone": int(len(set(words.values())) == len(words)),
        "clear": int(all(value in question for value in named)),
    }


def kind(prompt):
    return json.dumps(dict.fromkeys(("asks", "calls", "alone", "clear"), 1))


def careful(prompt):
    return json.dumps(find_faults(prompt))


def built(tasks, judge, out, **keys):
    script = Script(tasks, judge)
    with serving(script) as url:
        reviewers = [{"url": url, "model": "second"}]
        chosen = settings(url, out, tasks, build={"reviewers": reviewers}, **keys)
        return build_world(chosen, silent), script


def named_apart(number):
    """A sound task over towns of its own, so that several stand in one build."""
    text = json.dumps(completed(SOUND["chain with a look-alike"]()))
    text = text.replace("the length of {0}", f"the length {number} of {{0}}")
    return json.loads(re.sub(r"Kaldun|Bilnar", lambda name: name[0] + "abcdefgh"[number], text))


def test_the_share_of_planted_tasks_that_it_catches_is_in_the_certificate(tmp_path):
    tasks = [named_apart(number) for number in range(6)]
    certificate, script = built(tasks, careful, tmp_path / "out")
    meaning = certificate.meaning
    assert (meaning["judged"], meaning["planted"], meaning["share"]) == (6, 6, 1.0)
    assert script.asked["review"] == 12 and certificate.holds
    kinds = {name.partition("/")[2] for name in meaning if name.startswith("planted/")}
    assert len(kinds) > 1 and all(meaning[f"share/{each}"] == 1.0 for each in kinds)
    assert sum(meaning[f"planted/{each}"] for each in kinds) == 6
    stored = json.loads((tmp_path / "out" / "certificate.json").read_text(encoding="utf-8"))
    assert read_certificate(stored).meaning == meaning


def test_a_second_model_that_refuses_nothing_breaks_a_gate(tmp_path):
    certificate, _ = built([pair()], kind, tmp_path / "out")
    assert certificate.meaning["share"] == 0
    assert [gate.name for gate in certificate.gates if not gate.holds] == ["meaning"]


def test_a_task_that_means_something_else_is_dropped_with_its_reason(tmp_path):
    task = pair()
    task["draft"] |= {"join": "largest", "answer": 2204}
    with pytest.raises(RlfError, match="review: the final answer is not what the question asks for"):
        built([task], careful, tmp_path / "out")


@pytest.mark.parametrize("make", [pair, chains, lambda: completed(SOUND["chain with a look-alike"]())])
def test_every_plant_is_a_fault_of_meaning_that_a_careful_reader_sees(tmp_path, monkeypatch, make):
    for name, plant in PLANTS.items():
        monkeypatch.setattr("rlf.apps.build.review.PLANTS", {name: plant})
        certificate, _ = built([make()], careful, tmp_path / name)
        assert certificate.meaning.get(f"share/{name}", 1.0) == 1.0


def test_the_model_that_makes_the_tasks_does_not_judge_them(tmp_path):
    chosen = settings(
        "http://127.0.0.1:9/v1",
        tmp_path / "out",
        [pair()],
        build={"reviewers": [{"url": "http://127.0.0.1:9/v1", "model": "scripted"}]},
    )
    with pytest.raises(RlfError, match=r"build\.reviewers: got the model that makes the tasks"):
        build_world(chosen, silent)


def test_a_build_without_a_second_model_says_that_nobody_judged(tmp_path):
    tasks = [pair()]
    with serving(Script(tasks)) as url:
        certificate = build_world(settings(url, tmp_path / "out", tasks), silent)
    assert certificate.meaning == {} and "meaning" not in {gate.name for gate in certificate.gates}
