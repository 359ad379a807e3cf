"""Tools, rewards, data, projects and the machine: each request runs in its own fork, or as a job if it is slow."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Body, Query

from rlf.apps.web.jobs import CommandJob, checked_words
from rlf.apps.web.site import Area, Site
from rlf.core.errors import NotFoundError, RlfError

Place = Annotated[str, Body()]
Words = Annotated[list[str], Body(max_length=100)]
Step = Annotated[int | None, Body(ge=0)]
_TRIAL_S, _SLOW_S = 120, 90


def routes(site: Site) -> Area:
    """The routes of the area."""
    area = Area(site, "parts")
    _add_data(area, site)
    by_app = {
        "tools": _add_tools,
        "rewards": _add_rewards,
        "worlds": _add_worlds,
        "bench": _add_benchmarks,
        "evaluate": _add_explanations,
        "doctor": _add_machine,
        "init": _add_projects,
    }
    for name, add in by_app.items():
        if name in site.settings.apps:
            add(area, site)
    return area


def _add_tools(area: Area, site: Site) -> None:
    @area.read("/tools", task="list_tools")
    def list_tools() -> Any:
        """Every tool file's tools as the model is shown them, or the file's faults."""
        files = site.files.names("tool_specs")
        return site.fresh.read("list_tools", files=files) if files else []

    @area.read("/tools/{file}/{name}", task="show_tool")
    def show_tool(file: str, name: str, spec: str = "") -> Any:
        """A tool; with a spec its prompt as that spec's model reads it, token by token."""
        if spec:
            site.files.path(spec)
        return site.fresh.read("show_tool", file=_tool(site, file), name=name, spec=spec or None, deadline_s=_SLOW_S)

    @area.act("POST", "/tools/{file}/call", task="call_tool")
    def call_tool(file: str, arguments: Annotated[dict[str, Any], Body()], tool: Annotated[str, Body()] = "") -> Any:
        """One call as the model would make it, within the tool's limits; `tool` names one of several."""
        return site.fresh.call(
            "call_tool", file=_tool(site, file), name=tool or None, arguments=arguments, deadline_s=_TRIAL_S
        )

    @area.act("POST", "/tools/{file}/{action}", status=202)
    def examine_tool(file: str, action: Literal["test", "bench"]) -> CommandJob:
        """Tests or benchmarks a tool as a job."""
        return site.jobs.start(f"tools {action}", ["tools", action, _tool(site, file)], records=False)


def _add_rewards(area: Area, site: Site) -> None:
    @area.read("/rewards", task="list_rewards")
    def list_rewards() -> Any:
        """The terms of every reward file."""
        files = site.files.names("reward_specs")
        return site.fresh.read("list_rewards", files=files) if files else []

    @area.act("POST", "/rewards/test", task="try_rewards")
    def try_rewards(files: Annotated[list[str], Body(embed=True, max_length=50)]) -> Any:
        """Tries terms on their examples and on gold, empty, malformed and long answers."""
        for file in files:
            site.files.path(file)
        return site.fresh.call("try_rewards", files=files, deadline_s=_TRIAL_S)

    @area.act("POST", "/rewards/rescore", task="rescore")
    def rescore(
        run: Place,
        spec: Annotated[str, Body()] = "",
        phase: Annotated[str, Body()] = "train",
        step: Step = None,
        weights: Annotated[dict[str, float], Body()] = {},  # noqa: B006
        overrides: Words = [],  # noqa: B006
    ) -> Any:
        """Scores a step of a run again with other weights or another spec: which ranks and advantages change."""
        with site.reader() as reader:
            run_id = reader.get_run(run).record.id
        if spec:
            site.files.path(spec)
        return site.fresh.call(
            "rescore",
            spec=spec or None,
            overrides=checked_words([], overrides),
            weights=weights,
            run=run_id,
            runs=str(site.runs_folder),
            phase=phase,
            step=step,
            deadline_s=_TRIAL_S,
        )

    @area.act("POST", "/rewards/attack", status=202)
    def attack_rewards(spec: Place, overrides: Words = []) -> CommandJob:  # noqa: B006
        """Looks for wrong answers that a reward pays, as a job."""
        site.files.path(spec)
        return site.jobs.start(
            "rewards attack", ["rewards", "attack", *checked_words([spec], overrides)], records=False
        )


def _add_worlds(area: Area, site: Site) -> None:
    @area.read("/worlds", task="list_worlds")
    def list_worlds() -> Any:
        """Kinds of worlds, and the specs that have one."""
        return site.fresh.read("list_worlds")

    @area.act("POST", "/worlds/play", task="play_world")
    def play_world(
        spec: Place,
        task: Annotated[int, Body(ge=0)] = 0,
        actions: Annotated[list[str | dict[str, Any]], Body(max_length=200)] = [],  # noqa: B006
    ) -> Any:
        """The world of a spec after some actions, which are words or calls; it begins again for each request."""
        site.files.path(spec)
        return site.fresh.call("play_world", spec=spec, number=task, actions=actions, deadline_s=_TRIAL_S)

    @area.act("POST", "/worlds/{action}", status=202)
    def examine_world(action: Literal["prove", "attack"], spec: Annotated[str, Body(embed=True)]) -> CommandJob:
        """Proves a world, or attacks its rewards, as a job."""
        site.files.path(spec)
        return site.jobs.start(f"env {action}", ["env", action, spec], records=False)


def _add_data(area: Area, site: Site) -> None:
    @area.read("/data/{which}/{spec:path}", task="show_data")
    def show_data(
        which: Literal["train", "eval"],
        spec: str,
        begin: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
    ) -> Any:
        """Rows of a spec's data as tasks, their lengths, and the rows that repeat or are in both sets."""
        site.files.path(spec)
        return site.fresh.read(
            "show_data", spec=spec, overrides=[], which=which, begin=begin, limit=limit, deadline_s=_SLOW_S
        )

    @area.read("/prompt/{spec:path}", task="show_prompt")
    def show_prompt(spec: str) -> Any:
        """The first question of a spec as its model reads it, token by token."""
        site.files.path(spec)
        return site.fresh.read("show_prompt", spec=spec, overrides=[], deadline_s=_SLOW_S)


def _add_explanations(area: Area, site: Site) -> None:
    @area.read("/runs/{run}/why/{step}/{k}", task="explain_advantage")
    def explain_advantage(run: str, step: int, k: int) -> Any:
        """Why a training trajectory has its advantage: scores, weights, group and tokens, against what is stored."""
        with site.reader() as reader:
            run_id = reader.get_run(run).record.id
        return site.fresh.read(
            "explain_advantage", run=run_id, runs=str(site.runs_folder), step=step, k=k, deadline_s=_SLOW_S
        )


def _add_benchmarks(area: Area, site: Site) -> None:
    @area.read("/benchmarks", task="list_benchmarks")
    def show_benchmarks() -> Any:
        """The table over models of each benchmark that was tried, with the evaluation of each model."""
        return site.fresh.call("list_benchmarks", runs=str(site.runs_folder), deadline_s=_SLOW_S)


def _add_machine(area: Area, site: Site) -> None:
    @area.read("/doctor", task="examine")
    def show_machine() -> Any:
        """Examines this machine, as `rlf doctor` does."""
        return site.fresh.call("examine", runs=str(site.runs_folder), deadline_s=_SLOW_S)


def _add_projects(area: Area, site: Site) -> None:
    @area.read("/projects", task="list_projects")
    def list_projects() -> Any:
        """This project, those beside it, and the templates of new ones."""
        return site.fresh.call("list_projects", folder=str(site.settings.project))

    @area.act("POST", "/projects/open", status=202)
    def open_project(name: Annotated[str, Body(embed=True, max_length=100)]) -> CommandJob:
        """Serves the page of a project beside this one as a job, which has its address."""
        folder = site.settings.project.parent / name
        if name not in site.fresh.call("list_projects", folder=str(site.settings.project))["beside"]:
            raise NotFoundError(f"project {name!r}: there is no such project beside this one.")
        return site.jobs.start("web", ["web", str(folder), "--port", "0"], records=False)

    @area.act("POST", "/projects/here", status=201, task="make_project")
    def fill_project(template: Annotated[str, Body(embed=True)] = "python") -> Any:
        """Makes this folder a project from a template; it must be empty."""
        return site.fresh.call("make_project", folder=str(site.settings.project), template=template)

    @area.act("POST", "/projects", status=201, task="make_project")
    def make_project(name: Place, template: Annotated[str, Body()] = "python") -> Any:
        """Makes a project folder beside this one from a template."""
        if "/" in name or "\\" in name or name.startswith("."):
            raise RlfError(f"name: got {name[:80]!r}; expected letters, digits, `.`, `_` and `-`.")
        return site.fresh.call("make_project", folder=str(site.settings.project.parent / name), template=template)


def _tool(site: Site, file: str) -> str:
    """The path of a tool file by its name, or by its path. Raises NotFoundError where there is none."""
    path = f"tool_specs/{file}"
    if not site.files.path(path).is_file():
        raise NotFoundError(f"{path}: there is no such file.")
    return path
