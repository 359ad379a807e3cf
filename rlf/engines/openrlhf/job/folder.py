"""The job folder: everything that OpenRLHF needs to run a plan, as files that a person can read and start by hand.

    argv.json      options of `python -m openrlhf.cli.train_ppo_ray`, a list of strings
    launch.sh      the same as a shell script: `bash launch.sh` starts the job
    agent.py       `AgentExecutor`, which hands over to rlf with the folder that it lies in
    plan.json      the plan, as `rlf.plan.plan_to_json` writes it
    env.json       environment variables: values that the job sets, and names of the secrets that it needs
    ingest.pem     the certificate of the machine that takes records, with `engine.ingest.certificate`
    data/          train.jsonl and, with an evaluation set, eval.jsonl (`job.dataset`)
    images/        the images that they name, each once (`job.images`), unless every node sees them in `output`
    spool/         one file per process: trajectories, tool calls and scores, written by the agents, or copies of such
                   files on the nodes (`engine.ingest`)
    ckpt/          DeepSpeed checkpoints in `_actor` and `_critic`, Hugging Face folders in `global_stepN_hf`
    attempt.json   the latest launch (`job.attempt`); place.json: with which Python it runs, and where
    logs/          what OpenRLHF and Ray printed, a file for each launch
    model/         the final model, a Hugging Face folder
    tensorboard/   OpenRLHF's own metrics, with `engine.tensorboard`

Inputs are named relative to the folder, so that it can be shipped to a cluster whole; what the job writes is named
absolutely. The agent's configuration travels by place: `agent.py` reads the plan.json beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True)
class Job:
    """The paths of one job."""

    folder: Path
    """Absolute; `runs/<id>/job` on the machine that starts the run."""
    output: Path
    """Where spool, checkpoints and the final model are written: the folder itself, or one that every node sees."""

    @classmethod
    def of_run(cls, folder: Path, output: str | None) -> Self:
        """The job of a run, whose folder and `engine.output` are given."""
        job = folder.absolute() / "job"
        return cls(job, job if output is None else Path(output).absolute() / folder.name)

    @property
    def argv(self) -> Path:
        """JSON list of options."""
        return self.folder / "argv.json"

    @property
    def launch(self) -> Path:
        """Shell script."""
        return self.folder / "launch.sh"

    @property
    def agent(self) -> Path:
        """Python file with `AgentExecutor`."""
        return self.folder / "agent.py"

    @property
    def plan(self) -> Path:
        """The plan, without secrets."""
        return self.folder / "plan.json"

    @property
    def env(self) -> Path:
        """`{"set": {NAME: value}, "secrets": [NAME]}`."""
        return self.folder / "env.json"

    @property
    def train(self) -> Path:
        """Rows of the training set, as many as the run draws."""
        return self.folder / "data" / "train.jsonl"

    @property
    def evaluation(self) -> Path:
        """Rows of the evaluation set; no such file without one."""
        return self.folder / "data" / "eval.jsonl"

    @property
    def certificate(self) -> Path:
        """Copy of `engine.ingest.certificate`, by which agents know the machine that takes their records."""
        return self.folder / "ingest.pem"

    @property
    def spool(self) -> Path:
        """Folder of the agents' records."""
        return self.output / "spool"

    @property
    def run_id(self) -> str:
        """The run that the job is of."""
        return self.folder.parent.name

    def received(self, attempt: int) -> Path:
        """Folder of the copies that `engine.ingest` makes of the agents' records, on the machine that runs `rlf`."""
        return self.folder / "spool" / f"attempt-{attempt}"

    @property
    def checkpoints(self) -> Path:
        """Folder of `--ckpt.path`."""
        return self.output / "ckpt"

    @property
    def model(self) -> Path:
        """Folder of `--ckpt.output_dir`."""
        return self.output / "model"

    def log(self, attempt: int) -> Path:
        """OpenRLHF's output in the n-th launch."""
        return self.folder / "logs" / f"attempt-{attempt}.log"

    @property
    def tensorboard(self) -> Path:
        """Folder of `--logger.tensorboard_dir`; events lie in a folder below it, named after the run."""
        return self.output / "tensorboard"
