"""`import rlf`: the public names, in a script and in a notebook."""

import asyncio
import contextlib
import io
import json
import linecache
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml

import rlf
from rlf.cli.arguments import split_arguments
from rlf.core.callables import forget_edited, load_callable
from rlf.core.identity import hash_path
from rlf.python.mappings import name_function
from rlf.spec import load_spec
from rlf.types.events import RunStatus, StepFinished

SPEC = """
name: small
model: {path: builtin:tiny}
data: {train: {path: builtin:encyclopedia/train, prompt: question, answer: answer, limit: 4}}
tools: [tool.yaml]
rewards: [{kind: rule, name: exact, rule: exact_match}]
rollout: {num_generations: 2, max_turns: 1, max_new_tokens: 8, max_total_tokens: 512}
train: {algorithm: grpo, steps: 2, prompts_per_step: 1}
"""
TOOL = """
name: double
description: Doubles a number.
target: {kind: python, callable: "helper_tools.py:double"}
tests: [{arguments: {number: 2}, expect: {contains: "4"}}]
"""
CODE = '''
def double(number: int) -> int:
    """Doubles a number.

    Args:
        number: what is doubled.
    """
    return number * 2
'''


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "spec.yaml").write_text(SPEC)
    (tmp_path / "tool.yaml").write_text(TOOL)
    (tmp_path / "helper_tools.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of two steps, started as in a notebook: within a running event loop."""
    folder = tmp_path_factory.mktemp("trained")
    for name, text in (("spec.yaml", SPEC), ("tool.yaml", TOOL), ("helper_tools.py", CODE)):
        (folder / name).write_text(text)
    events = []

    async def cell():
        run = rlf.run(folder / "spec.yaml", {"train.steps": 2}, on_event=events.append, runs_folder=folder / "runs")
        await asyncio.sleep(0)
        return run

    return asyncio.run(cell()), events


def test_a_run_stays_in_its_folder_where_code_of_a_user_changes_the_current_one(project):
    away = project / "away"
    away.mkdir()
    run = rlf.run("spec.yaml", {"train.steps": 1, "checkpoint.every": 1}, on_event=lambda event: os.chdir(away))
    assert Path.cwd() == project and not list(away.iterdir())
    assert (project / "runs" / run.id / "checkpoints/step-000001").is_dir()


@pytest.fixture(scope="module")
def stopped(trained):
    """A run that SIGTERM stopped after a step, and the same run once it was resumed."""
    folder = trained[0].runs_folder

    def stop(event):
        if isinstance(event, StepFinished):
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt, match=r"rlf\.resume"):
        rlf.run(folder.parent / "spec.yaml", {"checkpoint.every": 1, "seed": 1}, on_event=stop, runs_folder=folder)
    interrupted = rlf.load_run(runs_folder=folder)
    return interrupted, rlf.resume(interrupted)


def test_the_public_names_are_these():
    functions = (
        "check compare evaluate export list_runs load_run load_tools parse plan_run render resume run score serve "
        "sweep try_rewards try_tools"
    )
    types = "Check RlfError Rows Run RunError Scored SpecError Tool Trajectory"
    assert sorted(rlf.__all__) == sorted([*functions.split(), *types.split(), "__version__"])
    assert all(getattr(rlf, name) is not None for name in rlf.__all__)
    assert dir(rlf) == sorted(rlf.__all__)


def test_importing_rlf_loads_nothing_of_it():
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, rlf; print([n for n in sys.modules if n.startswith(('rlf.', 'torch'))])"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert loaded.stdout.strip() == "[]"


def test_a_name_that_is_none_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'train'"):
        _ = rlf.train


def test_check_finds_nothing_wrong_in_a_right_spec(project):
    found = rlf.check("spec.yaml", {"train.steps": 3})
    assert found.ok and found.name == "small" and found.num_train_rows == 4
    assert found.to_json()["ok"] is True
    found.raise_for_faults()


def test_check_returns_every_fault_with_its_place(project):
    found = rlf.check("spec.yaml", ["train.steps=none", "rollout.max_turns=0"])
    assert not found.ok and {fault.path for fault in found.faults} == {"train.steps", "rollout.max_turns"}
    assert "steps" in str(found) and found.to_json()["faults"]
    with pytest.raises(rlf.SpecError):
        found.raise_for_faults()


def test_check_reads_the_text_of_an_editor_in_place_of_a_file(project):
    assert not rlf.check("spec.yaml", texts={"spec.yaml": SPEC.replace("steps: 2", "steps: two")}).ok
    assert not rlf.check("spec.yaml", texts={project / "tool.yaml": TOOL.replace("kind: python", "kind: pyton")}).ok
    assert rlf.check("new.yaml", texts={"new.yaml": SPEC}).ok
    assert rlf.check("spec.yaml").ok


def test_a_second_check_sees_an_edited_module(project):
    code = project / "helper_tools.py"
    assert rlf.check("spec.yaml").ok
    code.write_text(CODE.replace("def double", "def triple"))
    assert any("double" in fault.message for fault in rlf.check("spec.yaml").faults)
    code.write_text(CODE)
    assert rlf.check("spec.yaml").ok


def test_a_module_that_is_as_it_was_is_known_by_its_times_and_an_edit_of_the_same_size_is_seen(project, monkeypatch):
    monkeypatch.setattr("rlf.core.identity._SETTLED_S", -60.0)  # no file is too young to be known by its times
    assert rlf.check("spec.yaml").ok
    read = []
    monkeypatch.setattr("rlf.core.callables.hash_path", lambda path: read.append(path.name) or hash_path(path))
    forget_edited()
    assert read == []
    (project / "helper_tools.py").write_text(CODE.replace("def double", "def triple"))
    assert any("double" in fault.message for fault in rlf.check("spec.yaml").faults)
    assert "helper_tools.py" in read


def test_a_second_trial_calls_the_edited_function_and_what_it_imports(project):
    (project / "helper_tools.py").write_text("from helper_numbers import TIMES\n" + CODE.replace("* 2", "* TIMES"))
    (project / "helper_numbers.py").write_text("TIMES = 2\n")
    assert [trial.ok for trial in rlf.try_tools("tool.yaml")] == [True]
    (project / "helper_numbers.py").write_text("TIMES = 3\n")
    (trial,) = rlf.try_tools("tool.yaml")
    assert trial.examples[0].result.text == "6" and not trial.ok
    json.dumps(trial.to_json())


def test_scoring_sees_an_edited_reward(project, trained):
    reward = "name: own\nkind: python\ncallable: own_reward.py:score\n"
    (project / "reward.yaml").write_text(reward)
    scored = trained[0].scored()
    values = []
    for number in ("0.25", "0.75"):
        (project / "own_reward.py").write_text(f"def score(trajectory):\n    return {number}\n")
        values.append(rlf.score(scored, "reward.yaml")[0].reward)
    assert values == [0.25, 0.75]


def test_a_plan_tells_a_runs_values(project):
    planned = rlf.plan_run("spec.yaml", {"seed": 7})
    assert planned.name == "small" and planned.plan_hash == planned.to_json()["plan_hash"]


def test_a_run_of_a_notebook_is_recorded_as_a_commands_is(trained):
    run, events = trained
    assert run.status is RunStatus.FINISHED and run.step == 2
    assert sum(isinstance(event, StepFinished) for event in events) == 2
    assert rlf.load_run(run.id[:8], runs_folder=run.runs_folder) == run
    assert run.spec["train"]["steps"] == 2 and run.to_json()["run_id"] == run.id
    assert run.report().verdict.line


def test_steps_and_trajectories_are_tables(trained):
    run, _ = trained
    steps, table = run.steps(), run.steps().to_pandas()
    assert [step.step for step in steps] == [1, 2] == list(table["step"])
    assert set(steps[0].metrics) <= set(table.columns)
    arrow = run.trajectories(phase="train").to_arrow()
    assert arrow.num_rows == 4 and {"reward", "task_id", "stop"} <= set(arrow.column_names)
    assert len(rlf.list_runs(runs_folder=run.runs_folder)) == 1
    assert "<table" in run.steps()._repr_html_()
    assert repr(run.steps()[:1]) == "Rows[TrainingStep](1)"


def test_rows_without_pandas_are_shown_as_text(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert rlf.Rows([])._repr_html_() is None
    with pytest.raises(rlf.RlfError, match="pip install pandas"):
        rlf.Rows([]).to_pandas()


def test_a_message_without_a_role_is_refused():
    with pytest.raises(rlf.RlfError, match="role and content"):
        rlf.render([{"content": "Hello"}], "hermes")


def test_a_trajectory_has_its_tokens_and_scores(trained):
    run, _ = trained
    stored = run.trajectory(1, step=2)
    trajectory = stored.scored.trajectory
    assert len(trajectory.tokens) == stored.summary.num_tokens == len(trajectory.action_mask)
    assert stored.scored.to_json()["scores"][0]["term"] == "exact"
    again = rlf.score([stored.scored], run.runs_folder.parent / "spec.yaml")
    assert again[0].reward == stored.scored.reward


def test_a_run_that_is_stopped_is_kept_and_resumed(stopped):
    interrupted, resumed = stopped
    assert interrupted.status is RunStatus.INTERRUPTED and interrupted.step == 1 and "SIGTERM" in interrupted.error
    assert resumed.id == interrupted.id and resumed.step == 2
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_runs_are_compared(trained, stopped):
    run, other = trained[0], stopped[1]
    found = rlf.compare(run, other.id)
    assert [arm["runs"] for arm in found.to_json()["arms"]] == [[run.id], [other.id]]
    assert found._repr_markdown_().startswith("#")
    with pytest.raises(rlf.RlfError, match="named twice"):
        rlf.compare(run, run)


def test_the_seeds_of_an_arm_are_a_list(trained, stopped):
    run, other = trained[0], stopped[1]
    arms = [{"runs": arm["runs"]} for arm in rlf.compare([run, other.id]).to_json()["arms"]]
    assert arms == [{"runs": [run.id, other.id]}]
    with pytest.raises(rlf.RlfError, match="empty list"):
        rlf.compare([run], [])


def test_a_finished_run_is_not_resumed(trained):
    run, _ = trained
    with pytest.raises(rlf.RlfError, match="finished already"):
        rlf.resume(run)


def test_tools_are_called_by_name(project):
    (double,) = rlf.load_tools("spec.yaml")
    assert double.call(number=4).text == "8" and double.call({"number": "x"}).outcome == "invalid_arguments"
    assert double.to_json()["inputSchema"]["properties"].keys() == {"number"}


def test_a_prompt_is_rendered_and_a_turn_is_parsed(project):
    tools = rlf.load_tools("spec.yaml")
    shown = rlf.render("How much is 2 times 2?", "hermes", tools=tools)
    assert "double" in shown.text and "2 times 2" in shown.text
    assert rlf.render("Hello", model="builtin:tiny").tokens
    turn = '<tool_call>\n{"name": "double", "arguments": {"number": 2}}\n</tool_call>'
    (call,) = rlf.parse(turn, "hermes").calls
    assert call.arguments == {"number": 2}
    with pytest.raises(rlf.RlfError, match="chat format"):
        rlf.render("Hello")


def test_rewards_are_tried(project):
    trials = rlf.try_rewards("spec.yaml")
    assert {trial.term for trial in trials} == {"exact"} and all(not trial.shortfalls for trial in trials)


def _serve(spec, folder):
    """The spec that the process of `rlf serve` reads; the process itself is that of the guide's example."""
    with pytest.MonkeyPatch.context() as patched, pytest.raises(_StartedError) as started:
        patched.setattr("rlf.apps.serve.serve.start_apart", _StartedError.of)
        rlf.serve("builtin:tiny", spec, runs_folder=folder).__enter__()
    words = [word for word in started.value.args[0] if word.endswith(".yaml") or "=" in word]
    return load_spec(*split_arguments(words)).spec


class _StartedError(Exception):
    @classmethod
    def of(cls, command, **_):
        raise cls(command)


_WITH_SPEC = {
    "check": lambda spec, run, folder: rlf.check(spec, runs_folder=folder).ok,
    "plan_run": lambda spec, run, folder: rlf.plan_run(spec, runs_folder=folder).to_json()["plan_hash"],
    "run": lambda spec, run, folder: rlf.run(spec, {"train.steps": 1}, runs_folder=folder).plan_hash,
    "sweep": lambda spec, run, folder: (
        rlf.sweep(spec, {"seed": [3]}, {"train.steps": 1}, runs_folder=folder)[0].plan_hash
    ),
    "evaluate": lambda spec, run, folder: (
        rlf.load_run(
            rlf.evaluate("builtin:tiny", spec, data="questions.csv", greedy=True, runs_folder=folder).rows[0].run_id,
            runs_folder=folder,
        ).spec
    ),
    "serve": lambda spec, run, folder: _serve(spec, folder),
    "load_tools": lambda spec, run, folder: rlf.load_tools(spec, runs_folder=folder)[0].to_json(),
    "try_tools": lambda spec, run, folder: [trial.ok for trial in rlf.try_tools(spec, runs_folder=folder)],
    "try_rewards": lambda spec, run, folder: [
        (trial.term, trial.what, trial.value) for trial in rlf.try_rewards(spec, runs_folder=folder)
    ],
    "score": lambda spec, run, folder: [each.reward for each in rlf.score(run.scored(), spec, runs_folder=folder)],
}


def test_every_function_of_a_spec_is_tried_with_a_mapping():
    annotated = {name: getattr(getattr(rlf, name), "__annotations__", {}) for name in rlf.__all__}
    assert sorted(name for name, of in annotated.items() if "Spec" in of.values()) == sorted(_WITH_SPEC)
    assert not [name for name, of in annotated.items() if "Files" in of.values()]


@pytest.mark.parametrize("name", _WITH_SPEC)
def test_a_spec_is_a_path_or_a_mapping(project, trained, name):
    Path("questions.csv").write_text("question,answer\nWhere was Bednox born?,Tukkes\n")
    whole = yaml.safe_load(SPEC)
    call, folder = _WITH_SPEC[name], project / "runs"
    by_path = call("spec.yaml", trained[0], folder)
    assert by_path and call({"extends": "spec.yaml"}, trained[0], folder) == by_path
    assert call(whole, trained[0], folder) == by_path


def test_a_mapping_needs_no_more_than_what_is_read_of_it(project):
    whole = yaml.safe_load(SPEC)
    (tool,) = rlf.load_tools("spec.yaml")
    assert rlf.load_tools({"tools": whole["tools"]}) == [tool]
    assert rlf.load_tools(yaml.safe_load(Path(whole["tools"][0]).read_text())) == [tool]
    tried = rlf.try_rewards({"rewards": whole["rewards"]})
    assert tried and tried == rlf.try_rewards(whole["rewards"][0])
    with pytest.raises(rlf.RlfError, match=r"^mapping: no tool is declared there"):
        rlf.load_tools({})
    with pytest.raises(rlf.SpecError, match=r"^mapping:1:1 rewards: the key 'rewards' is missing.*"):
        rlf.try_rewards({"tools": whole["tools"]})
    with pytest.raises(rlf.SpecError, match=r"^override tools\[0\].target.kind: unknown tool kind 'pythn'"):
        rlf.load_tools(
            {
                "tools": [
                    {"name": "x", "description": "d", "inputSchema": {"type": "object"}, "target": {"kind": "pythn"}}
                ]
            }
        )


def test_the_values_of_a_sweep_are_a_list(project):
    for values in (3, "grpo"):
        with pytest.raises(rlf.RlfError, match=rf"seed: got {values!r}; expected the list .*\[{values!r}\]"):
            rlf.sweep("spec.yaml", {"seed": values})


def test_overrides_that_are_one_text_are_refused(project):
    with pytest.raises(rlf.RlfError, match="list"):
        rlf.check("spec.yaml", "train.steps=3")


def test_a_notebook_of_another_program_keeps_its_loop(project):
    async def cell():
        before = asyncio.get_running_loop(), asyncio.current_task()
        rlf.try_tools("tool.yaml")
        return before == (asyncio.get_running_loop(), asyncio.current_task())

    assert asyncio.run(cell())


def test_the_examples_of_the_guide_run_in_order(tmp_path, monkeypatch):
    guide = (Path(__file__).parents[1] / "docs/guides/python.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    for _, name, text in blocks:
        if name:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    names, printed = {"__name__": "__main__"}, io.StringIO()
    with contextlib.redirect_stdout(printed):
        for at, (language, name, text) in enumerate(blocks):
            if language == "python" and not name:
                cell = f"<cell {at}>"  # a notebook keeps the lines of its cells for `inspect`, too
                monkeypatch.setitem(linecache.cache, cell, (len(text), None, text.splitlines(keepends=True), cell))
                exec(compile(text, cell, "exec"), names)
    assert "ok 42" in printed.getvalue() and "train.algorithm" in printed.getvalue()
    assert [run.seed for run in names["seeds"]] == [2, 3] and Path("model", "config.json").is_file()
    assert f"{names['served'].url} model" in printed.getvalue()
    with pytest.raises(OSError):  # the server is gone with its block
        urllib.request.urlopen(f"{names['served'].url}/models")
    assert names["from_notebook"].spec["tools"][-1]["target"]["callable"].endswith(":halve")
    assert names["wrong"].faults and names["run"].step == names["other"].step == 2


def test_the_guide_names_every_public_name():
    guide = (Path(__file__).parents[1] / "docs/guides/python.md").read_text(encoding="utf-8")
    assert [name for name in rlf.__all__ if name != "__version__" and not re.search(rf"`[^`]*\b{name}\b", guide)] == []


_CELL = """
import functools, math, os.path, threading
from collections import Counter
SCALE, API_KEY, OPEN = 2, "sk-0123456789", threading.Lock()

def scaled(number):
    return SCALE * math.floor(number)

@functools.cache
def counted(word):
    return Counter(word).total() + scaled(1)

def even(number):
    return number == 0 or odd(number - 1)

def odd(number):
    return number != 0 and even(number - 1)

def used(word: str, base: int = SCALE) -> float:
    OPEN = os.path.join(word, word)
    return base * counted(word) + even(4) + len(OPEN)

def signs(word):
    return API_KEY + word

def reads(word):
    return OPEN.locked()

def outer():
    def inner(word):
        return word
    return inner

made, nameless = outer(), lambda word: word
"""


@pytest.fixture
def cell(monkeypatch):
    monkeypatch.setitem(linecache.cache, "<cell>", (len(_CELL), None, _CELL.splitlines(keepends=True), "<cell>"))
    names = {"__name__": "__main__"}
    exec(compile(_CELL, "<cell>", "exec"), names)
    return names


def test_a_notebooks_function_is_written_with_what_it_uses(cell, tmp_path):
    named = name_function(cell["used"], tmp_path)
    assert load_callable(named)("abc") == cell["used"]("abc")
    file = Path(named.rpartition(":")[0])
    assert not {"API_KEY", "signs", "nameless"} & {word.strip(":(") for word in file.read_text().split()}
    before = file.read_bytes()
    assert name_function(cell["used"], tmp_path) == named and file.read_bytes() == before


def test_a_function_of_a_module_is_named_by_it(tmp_path):
    assert name_function(re.escape, tmp_path) == "re:escape" and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "words"),
    [("signs", "os.environ"), ("reads", "`OPEN`"), ("made", "at the top"), ("nameless", "at the top")],
)
def test_a_function_that_no_file_can_hold_is_refused_by_what_it_uses(cell, tmp_path, name, words):
    with pytest.raises(rlf.RlfError, match=words) as caught:
        name_function(cell[name], tmp_path)
    assert "sk-0123456789" not in str(caught.value) and not list(tmp_path.iterdir())


def test_what_has_no_json_is_refused_by_its_key(tmp_path):
    with pytest.raises(rlf.RlfError, match="model"):
        rlf.check({"name": "x", "model": {"path": {1, 2}}}, runs_folder=tmp_path)
