"""As much of a Ray cluster's job server as a run asks for, in the folder FAKE_RAY: a folder for each job.

A job is run in a copy of its working folder without what is excluded, in a session of its own, as a cluster would go on
with it whatever becomes of whoever submitted it. A file `away` in the folder makes the server unreachable.
"""

import asyncio
import enum
import os
import shutil
import signal
import subprocess
from pathlib import Path


class JobStatus(enum.Enum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


class JobSubmissionClient:
    def __init__(self, address):
        self._folder = Path(os.environ["FAKE_RAY"])
        if (self._folder / "away").exists():
            raise ConnectionError(f"Failed to connect to Ray at address: {address}.")

    def submit_job(self, *, submission_id, entrypoint, runtime_env):
        folder = self._folder / submission_id
        excluded = shutil.ignore_patterns(*(name.strip("/") for name in runtime_env["excludes"]))
        shutil.copytree(runtime_env["working_dir"], folder / "copy", ignore=excluded)
        script = f"({entrypoint}) > ../log 2>&1; echo $? > ../code"
        environment = os.environ | runtime_env["env_vars"]
        (folder / "log").touch()
        quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        command = ["bash", "-c", script]
        process = subprocess.Popen(command, cwd=folder / "copy", env=environment, start_new_session=True, **quiet)
        (folder / "pid").write_text(str(process.pid))

    def get_job_status(self, job):
        folder = self._folder / job
        if not folder.is_dir():
            raise RuntimeError(f"Request failed with status code 404: Job {job} does not exist.")
        if (folder / "stopped").exists():
            return JobStatus.STOPPED
        if not (folder / "code").exists():
            return JobStatus.RUNNING
        return JobStatus.SUCCEEDED if (folder / "code").read_text() == "0\n" else JobStatus.FAILED

    async def tail_job_logs(self, job):
        with (self._folder / job / "log").open() as log:
            over = False
            while text := log.read() or (None if over else " "):
                if text == " ":
                    over = self.get_job_status(job) is not JobStatus.RUNNING
                    await asyncio.sleep(0.05)
                else:
                    yield text

    def stop_job(self, job):
        (self._folder / job / "stopped").touch()
        os.killpg(int((self._folder / job / "pid").read_text()), signal.SIGKILL)
