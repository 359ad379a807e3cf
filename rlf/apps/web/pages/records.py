"""A run's records beside its results: the machine, and the log."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from rlf.apps.web.log import read_files, read_log
from rlf.apps.web.overlays import read_moments
from rlf.apps.web.pages.runs import num_steps
from rlf.apps.web.pages.shared import is_part, lineage, page, site_of
from rlf.apps.web.system import latency_charts, system_charts
from rlf.apps.web.talk import find_server, talk_commands

router = APIRouter(include_in_schema=False)

_MAX_LINES = 1000
LEVELS = ("step", "eval", "saved", "info", "warning", "error", "run")


@router.get("/runs/{name}/system")
def show_system(request: Request, name: str, x: str = "time", log: str = "", smooth: float = 0.0) -> HTMLResponse:
    """Throughput, time, processor and memory over a run; its latencies come behind, for there may be a million."""
    site, latencies = site_of(request), None
    with lineage(request) as reader:
        run = reader.get_run(name)
        run_id = run.record.id
        steps = reader.steps(run_id)
        moments = read_moments(reader, run, steps)
        if is_part(request):
            key = ("latencies", run_id, run.last_step)
            latencies = [asdict(chart) for chart in site.keep(key, lambda: latency_charts(reader, run_id))]
    times, tokens = zip(*moments.values(), strict=True) if moments else ((), ())
    values = {
        "run": run,
        "charts": [asdict(chart) for chart in system_charts(steps)],
        "latencies": latencies,
        "arms": [{"steps": list(moments), "time": times, "tokens": tokens}],
        "view": {"x": x, "log": bool(log), "smooth": smooth},
    }
    return page(request, "system.html", f"system · {run_id}", place="runs", **values)


@router.get("/runs/{name}/chat")
def show_chat(request: Request, name: str) -> HTMLResponse:
    """A conversation with the model of a run's newest checkpoint."""
    site = site_of(request)
    with lineage(request) as reader:
        run = reader.get_run(name)
        talk = talk_commands(reader, run.record.id)
    job = find_server(site.jobs, run.record.id)
    values = {"run": run, "job": job, "ready": bool(job and job.address), "talk": talk}
    return page(request, "chat.html", f"chat · {run.record.id}", place="runs", **values)


@router.get("/runs/{name}/log")
def show_log(request: Request, name: str, level: str = "", text: str = "") -> HTMLResponse:
    """The course of a run line by line, and the files that its processes wrote."""
    site = site_of(request)
    with lineage(request) as reader:
        run = reader.get_run(name)
        lines = read_log(reader, run, num_steps(run), level, text)
        files = read_files(site.runs_folder, run.record.id, site.jobs, site.files.make_redactor())
    values = {"run": run, "lines": lines[-_MAX_LINES:], "num_lines": len(lines), "files": files}
    asked = {"level": level, "text": text, "levels": LEVELS}
    return page(request, "log.html", f"log · {run.record.id}", place="runs", **values, **asked)
