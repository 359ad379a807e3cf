"""Tasks with one defect each are found and named by the build, and sound ones are kept with all their tools."""

import re
from collections import Counter
from pathlib import Path

import pytest

from rlf.apps.build import BuildSettings
from rlf.apps.build.folder import build_world, read_world
from rlf.core import RlfError
from rlf.core.leaks import SearchedText
from tests.apps.build.planted import PLANTED, SOUND, Script, bridge_tool
from tests.apps.build.test_llm import serving, silent


def settings(url, out, tasks, **keys):
    build = {
        "kind": "llm",
        "count": len(tasks),
        "endpoints": [{"url": url, "model": "scripted"}],
        "seeds": [f"task {number}" for number in range(len(tasks))],
        "repairs": 0,
        "deadline_s": 20,
        "sandbox": {"level": "process", "allow_unsafe": True, "limits": {"wall_s": 10}},
        **keys.pop("build", {}),
    }
    shape = {
        "scenarios": {tasks[0]["scenario"]: 1.0},
        "hops": (2, 2),
        "parallel": (2, 2),
        "complexity": {"toolset": 1 if tasks[0]["extra"] else 0},
        "split": {"train": 1, "validation": 0, "heldout": 0},
        "gates": {"spam": 1.0, "random": 1.0},
    }
    return BuildSettings.model_validate({"build": build, "out": str(out), **shape, **keys})


def completed(task):
    """With as many look-alikes as the least dial has."""
    if len(task["extra"]) == 1:
        task["extra"].append(bridge_tool())
    return task


def dropped(task, out):
    """Why the build drops the task or one of its tools; empty where it keeps all."""
    with serving(Script([task])) as url:
        try:
            certificate = build_world(settings(url, out, [task]), silent)
        except RlfError as fault:
            return str(fault)
    return "; ".join(certificate.dropped)


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_task_is_kept_with_all_its_tools(tmp_path, name):
    task = completed(SOUND[name]())
    assert dropped(task, tmp_path / "out") == ""
    _, [kept] = read_world(tmp_path / "out")
    assert len(kept.tools) == len(task["tools"]) + len(task["extra"])


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_defect_is_found_and_named(tmp_path, name):
    words, make = PLANTED[name]
    assert re.search(words, dropped(completed(make()), tmp_path / "out"))


@pytest.mark.parametrize(
    ("text", "value", "form"),
    [
        ("call it RANLIB", "Bilnar", "reversed"),
        ("such as B-i-l-n-a-r.", "Bilnar", "spelled"),
        ("1 7 3 8", 1738, "spelled"),
        ("not 1,738 miles", 1738, "in digits"),
        ("3 942 km", "3942", "in digits"),
        ("\u0661\u0667\u0663\u0668", 1738, "in digits"),
        ("a thousand seven hundred and thirty-eight", 1738, "in words"),
        ("QmlsbmFy", "Bilnar", "encoded"),
        ("Bil-nar", "Bilnar", "as it stands"),
        ("14660 Bilnarsson 17380", "Bilnar", None),
        ("14660 Bilnarsson 17380", 466, None),
        ("the one that is longer", 1, None),
        ("35", 3.5, None),
    ],
)
def test_a_text_is_searched_in_each_form_of_a_value_and_not_for_parts_of_words(text, value, form):
    assert SearchedText(text).find(value) == form


@pytest.mark.parametrize(
    ("text", "value", "is_given"),
    [
        ("on 3 May 2024", "2024-05-03", True),
        ("on May 3rd, 2024", "2024-05-03", True),
        ("on 3 June 2024", "2024-05-03", False),
        ("at 2:30 pm", "14:30", True),
        ("two tickets in euros", "EUR", True),
        ("two tickets", 2, True),
        ("twelve tickets", 12, True),
        ("for museums", "museum", True),
        ("the town", "Towna0", False),
    ],
)
def test_an_argument_may_stand_in_the_question_in_other_words(text, value, is_given):
    assert SearchedText(text).gives(value) == is_given


def test_the_guide_counts_the_corpus_as_it_is():
    guide = Path(__file__).parents[3].joinpath("docs", "guides", "env-build.md").read_text()
    table = re.search(r"^\| kind \| defects .*?\n\n", guide, re.DOTALL | re.MULTILINE)[0]
    shown = {name: int(num) for name, num in re.findall(r"\| ([a-z ]+) \| (\d+)", table)}
    counted = Counter(name.split(":")[0] for name in PLANTED)
    assert shown == {**counted, "sound tasks": len(SOUND)} and f"**{len(PLANTED)}**" in table
