"""What tools and rewards import and read is an input of the run: recorded, and compared when it is run again."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlf.cli import app
from rlf.core import RlfError
from rlf.core.callables import load_callable, opened_files
from rlf.core.process import library_folders
from rlf.environments.processes import ClassProcesses
from rlf.lineage.reader import Reader
from rlf.lineage.records import FileRecord, FilesRead
from rlf.runs.place import Places, open_lineage
from rlf.runs.plans import check_spec
from rlf.runs.provenance import ReadFiles, packages
from rlf.runs.start import run
from rlf.tools.python.processes import ProcessRuntime
from rlf.types import StepFinished

from ..lineage.builders import run_record
from .conftest import ROOT

TOOL = """name: search
description: Find passages.
inputSchema: {type: object, properties: {query: {type: string}}, required: [query]}
target: {kind: python, callable: "tool.py:look", isolation: ISOLATION}
"""
SPEC = f"""extends: {ROOT / "specs" / "search_no_tool.yaml"}
name: reading
tools: [look.yaml]
rewards: [{{kind: python, name: own, callable: "reward.py:score"}}]
train: {{steps: 2, prompts_per_step: 2}}
rollout: {{num_generations: 2}}
eval: {{every: 1, limit: 2, greedy: false}}
checkpoint: {{every: 1}}
"""
LOOK = """import csv
import importlib
import pathlib
import sys

def look(query: str) -> str:
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    importlib.import_module("plug" + "ged")
    importlib.import_module("shop" + "shown")
    with open(pathlib.Path(__file__).with_name("rows.csv")) as file:
        return str(list(csv.reader(file)))
"""
SCORE = """import importlib

def score(trajectory):
    from shopgrade import grade

    importlib.import_module("shop" + "extra")

    with open("/proc/self/cmdline"), open("weights.txt") as file:
        return grade(float(file.read()))
"""


def install(site: Path, name: str, version: str, source: str, *requires: str) -> None:
    """A package as pip leaves it behind."""
    module = name.replace("-", "")
    (site / module).mkdir(parents=True, exist_ok=True)
    (site / module / "__init__.py").write_text(source)
    for old in site.glob(f"{name.replace('-', '_')}-*.dist-info/*"):
        old.unlink()
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    lines = [f"Requires-Dist: {each}" for each in requires]
    (info / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines]))
    (info / "top_level.txt").write_text(module)
    (info / "RECORD").write_text(f"{module}/__init__.py,sha256={hash(source)},1\n")


@pytest.fixture
def project(tmp_path, monkeypatch):
    site = tmp_path / "lib" / "site-packages"
    install(site, "shop-grade", "2.0", "from shopbase import half\ndef grade(w): return w * half\n", "shop-base>=1")
    install(site, "shop-base", "1.0", "half = 0.5\n")
    install(site, "shop-extra", "3.0", "from shopunder import ten\n")
    install(site, "shop-under", "4.0", "ten = 10\n")
    install(site, "shop-shown", "5.0", "")
    (tmp_path / "look.yaml").write_text(TOOL.replace("ISOLATION", "process"))
    for name, text in {"tool.py": LOOK, "reward.py": SCORE, "spec.yaml": SPEC, "plugged.py": ""}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "rows.csv").write_text("a,b\n")
    (tmp_path / "weights.txt").write_text("1.0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", str(site))
    return tmp_path


def rlf(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def stop_after_one(_info):
    def see(event):
        if isinstance(event, StepFinished):
            raise RlfError("stopped here")

    return see


def test_what_tools_and_rewards_import_and_read_is_compared_when_a_run_goes_on_and_is_run_again(project):
    with pytest.raises(RlfError, match="stopped here"):
        run([project / "spec.yaml"], [], runs_folder=project / "runs", view=stop_after_one, command=["rlf"])
    with open_lineage(project / "runs") as store:
        record = Reader(store).get_run("latest").record
    read = {file.path: file.role for file in record.files if file.role in ("code", "data")}
    assert {"rows.csv": "data", "weights.txt": "data", "plugged.py": "code"}.items() <= read.items()
    assert not any(path.startswith(("/proc", "runs", "lib")) for path in read)
    assert record.packages["shop-grade"] == "2.0" and record.packages["shop-base"] == "1.0"
    by_name = {file.path: file.sha256 for file in record.files if file.role == "package"}
    assert by_name == {"shop-extra": "3.0", "shop-under": "4.0", "shop-shown": "5.0"}, "imported by computed names"

    install(project / "lib" / "site-packages", "shop-base", "1.1", "half = 0.5\n")
    install(project / "lib" / "site-packages", "shop-under", "4.1", "ten = 10\n")
    (project / "rows.csv").write_text("a,c\n")
    (project / "weights.txt").write_text("1")
    refused = rlf("resume", "latest", "--runs", project / "runs")
    assert refused.exit_code == 2
    changed = {line.strip().partition(":")[0] for line in refused.stderr.splitlines() if "→" in line}
    assert changed == {"data rows.csv", "data weights.txt", "package shop-base", "package shop-under"}
    again = rlf("runs", "reproduce", "latest", "--verify", "--live", "--runs", project / "runs")
    differs = {line.split("  ")[0] for line in again.stdout.splitlines() if line.startswith("differs: ")}
    names = ["data rows.csv", "data weights.txt", "package shop-base", "package shop-under"]
    assert {f"differs: {name}" for name in names} == {
        line
        for line in differs
        if not line.startswith("differs: row ")  # of the step that the original did not end
    }


def test_of_an_installed_module_that_is_imported_the_package_is_known_once(project, monkeypatch):
    site = project / "lib" / "site-packages"
    install(site, "shop-late", "1.0", "from shopfirst import ten\n")
    install(site, "shop-first", "1.0", "ten = 10\n")
    (site / "shopone.py").write_text("")
    (site / "shoplate" / "more.py").write_text("")
    folders = (*library_folders(), str(site))
    monkeypatch.setattr("rlf.core.callables.library_folders", lambda: folders)
    monkeypatch.setattr("rlf.core.callables._package_folders", lambda: (str(site),))
    (project / "imports.py").write_text(
        "import importlib\n\ndef go():\n    for name in ('shoplate.more', 'shopone'):\n"
        "        importlib.import_module(name)\n    open('lib/site-packages/shoplate/data.json').close()\n"
    )
    (site / "shoplate" / "data.json").write_text("{}")
    go, before = load_callable(f"{project / 'imports.py'}:go"), len(opened_files())
    go()
    found = [path for code, path in opened_files(before) if code.endswith("imports.py")]
    assert {str(site / name) for name in ("shoplate", "shopfirst")} <= set(found) and len(found) == len(set(found))
    assert str(site / "shopone") in {path.removesuffix(".py") for path in found}
    assert not any(path.endswith(("more.py", "data.json")) for path in found)


def test_packages_are_recorded_with_what_they_require_and_by_their_files_where_no_registry_gave_them(project):
    plan = check_spec([project / "spec.yaml"], []).plan
    assert packages([plan])["shop-grade"] == "2.0"
    assert {"sympy", "mpmath", "latex2sympy2-extended", "sqlite"} <= packages().keys()
    info = project / "lib" / "site-packages" / "shop_grade-2.0.dist-info"

    def install_with(name: str, text: str) -> None:
        (info / name).write_text(text)
        os.utime(info.parent)  # as where a package is taken away and put there again

    install_with("direct_url.json", '{"url": "file:///here", "dir_info": {}}')
    built = packages([plan])["shop-grade"]
    install_with("RECORD", "shopgrade/__init__.py,sha256=other,1\nshop_grade-2.0.dist-info/RECORD,,\n")
    assert built.startswith("2.0+") and packages([plan])["shop-grade"] not in (built, "2.0")
    install_with("direct_url.json", '{"url": "file:///here", "dir_info": {"editable": true}}')
    install_with("METADATA", "Name: shop-grade\nVersion: 2.0\nRequires-Dist: no requirement at all (\n")
    assert packages([plan])["shop-grade"] == "2.0"


def test_what_a_function_or_a_class_in_a_process_of_its_own_reads_is_known_here(project):
    world = (
        "class World:\n    def reset(self):\n        return open('words.txt').read()\n    def score(self): return 1\n"
    )
    (project / "world.py").write_text(world)
    (project / "words.txt").write_text("a")
    names = [f"{project / 'tool.py'}:look", f"{project / 'world.py'}:World"]
    made_by = load_callable(names[1])

    async def call() -> None:
        runtime = ProcessRuntime(names[0])
        await runtime.open()
        await runtime.make_ready("t")
        await runtime.invoke({"query": "a"}, None)
        await runtime.close()
        async with ClassProcesses(names[1], made_by, {}) as place:
            await place.live(world := await place.make(), "reset")
            await place.discard(world)

    before = len(opened_files())
    asyncio.run(call())
    read = {(Path(code).name, Path(path).name) for code, path in opened_files(before)}
    assert {("tool.py", "rows.csv"), ("world.py", "words.txt")} <= read


def reading(project, monkeypatch, opened, code="tool.py"):
    """What is recorded of files that were opened by code of a run that has just started."""
    record = replace(run_record(cwd=str(project), files=(FileRecord("code", code, "0"),)), started=time.time() - 60)
    monkeypatch.setattr("rlf.runs.provenance.opened_files", lambda after: opened[after:])
    found = list[FilesRead]()
    files = ReadFiles(record, Places(None, None, project), project / "runs")
    return files, found, [files.record_into(found.append)]


def test_only_the_data_of_the_runs_own_code_is_recorded(project, monkeypatch):
    names = ["rows.csv", ".env", "new.log", "runs/rlf.db", "weights.txt", "folder", "../beside/x.csv"]
    (project / "runs").mkdir()
    (project / "folder").mkdir()
    (project.parent / "beside").mkdir(exist_ok=True)
    for name in (*names[:4], names[-1]):
        (project / name).write_text("x")
    for name in (*names, "tool.py"):
        os.utime(project / name, (1, 1))
    (project / "new.log").write_text("newer than the run")
    mine = [(str(project / "tool.py"), str(project / name)) for name in names]
    others = [(str(project / "other.py"), str(project / "reward.py")), (os.__file__, str(project / "plugged.py"))]
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(project.parent))
    _, found, _ = reading(project, monkeypatch, [*mine, *others])
    assert [(file.role, file.path) for file in found[0].new] == [("data", "rows.csv"), ("data", "weights.txt")]


def test_a_file_that_changes_while_the_run_uses_it_is_no_input_and_is_named(project, monkeypatch):
    os.utime(project / "rows.csv", (1, 1))
    files, found, (first,) = reading(project, monkeypatch, [(str(project / "tool.py"), str(project / "rows.csv"))])
    assert first == [] and files.record_into(found.append) == [] and len(found) == 1
    (project / "rows.csv").write_text("another")
    (notice,) = files.record_into(found.append)
    assert "data rows.csv changed while the run used it" in notice.text
    assert found[-1] == FilesRead((), found[0].new)
