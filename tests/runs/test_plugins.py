"""A package that is installed beside rlf adds kinds, which are checked, documented and completed like rlf's own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ..processes import Process, call_rlf

CODE = '''
from typing import ClassVar, Literal
from pydantic import Field
from rlf.algo import Estimator
from rlf.rewards import Rule
from rlf.rewards.term import Verdict
from rlf.trackers import Tracker


class Brief(Rule):
    """1 for an answer of few words, else 0."""

    rule: Literal["brief"] = "brief"
    max_words: int = Field(3, ge=1)
    """Words that are few."""

    def judge(self, trajectory):
        return Verdict(float(len((trajectory.answer or "").split()) <= self.max_words))


class Even(Estimator):
    """The same advantage for all."""

    needs_group: ClassVar[bool] = False
    needs_critic: ClassVar[bool] = False
    height: float = 1.0
    """The advantage."""

    def advantages(self, batch):
        raise NotImplementedError


class Shout(Tracker):
    """Tells it to everyone."""

    kind: Literal["shout"] = "shout"
    loudness: int = Field(1, ge=1, le=11)
    """How loud."""

    def open(self, run):
        path = run.folder / "shouted"
        class Writer:
            def __call__(self, event):
                with path.open("a") as file:
                    print(type(event).__name__, file=file)
            def close(self):
                pass
        return Writer()
'''
POINTS = """\
[rlf.rewards.rules]
brief = rlf_loud:Brief

[rlf.algo.advantages]
even = rlf_loud:Even

[rlf.trackers.kinds]
shout = rlf_loud:Shout
"""
SPEC = """\
name: loud
model: {path: builtin:tiny}
data: {train: {path: builtin:encyclopedia/train, prompt: question}}
rewards:
  - {kind: rule, name: short, rule: brief, max_words: 2}
train: {algorithm: grpo, steps: 1, prompts_per_step: 1}
rollout: {num_generations: 4, max_total_tokens: 200, max_new_tokens: 16}
report_to: [{kind: shout, loudness: 11}]
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder as pip leaves it: a module, and the package's metadata with its entry points."""
    site = tmp_path / "site"
    info = site / "rlf_loud-2.5.dist-info"
    info.mkdir(parents=True)
    (site / "rlf_loud.py").write_text(CODE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rlf-loud\nVersion: 2.5\n")
    (info / "entry_points.txt").write_text(POINTS)
    (tmp_path / "run.yaml").write_text(SPEC)
    return tmp_path


def with_package(site: str, call: Callable[..., object], *values: str) -> None:
    sys.path.insert(0, site)
    call(*values)


def called(project: Path, call: Callable[..., object], *values: str) -> subprocess.CompletedProcess[str]:
    """What a call prints in a process that finds the package."""
    with Process(with_package, str(project / "site"), call, *values, folder=project) as process:
        out, errors = process.communicate(timeout=120)
        return subprocess.CompletedProcess(values, process.wait(), out, errors)


def rlf(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return called(project, call_rlf, *arguments)


def show_reference_and_completion() -> None:
    from rlf.cli.completion import complete_spec

    from ..reference import load_reference

    pages = load_reference().pages()

    names = {"reward.md": "max_words", "estimators.md": "## even", "spec.md": "loudness"}
    print(*(word in pages[page] for page, word in names.items()))
    print(complete_spec("train.algorithm=ev"), complete_spec("report_to=sh"))


def test_its_kinds_are_checked_with_the_known_keys_and_names(installed: Path) -> None:
    (installed / "run.yaml").write_text(SPEC.replace("max_words", "max_wrods").replace("loudness: 11", "loudness: 12"))
    checked = rlf(installed, "check", "run.yaml", "train.algorithm=evn")
    assert checked.returncode == 2
    assert "unknown advantage estimator 'evn'; did you mean 'even'?" in checked.stderr
    assert "rewards[0].max_wrods: unknown key 'max_wrods'; did you mean 'max_words'?" in checked.stderr, checked.stderr
    assert "run.yaml:8:37 report_to[0].loudness: got 12; expected a number of at most 11." in checked.stderr


def test_its_kinds_run_and_its_version_is_in_the_lineage(installed: Path) -> None:
    ran = rlf(installed, "run", "run.yaml", "--json")
    assert ran.returncode == 0, ran.stderr
    assert "report_to" not in ran.stdout, ran.stdout
    (folder,) = (path for path in (installed / "runs").iterdir() if (path / "shouted").is_file())
    assert (folder / "shouted").read_text().split()[-1] == "RunFinished"
    shown = json.loads(rlf(installed, "runs", "show", "latest", "--json").stdout)
    assert shown["data"]["run"]["record"]["packages"]["rlf-loud"] == "2.5"


def test_its_kinds_are_in_the_schema_the_reference_and_completion(installed: Path) -> None:
    schema = json.loads(rlf(installed, "schema", "spec").stdout)
    assert {"Brief", "Even", "Shout"} <= schema["$defs"].keys()
    told = called(installed, show_reference_and_completion)
    assert told.stdout.splitlines() == ["True True True", "['train.algorithm=even'] ['report_to=shout']"], told.stderr
