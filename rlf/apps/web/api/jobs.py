"""Jobs that the page started; and stopping, resuming and forking of runs."""

from __future__ import annotations

from io import BytesIO
from typing import Annotated
from zipfile import ZIP_DEFLATED, ZipFile

from fastapi import Body, Response

from rlf.apps.web.jobs import (
    PAGES,
    ChatAnswer,
    ChatMessage,
    CommandJob,
    RunStop,
    ask,
    checked_words,
    start_server,
    stop_run,
)
from rlf.apps.web.site import Area, Site

Flag = Annotated[bool, Body(embed=True)]


def routes(site: Site) -> Area:
    """The routes of the area."""
    area = Area(site, "jobs")

    @area.read("/jobs")
    def list_jobs() -> tuple[CommandJob, ...]:
        """Commands that pages of this project started, the newest first."""
        return site.jobs.list()

    @area.read("/jobs/{job}")
    def show_job(job: str) -> CommandJob:
        """One job, with its result as soon as it has one."""
        return site.jobs.get(job)

    @area.router.get("/jobs/{job}/pages", operation_id="download_pages", response_class=Response)
    def download_pages(job: str) -> Response:
        """The pages that an export has written, as one archive."""
        archive, folder = BytesIO(), site.jobs.pages(job)
        with ZipFile(archive, "w", ZIP_DEFLATED, compresslevel=1) as file:
            for path in sorted(folder.rglob("*")):
                file.write(path, path.relative_to(folder))
        named = {"Content-Disposition": f'attachment; filename="{job}.zip"'}
        return Response(archive.getvalue(), media_type="application/zip", headers=named)

    @area.act("DELETE", "/jobs/{job}")
    def stop_job(job: str) -> CommandJob:
        """Interrupts a job as Ctrl-C does."""
        return site.jobs.stop(job)

    @area.act("POST", "/runs/{run}/stop")
    def stop(run: str, force: Flag = False) -> RunStop:
        """Stops a run of this machine so that it can be resumed."""
        with site.reader() as reader:
            return stop_run(reader, run, force=force)

    @area.act("POST", "/runs/{run}/resume", status=202)
    def resume(run: str, accept_changes: Flag = False) -> CommandJob:
        """Continues a run from its last checkpoint."""
        with site.reader() as reader:
            run_id = reader.get_run(run).record.id
        return site.jobs.start("resume", ["resume", run_id, *(["--accept-changes"] if accept_changes else [])])

    @area.act("POST", "/runs/{run}/export", status=202)
    def export(run: str) -> CommandJob:
        """Writes a run as pages to share, as a job whose `pages` are the archive."""
        with site.reader() as reader:
            run_id = reader.get_run(run).record.id
        return site.jobs.start("export", ["web", "export", run_id], writes=PAGES)

    @area.act("POST", "/runs/{run}/chat", status=202)
    def open_chat(run: str) -> CommandJob:
        """Serves a run's newest checkpoint with its tools, as a job; the one that does so already is returned."""
        with site.reader() as reader:
            run_id = reader.get_run(run).record.id
        return start_server(site.jobs, run_id)

    @area.act("POST", "/runs/{run}/messages")
    def ask_model(
        run: str, messages: Annotated[list[ChatMessage], Body(embed=True, min_length=1, max_length=200)]
    ) -> ChatAnswer:
        """The answer of a run's served model to a conversation."""
        with site.reader() as reader:
            run_id = reader.get_run(run).record.id
        return ask(site.jobs, run_id, messages)

    @area.act("POST", "/runs/{run}/fork", status=202)
    def fork(
        run: str,
        step: Annotated[int | None, Body(ge=0)] = None,
        overrides: Annotated[list[str], Body(max_length=100)] = [],  # noqa: B006
    ) -> CommandJob:
        """Starts a child run from a checkpoint of a run, with changes."""
        with site.reader() as reader:
            run_id = reader.get_run(run).record.id
        of = run_id if step is None else f"{run_id}@{step}"
        return site.jobs.start("fork", ["runs", "fork", of, *checked_words([], overrides)])

    @area.act("POST", "/runs/{run}/t/{phase}/{step}/{k}/branches", status=202)
    def branch(
        run: str,
        phase: str,
        step: int,
        k: int,
        turn: Annotated[int, Body(ge=0)] = 0,
        samples: Annotated[int, Body(ge=1, le=256)] = 8,
        observation: Annotated[str | None, Body(max_length=100_000)] = None,
    ) -> CommandJob:
        """Plays a trajectory again from one of its turns, as a job; the result is an evaluation of its own."""
        with site.reader() as reader:
            found = reader.trajectory(reader.get_run(run).record.id, k=k, step=step, phase=phase).summary
            run_id = reader.get_run(run).record.id
        words = ["runs", "branch", run_id, str(found.k), f"--step={found.step}", f"--phase={found.phase}"]
        words += [f"--turn={turn}", f"--samples={samples}"]
        return site.jobs.start("branch", [*words, *([] if observation is None else [f"--observation={observation}"])])

    return area
