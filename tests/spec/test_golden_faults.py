"""Broken specs and the exact words about each: `faults.yaml` is the table."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rlf.algo import ESTIMATORS
from rlf.chat import FORMATS
from rlf.core import SpecError
from rlf.plan.warnings import Subject, find_warnings
from rlf.rewards.kinds.rule import RULES
from rlf.rewards.term import TERM_KINDS
from rlf.runs.plans import check_spec
from rlf.spec import load_spec
from rlf.spec.engines import ENGINES
from rlf.spec.inputs import look
from rlf.spec.models import RunSpec, TrainSpec
from rlf.tools.kind import TOOL_KINDS

from .project import FILES, write_project

REGISTRIES = {
    "{engines}": ENGINES,
    "{estimators}": ESTIMATORS,
    "{formats}": FORMATS,
    "{reward kinds}": TERM_KINDS,
    "{rules}": RULES,
    "{tool kinds}": TOOL_KINDS,
}
pytestmark = pytest.mark.usefixtures("few_rows")
CASES = yaml.safe_load(Path(__file__).with_name("faults.yaml").read_text(encoding="utf-8"))


def list_faults(run: Path, overrides: list[str]) -> list[str]:
    try:
        check_spec([run], overrides)
    except SpecError as error:
        return str(error).split("\n")
    return []


def warned(run: Path, overrides: list[str]) -> list[str]:
    loaded = load_spec([run], overrides)
    looked = look(loaded)
    return [str(warning) for warning in find_warnings(Subject(loaded, looked.train, looked.evaluation))]


def filled_in(line: str, folder: Path) -> str:
    for name, registry in REGISTRIES.items():
        if name in line:
            line = line.replace(name, ", ".join(registry.names())).replace("{first}", registry.names()[0])
    for section, model in (("{train keys}", TrainSpec), ("{spec keys}", RunSpec)):
        line = line.replace(section, ", ".join(sorted(model.model_fields)))
    return line.replace("{folder}", str(folder))


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_broken_spec_is_reported_where_and_how_to_fix_it(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = case.get("file", "specs/run.yaml")
    changed = dict(case.get("files", {}))
    if "replace" in case:
        assert FILES[file].count(case["replace"]) >= 1, "the case changes nothing"
        changed[file] = FILES[file].replace(case["replace"], case["by"], 1)
    if "text" in case:
        changed[file] = case["text"]
    run, overrides = write_project(tmp_path, changed), case.get("overrides", [])
    assert list_faults(run, overrides) == [filled_in(line, tmp_path) for line in case.get("says", [])]
    if "warns" in case:
        assert [line for line in warned(run, overrides) if "got 4000;" not in line] == case["warns"]


WARNING_OF_THE_PROJECT = (
    "specs/run.yaml:6:5 tools[0].limits.max_output_chars: got 4000; one result of 'look' can end a trajectory, which "
    "has max_total_tokens: 100. Write e.g. `max_output_chars: 100`, a quarter of it."
)


def test_the_unbroken_project_has_no_fault_and_one_warning(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = write_project(tmp_path)
    assert (list_faults(run, []), warned(run, [])) == ([], [WARNING_OF_THE_PROJECT])
