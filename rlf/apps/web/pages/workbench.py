"""Pages of tools, rewards, data, benchmarks, jobs, the machine and projects, with forms to try them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from rlf.apps.web.pages.shared import is_part, lineage, page, site_of
from rlf.apps.web.run_views import run_title
from rlf.apps.web.site import Site
from rlf.core.errors import RlfError

router = APIRouter(include_in_schema=False)
_PER_PAGE = 50
_SLOW_S = 90
_NUM_RUNS = 30


@router.get("/tools")
@router.get("/tools/{file}")
def show_tools(request: Request, file: str = "", tool: str = "", spec: str = "") -> HTMLResponse:
    """Every tool, and one of them with a form to call it and the prompt as a spec's model reads it.

    The frame comes first, where the tools are not known from before.
    """
    site, files = site_of(request), site_of(request).files.names("tool_specs")
    is_read = not files or is_part(request) or (not spec and site.fresh.is_kept("list_tools", files=files))
    declared = site.fresh.read("list_tools", files=files) if files and is_read else []
    path = f"tool_specs/{file}"
    mine = [one for one in declared if one["file"] == path]
    chosen = next((one for one in mine if one["tool"] and tool in ("", one["tool"]["name"])), mine[0] if mine else None)
    shown, fault = None, ""
    if spec and chosen and chosen["tool"]:
        site.files.path(spec)
        try:
            name = chosen["tool"]["name"]
            shown = site.fresh.read("show_tool", file=path, name=name, spec=spec, deadline_s=_SLOW_S)
        except RlfError as error:
            fault = str(error)
    values = {"declared": declared, "chosen": chosen, "specs": site_of(request).files.names("specs"), "spec": spec}
    about = {"file": file, "shown": shown, "fault": fault, "is_read": is_read, "here": _here(request)}
    return page(request, "tools.html", file or "Tools", place="tools", **about, **values)


@router.get("/worlds")
@router.get("/worlds/{spec:path}")
def show_worlds(request: Request, spec: str = "", task: int = 0) -> HTMLResponse:
    """Specs with a world, and one of them to play."""
    site = site_of(request)
    if spec:
        site.files.path(spec)
    found = [(kind["kind"], file) for kind in site.fresh.read("list_worlds") for file in kind["files"]]
    values = {"worlds": found, "spec": spec, "task": max(0, task)}
    return page(request, "worlds.html", spec or "Worlds", place="worlds", **values)


@router.get("/rewards")
def show_rewards(request: Request, run: str = "", phase: str = "train", step: int | None = None) -> HTMLResponse:
    """Every term; with a run its terms as weights to move, over one of its steps.

    The frame comes first, where the terms are not known from before.
    """
    site, files = site_of(request), site_of(request).files.names("reward_specs")
    is_read = not files or is_part(request) or site.fresh.is_kept("list_rewards", files=files)
    terms, fault = _read_terms(site, files) if files and is_read else ([], "")
    chosen, weights = None, list[tuple[str, float]]()
    runs: list[Any] = []
    if site.has_lineage:
        with lineage(request) as reader:
            tags, found = reader.tags(), reader.run_lines(limit=4 * _NUM_RUNS)
            named = [
                replace(line, name=run_title(line.name, tags.get(line.id, ()))) for line in found if line.last_step
            ]
            runs = named[:_NUM_RUNS]
            chosen = reader.get_run(run) if run else None
    if chosen is not None:
        declared = chosen.record.plan.get("spec", {}).get("rewards", ())
        weights = [(term["name"], float(term.get("weight") or 0.0)) for term in declared]
    values = {"terms": terms, "fault": fault, "runs": runs, "run": chosen, "weights": weights}
    values["specs"], about = site.files.names("specs"), {"is_read": is_read, "here": _here(request)}
    return page(request, "rewards.html", "Rewards", place="rewards", phase=phase, step=step, **about, **values)


def _read_terms(site: Site, files: list[str]) -> tuple[list[dict[str, Any]], str]:
    """The terms of all files, by one process; where one has a fault, by a process each, with the faults."""
    try:
        return site.fresh.read("list_rewards", files=files), ""
    except RlfError:
        terms: list[dict[str, Any]] = []
        fault = ""
        for name in files:
            try:
                terms += site.fresh.read("list_rewards", files=[name])
            except RlfError as error:
                fault += f"{error}\n"
        return terms, fault


def _here(request: Request) -> str:
    """The address of a page, for its own part."""
    return f"{request.url.path}?{request.url.query}"


@router.get("/data")
@router.get("/data/{which}/{spec:path}")
def show_data_page(
    request: Request, which: Literal["train", "eval"] = "train", spec: str = "", begin: int = 0
) -> HTMLResponse:
    """Rows of a spec's data as tasks, their lengths, what repeats, and the first prompt; the frame comes first."""
    site, found, prompt, fault = site_of(request), None, None, ""
    if spec and is_part(request):
        site.files.path(spec)
        asked: dict[str, Any] = {"spec": spec, "overrides": [], "deadline_s": _SLOW_S}
        try:
            found = site.fresh.read("show_data", which=which, begin=max(0, begin), limit=_PER_PAGE, **asked)
            prompt = site.fresh.read("show_prompt", **asked) if not begin else None
        except RlfError as error:
            fault = str(error)
    about = {"which": which, "spec": spec, "begin": begin, "per_page": _PER_PAGE}
    values = {"found": found, "prompt": prompt, "fault": fault, "specs": site_of(request).files.names("specs")}
    return page(request, "data.html", "Data", place="data", **about, **values)


@router.get("/jobs")
def show_jobs(request: Request) -> HTMLResponse:
    """Commands that pages started, the newest first."""
    return page(request, "jobs.html", "Jobs", place="jobs", jobs=site_of(request).jobs.list())


@router.get("/doctor")
def show_machine(request: Request) -> HTMLResponse:
    """The findings about this machine; the frame comes first."""
    site, found = site_of(request), None
    if is_part(request):
        found = site.fresh.call("examine", runs=str(site.runs_folder), deadline_s=_SLOW_S)
    return page(request, "doctor.html", "Doctor", place="doctor", found=found)


@router.get("/benchmarks")
def show_benchmarks(request: Request) -> HTMLResponse:
    """The table over models of each benchmark that was tried; the frame comes first."""
    site, tables = site_of(request), None
    if is_part(request):
        tables = site.fresh.call("list_benchmarks", runs=str(site.runs_folder), deadline_s=_SLOW_S)
    return page(request, "benchmarks.html", "Benchmarks", place="bench", tables=tables)


@router.get("/projects")
def show_projects(request: Request) -> HTMLResponse:
    """This project, and a form that makes another one beside it."""
    site, folder = site_of(request), site_of(request).settings.project
    found = site.fresh.call("list_projects", folder=str(folder)) if "init" in site.settings.apps else {}
    beside = [name for name in found.get("beside", ()) if name != folder.name]
    values = {"beside": beside, "templates": found.get("templates", ()), "is_empty": not any(folder.iterdir())}
    values["recipes"] = found.get("recipes", ())
    return page(request, "projects.html", "Projects", place="projects", **values)
