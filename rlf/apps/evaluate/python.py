"""`rlf.evaluate`: models tried on questions, outside of training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rlf.apps.evaluate import run as running
from rlf.apps.evaluate.prepare import EvaluationOptions
from rlf.apps.evaluate.run import Shown
from rlf.core import RlfError
from rlf.core import process as stops
from rlf.python.runs import Run
from rlf.python.specs import DEFAULT_RUNS, AnyPath, Overrides, Spec, as_command, to_command
from rlf.reports.evaluations import EvaluationReport, read_evaluations
from rlf.runs.place import open_reader
from rlf.runs.targets import endpoint_of
from rlf.types import RunStatus


def evaluate(
    targets: str | Run | Sequence[str | Run] = (),
    spec: Spec = (),
    overrides: Overrides = (),
    *,
    endpoint: str | None = None,
    model: str | None = None,
    api_key_env: str | None = None,
    timeout_s: float = 120.0,
    data: str | None = None,
    num_samples: int | None = None,
    temperature: float | None = None,
    greedy: bool = False,
    limit: int | None = None,
    max_concurrency: int | None = None,
    again: bool = True,
    runs_folder: AnyPath = DEFAULT_RUNS,
    on_event: Callable[[Shown], None] | None = None,
) -> EvaluationReport:
    """Tries models with the tools, rewards and limits that they were trained with, as `rlf eval` does.

    Args:
        targets: a run, `RUN@STEP`, a folder, a Hugging Face id or an evaluation, or several. Runs that were loaded
            have to be of `runs_folder`.
        spec: what they are tried by, where that is not their run's own spec.
        endpoint, model, api_key_env: a further target behind an OpenAI-compatible server, and its key's variable.
        timeout_s: of one request to it.
        data: questions in place of the spec's.
        num_samples: of each question.
        again: whether an evaluation of the same that is over is played again, and not given as it is.
        on_event: takes what happens, in order: `EvaluationStart`, `EvaluationProgress` and the events of a run.

    Raises:
        RlfError, SpecError: a target is no model, the spec is wrong, or nothing could be scored.
        KeyboardInterrupt: it was stopped; the same call continues it.
    """
    several, folder = [targets] if isinstance(targets, str | Run) else targets, Path(runs_folder)
    names = [target.id if isinstance(target, Run) else target for target in several]
    served = endpoint_of(endpoint, model, api_key_env, timeout_s)
    files, changes = to_command(spec, overrides, folder, in_file=True)
    asked = EvaluationOptions(
        tuple(files), tuple(changes), data, num_samples, temperature, greedy, limit, max_concurrency
    )
    with as_command(), stops.heeded():
        done = running.try_targets(
            names,
            asked,
            endpoint=served,
            runs_folder=folder,
            command=["rlf.evaluate", *names],
            show=on_event or (lambda shown: None),
            again=again,
        )
    if done.status is RunStatus.INTERRUPTED:
        raise KeyboardInterrupt(done.reason)
    with open_reader(folder) as reader:
        report = read_evaluations(reader, done.run_ids, done.original_by_id)
    if done.status is RunStatus.FAILED and not report.rows:
        raise RlfError(f"the evaluation failed: {(done.reason or '').rstrip('.')}.")
    return report
