"""Every spec that the repository ships is right, and checking it is quick and light."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rlf.plan import compile as compile_plan
from rlf.plan.warnings import Subject, find_warnings
from rlf.spec import load_spec
from rlf.spec.inputs import look

REPOSITORY = Path(__file__).parents[2]
SPECS = sorted(path for part in ("", "benchmarks") for path in (REPOSITORY / part / "specs").glob("*.yaml"))
BRING_DATA = ("search_r1_qwen25_3b", "rl_factory_qwen3_4b", "search_r1_two_nodes")
"""Specs whose data the user brings."""
FEW_ROWS = ("ftrl_qwen3_8b",)
"""Specs over the small questions, over which the user lays a world of their own."""
ABLATIONS = ("search", "search_no_tool", "search_shuffled")
CHECK = """
import json, sys
from pathlib import Path
from rlf.plan import compile
from rlf.spec import check_inputs, load_spec
for path in sys.argv[1:]:
    loaded = load_spec([Path(path)])
    compile(loaded)
    assert all("no such file" in fault.message for fault in check_inputs(loaded))
heavy = {"torch", "transformers", "datasets", "vllm", "ray", "sqlalchemy", "aiohttp"} & set(sys.modules)
print(json.dumps(sorted(heavy)))
"""


@pytest.mark.parametrize("path", SPECS, ids=[path.stem for path in SPECS])
def test_it_compiles_and_all_that_it_names_is_there(path):
    loaded = load_spec([path])
    looked = look(loaded)
    absent = ["data.train.path", "data.eval.path"] if path.stem in BRING_DATA else []
    assert [fault.path for fault in looked.faults] == absent
    assert all("no such file" in fault.message for fault in looked.faults)
    warned = [warning.path for warning in find_warnings(Subject(loaded, looked.train, looked.evaluation))]
    # The model of a benchmark is a folder, for which the usual rates are those of large models.
    rate = ["train.learning_rate"] if "benchmarks/embedded" in str(loaded.spec.model.path) else []
    assert warned == rate + ["train.prompts_per_step"] * (path.stem in FEW_ROWS)
    assert compile_plan(loaded).spec.name == path.stem


@pytest.mark.parametrize("path", SPECS, ids=[path.stem for path in SPECS])
def test_its_first_line_says_what_it_is_for(path):
    assert path.read_text(encoding="utf-8").startswith("# ")


def test_only_the_schedule_that_waits_is_warned_of():
    for schedule, words in (
        ("logical", "until the slowest tool returns. Write invariant"),
        ("invariant", ""),
        ("clock", ""),
    ):
        found = find_warnings(
            Subject(load_spec([REPOSITORY / "specs" / "search.yaml"], [f"rollout.schedule={schedule}"]))
        )
        assert [warning.path for warning in found] == ["rollout.schedule"] * bool(words)
        assert all(words in warning.message for warning in found)


def test_the_ablations_differ_from_the_headline_in_the_search_tool_alone():
    base, *others = (load_spec([REPOSITORY / "specs" / f"{name}.yaml"]).spec for name in ABLATIONS)
    for other in others:
        same = other.model_copy(update={"name": base.name, "tools": base.tools})
        assert same == base
        assert [tool.name for tool in other.tools] == [tool.name for tool in base.tools]
        assert other.tools[1:] == base.tools[1:] and other.tools[0].target != base.tools[0].target


def test_checking_each_loads_no_heavy_package():
    command = [sys.executable, "-c", CHECK, *map(str, SPECS)]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert json.loads(run.stdout) == []
