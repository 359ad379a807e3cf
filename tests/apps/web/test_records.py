"""A run's records beside its results: the machine, latencies, the log."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import asdict

import pytest

from rlf.apps.web.system import percentile, system_charts
from rlf.lineage.process import process_of
from rlf.lineage.records import TrainingStep

from ...reports.synthetic import run_record

RUN = f"/runs/{run_record().id}"


def _charts(page: str) -> dict[str, dict]:
    found = re.findall(r'class="curves"[^>]*>(.*?)</script>', page)
    return {chart["title"]: chart for part in found for chart in json.loads(part)}


@pytest.mark.parametrize(("share", "value"), [(50, 5), (95, 10), (99, 10), (10, 1), (1, 1)])
def test_a_percentile_is_a_value_that_was_measured(share, value):
    assert percentile(range(1, 11), share) == value  # ceil(share / 100 * 10) of 1..10
    assert percentile([7.0], share) == 7.0


def test_cores_in_use_are_the_processors_time_over_that_of_the_step():
    steps = [TrainingStep(step, {"time/step_s": 2.0, "time/processor_s": 3.0 * step}, 0.0) for step in (1, 2)]
    cores = next(chart for chart in system_charts(steps) if "cores" in chart.title)
    assert cores.lines[0].points == ((1, 1.5), (2, 3.0))
    assert [chart.title for chart in system_charts(steps)] == ["seconds of a step", "processor, cores in use"]


def test_a_gpus_load_is_a_chart_of_its_own_and_its_memory_a_line():
    steps = [TrainingStep(step, {"gpu/busy": 0.5, "gpu/held_bytes": 2.0**31}, 0.0) for step in (1, 2)]
    memory, busy = system_charts(steps)
    assert busy.share and busy.lines[0].points == ((1, 0.5), (2, 0.5))
    assert [(line.name, line.points[0]) for line in memory.lines] == [("GPU", (1, 2.0))]


def test_a_runs_machine_comes_first_and_its_latencies_behind(client):
    frame = client.get(f"{RUN}/system").text
    shown = _charts(frame)
    assert {"tokens a second", "memory, GiB", "seconds of a step"} == set(shown) - {"time waiting for tools"}
    assert [line["name"] for line in shown["tokens a second"]["lines"]] == ["sampled", "trained"]
    assert 'hx-select="#latency"' in frame
    part = client.get(f"{RUN}/system", headers={"HX-Request": "true"}).text
    found = {title: chart for title, chart in _charts(part).items() if "seconds" in title and title not in shown}
    assert set(found) == {"a trajectory, seconds", "search, milliseconds"}
    lines = found["a trajectory, seconds"]["lines"]
    assert [line["name"] for line in lines] == ["p50", "p95", "p99"]
    assert lines[0]["points"] == [[1, 0.02], [2, 0.02]]


def test_the_log_has_all_of_a_runs_course_in_order_and_is_searched(client):
    def lines(query: str = "") -> list[str]:
        return re.findall(r"<td>(\w+)</td><td><code>", client.get(f"{RUN}/log{query}").text)

    every = lines()
    assert every[0] == "run" and every.count("step") == 2 and every.count("eval") == 6 and every.count("saved") == 2
    assert lines("?level=warning") == ["warning"]
    assert lines("?text=GREEDY") == ["eval"] * 3
    assert "No line matches" in client.get(f"{RUN}/log?text=nowhere").text


def test_files_of_a_runs_processes_are_shown_without_secrets_and_no_link_leads_out(
    clients, runs_folder, tmp_path, monkeypatch
):
    monkeypatch.setenv("OTHER_API_KEY", "a-very-secret-value")
    folder = shutil.copytree(runs_folder, tmp_path / "runs")
    logs = folder / run_record().id / "logs"
    logs.mkdir(parents=True)
    (logs / "attempt-1.log").write_text("<b>began</b> with a-very-secret-value\n")
    (tmp_path / "outside.log").write_text("of somebody else\n")
    (logs / "link.log").symlink_to(tmp_path / "outside.log")
    job = folder / ".jobs/20260102-030405-abcd"
    job.mkdir(parents=True)
    about = {"action": "run", "command": "rlf run", "started": 0.0, "process": asdict(process_of(os.getpid()))}
    (job / "job.json").write_text(json.dumps(about))
    (job / "stdout").write_text(json.dumps({"data": {"run_id": run_record().id}}) + "\n")
    (job / "stderr").write_text("message of the job\n")
    (job / "exit_code").write_text("0\n")
    page = clients(runs_folder=folder, project=tmp_path).get(f"{RUN}/log").text
    assert "&lt;b&gt;began&lt;/b&gt;" in page and "attempt-1.log" in page
    assert "a-very-secret-value" not in page and "of somebody else" not in page
    assert "message of the job" in page
