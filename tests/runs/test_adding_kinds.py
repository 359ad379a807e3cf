"""The package that CONTRIBUTING adds kinds with: its files as they stand there, and no others, are enough."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from pathlib import Path

import pytest
import torch

import rlf
from rlf.algo import ESTIMATORS, AdvantageInput
from rlf.chat import FORMATS
from rlf.chat.format import every_call_marks
from rlf.chat.repair import stand_in
from rlf.core import registry
from rlf.rewards import RULES, TERM_KINDS
from rlf.spec.engines import ENGINES
from rlf.tools.kind import TOOL_KINDS
from rlf.trackers import TRACKERS
from rlf.types import ToolCall, ToolDescription
from tests.chat.foreign import foreign_writers

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text()
REGISTRIES = (TOOL_KINDS, TERM_KINDS, RULES, FORMATS, ESTIMATORS, ENGINES, TRACKERS)
TOOL = """\
name: echo
description: Says a word again.
inputSchema: {type: object, properties: {word: {type: string}}, required: [word]}
target: {kind: echo, times: 3}
"""
SPEC = """\
name: loud
model: {path: builtin:tiny}
chat: {format: shout}
data: {train: {path: builtin:encyclopedia/train, prompt: question, answer: answer}}
tools: [echo.yaml]
rewards:
  - {kind: capitals, name: capitals}
  - {kind: rule, name: brief, rule: brief, max_words: 2}
rollout: {num_generations: 2, max_total_tokens: 300, max_new_tokens: 16}
train: {algorithm: centred, steps: 1, prompts_per_step: 2}
engine: {kind: toy}
report_to: [{kind: names}]
"""


def named_files() -> dict[str, str]:
    """The files that CONTRIBUTING shows or says to copy."""
    shown = dict(re.findall(r"```python\n# (rlf_loud/\S+)\n(.*?)```", GUIDE, re.DOTALL))
    copied = re.findall(r"^(rlf_loud/\S+) is (\S+)$", GUIDE, re.MULTILINE)
    return shown | {name: (ROOT / source).read_text() for name, source in copied}


def forget() -> None:
    """Makes rlf look at the installed packages again."""
    registry._entry_points.cache_clear()
    every_call_marks.cache_clear()
    importlib.invalidate_caches()


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project beside which the package is installed, in this process."""
    folder = tmp_path_factory.mktemp("loud")
    info = folder / "site" / "rlf_loud-1.0.dist-info"
    info.mkdir(parents=True)
    groups = tomllib.loads(re.search(r"```toml\n(.*?)```", GUIDE, re.DOTALL)[1])["project"]["entry-points"]
    points = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in each.items()) for group, each in groups.items()]
    (info / "entry_points.txt").write_text("\n".join(points))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rlf-loud\nVersion: 1.0\n")
    for name, text in named_files().items():
        path = folder / "site" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (folder / "echo.yaml").write_text(TOOL)
    (folder / "loud.yaml").write_text(SPEC)
    sys.path.insert(0, str(folder / "site"))
    forget()
    yield folder
    sys.path.remove(str(folder / "site"))
    for kinds in REGISTRIES:
        for name in groups[kinds.package]:
            kinds._loaded.pop(name, None)
    for module in [name for name in sys.modules if name.startswith("rlf_loud")]:
        del sys.modules[module]
    forget()


def test_each_sort_of_kind_has_a_row_of_the_table_an_entry_point_and_one_module():
    rows = re.findall(r"^\| [a-z ]+ \| `(rlf\.[a-z.]+)`", GUIDE, re.MULTILINE)
    points = re.findall(r'^"(rlf\.[a-z.]+)" = \{ \w+ = "(rlf_loud)\.(\w+):\w+" \}$', GUIDE, re.MULTILINE)
    assert set(rows) == {group for group, _, _ in points} == {kinds.package for kinds in REGISTRIES}
    assert named_files().keys() == {f"rlf_loud/{module}.py" for _, _, module in points} | {"rlf_loud/chat.jinja"}


def test_a_spec_that_names_every_kind_has_no_fault(project):
    checked = rlf.check(project / "loud.yaml")
    assert checked.faults == (), str(checked)


def test_an_unknown_key_of_an_added_kind_is_a_fault_with_the_known_one(project):
    (fault,) = rlf.check(project / "loud.yaml", {"rewards[1].max_wrods": 3}).faults
    assert "max_words" in str(fault)


def test_it_runs(project):
    run = rlf.run(project / "loud.yaml", runs_folder=project / "runs")
    scored = run.scored()
    assert {(score.term, score.value) for each in scored for score in each.scores} == {("capitals", 0.25), ("brief", 0)}
    assert (project / "runs" / run.id / "names.txt").read_text().split()[-1] == "RunFinished"


def test_its_tool_is_called(project):
    (tool,) = rlf.load_tools(project / "echo.yaml")
    assert tool.call(word="Vell").text == "Vell Vell Vell"


def test_its_format_reads_what_it_writes_and_every_other_format_refuses_its_calls(project):
    call = ToolCall("echo", {"word": "Vell"})
    echo = ToolDescription("echo", "", {"type": "object"})
    written = stand_in("shout", [echo]).write_call(call)
    assert rlf.parse(written, "shout").calls == (call,)
    assert "shout" in foreign_writers(echo)
    (failure,) = rlf.parse(written, "qwen3_coder").failures
    assert failure.kind == "wrong_tag"


def test_its_estimator_gives_advantages(project):
    mask_BT = torch.tensor([[True], [True]])
    batch = AdvantageInput(torch.tensor([1.0, 0.0]), torch.tensor([7, 7]), mask_BT)
    advantages = ESTIMATORS.get("centred")().advantages(batch).advantages_BT
    assert advantages.tolist() == [[0.5], [-0.5]]
