"""A run's machine and log, runs beside each other, curves over each other, and the project's specs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from rlf.apps.web.jobs import find_server, talk_commands
from rlf.apps.web.pages.runs import num_steps
from rlf.apps.web.pages.shared import is_part, lineage, page, site_of
from rlf.apps.web.plan_values import read_moments, read_overlay
from rlf.apps.web.run_views import page_overviews, run_title
from rlf.apps.web.system import latency_charts, read_files, read_log, system_charts
from rlf.core.errors import NotFoundError, RlfError
from rlf.core.registry import load_function
from rlf.lineage.reader import Reader

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


_NUM_OFFERED = 40


@router.get("/compare")
def show_comparison(
    request: Request, a: Annotated[Sequence[str], Query()] = (), mode: str | None = None
) -> HTMLResponse:
    """Arms, the first one the baseline; commas join the seeds of one. With fewer than two a choice of runs."""
    if "compare" not in site_of(request).settings.apps:
        raise NotFoundError("this rlf has no `rlf runs compare`, whose page this is.")
    fault = ""
    if not site_of(request).has_lineage and not a:
        return page(request, "choose.html", "Compare", place="compare", chosen=(), offered=(), fault="")
    with lineage(request) as reader:
        names = [name for name in a if name.strip()]
        if names:
            try:
                return _compared(request, reader, names, mode or None)
            except RlfError as error:
                fault = str(error) if len(names) > 1 else ""
        found = page_overviews(reader, None, None, None, _NUM_OFFERED).runs
        offered = [replace(run, name=run_title(run.name, run.tags)) for run in found]
    return page(request, "choose.html", "Compare", place="compare", chosen=names, offered=offered, fault=fault)


def _compared(request: Request, reader: Reader, names: Sequence[str], mode: str | None) -> HTMLResponse:
    values = load_function("apps.compare.page:template_values")(reader, names, mode)
    command = shlex.join(["rlf", "runs", "compare", *names, *(["--mode", mode] if mode else [])])
    about: dict[str, Any] = {"command": command, "names": names, "mode": mode or ""}
    return page(request, "compare_page.html", place="compare", **about, **values)


AXES = {"step": "step", "time": "time", "tokens": "tokens"}


@router.get("/curves")
def show_curves(
    request: Request,
    a: Annotated[Sequence[str], Query()] = (),
    m: str = "",
    group: str = "",
    x: str = "step",
    log: str = "",
    smooth: Annotated[float, Query(ge=0, lt=1)] = 0.0,
) -> HTMLResponse:
    """The curves of runs over each other.

    Args:
        a: the runs.
        m: the metric at full size.
        group: a key of the plans whose values are the lines, instead of runs.
        x: what the curves are drawn by: `step`, `time` or `tokens`.
    """
    if not a:
        raise RlfError("curves: no run is named. Choose some in the list of runs, then press Curves.")
    with lineage(request) as reader:
        found = read_overlay(reader, list(a), m, group)
        lines, tags = (
            [reader.run_lines(run_id=run_id)[0] for arm in found.arms for run_id in arm.run_ids],
            reader.tags(),
        )
        runs = {line.id: replace(line, name=run_title(line.name, tags.get(line.id, ()))) for line in lines}
    values = {
        "found": found,
        "runs": runs,
        "arms": [asdict(arm) for arm in found.arms],
        "charts": [asdict(found.chart)] if found.chart else [],
        "others": [asdict(chart) for chart in found.others],
        "group": group,
        "view": {"x": x if x in AXES else "step", "log": bool(log), "smooth": smooth},
    }
    return page(request, "curves.html", "Curves", place="runs", **values)


_ROLES = {"specs": "spec", "tool_specs": "tool", "reward_specs": "reward"}


@router.get("/specs")
def show_specs(request: Request) -> HTMLResponse:
    """The project's files; none is open."""
    return page(request, "spec.html", "Specs", place="specs", tree=_tree(request), file=None, role="spec")


@router.get("/specs/{path:path}")
def show_spec(request: Request, path: str) -> HTMLResponse:
    """One file in the editor."""
    file = site_of(request).files.read(path)
    values = {"tree": _tree(request), "file": file, "role": _ROLES[path.split("/")[0]]}
    return page(request, "spec.html", path, place="specs", **values)


def _tree(request: Request) -> dict[str, list[str]]:
    return {folder: site_of(request).files.names(folder) for folder in _ROLES}
