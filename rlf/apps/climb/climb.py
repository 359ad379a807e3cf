"""`rlf climb`: a base is measured, prompted, shown demonstrations and trained by rewards, until it reaches a target.

Each rung is what a command of its own does, by the function of that command, and leaves what that command leaves: an
evaluation or a run, in one lineage. A rung is done where the lineage holds its finished run, so that the same command
continues what was stopped or killed, and says the same again when it is over.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from rlf.builtin.names import BUILTIN
from rlf.core.errors import RlfError
from rlf.core.plain_json import Jsonable
from rlf.endpoints.spec import EndpointSpec
from rlf.engines.engine import engine_of
from rlf.lineage.read_only import has_lineage
from rlf.lineage.records import TRAIN, RunLine, TrajectoryFilter
from rlf.reports.statistics import wilson_interval
from rlf.reports.success import interval_of, success_by_task
from rlf.runs.opening import power_notices
from rlf.runs.place import open_reader
from rlf.runs.plans import check_spec
from rlf.runs.resume import resume
from rlf.runs.start import start
from rlf.spec import RunSpec, load_spec
from rlf.spec.engines import Feature
from rlf.training.harness import import_app
from rlf.types.events import EvaluationFinished, EventSink, RunEvent, RunStatus

_KEY = "rlf climb"
_PASSES, _PER_STEP, _LEAST_STEPS, _FASTER = 5, 32, 20, 5
"""Of solutions that the spec does not set up as demonstrations: passes over them, of so many a step, at so many times
the rate that the spec has for rewards, which is too low to imitate a base that has seen no call."""
_DISTILLED = 8
"""Steps of a round in which a policy learns from itself, of three at most: it learns soon, then forgets or drifts."""
_NO_DEMONSTRATIONS = "data.demonstrations=null"


@dataclass(frozen=True, slots=True)
class ClimbOptions:
    """How far one climbs, and by what."""

    target: float
    """The success that the lower end of the interval has to reach."""
    samples: int
    """Rollouts of each question of an evaluation: the group by which it is seen where rewards could teach."""
    writer: EndpointSpec | None = None
    """The model that rewrites prompts; None: they are not searched."""
    num_rollouts: int = 300
    """Of the search of prompts."""


@dataclass(frozen=True, slots=True)
class Rung(Jsonable):
    """One way to teach, and what it came to."""

    name: str
    run_id: str | None
    """Its run or evaluation; None where it was left out."""
    success: float | None
    low: float | None
    """Of the 95 % interval over questions."""
    high: float | None
    unsolved: float | None
    """Share of questions that no sample solved: in such a group rewards teach nothing."""
    solved: float | None
    """Share that all samples solved: there is nothing left to learn."""
    num_rollouts: int
    """Played to teach, evaluations apart."""
    num_sampled: int
    """Tokens that were sampled in these."""
    time_s: float
    """Of its steps and evaluations."""
    model: str | None
    """The model that it leaves."""
    words: str
    """Why it was left out, was enough, or was not."""


@dataclass(frozen=True, slots=True)
class Climb(Jsonable):
    """A ladder, up to the rung that was enough."""

    name: str
    """The spec's."""
    target: float
    reached: str | None
    """The rung that was enough; None: none was."""
    rungs: tuple[Rung, ...]


class _Skip(Exception):
    """A rung that cannot be tried, with why."""


def climb(
    files: Sequence[Path],
    overrides: Sequence[str],
    options: ClimbOptions,
    *,
    runs_folder: Path,
    command: Sequence[str],
    notify: Callable[[str], None],
) -> Climb:
    """Climbs from the cheapest rung to the first that reaches the target by its interval.

    Args:
        command: what the lineage keeps as the command of its runs.
        notify: takes a line of progress.

    Raises:
        RlfError, SpecError: the spec is wrong, or a rung cannot continue.
        KeyboardInterrupt: it was stopped; the same call continues it.
    """
    ladder = _Ladder(files, overrides, options, runs_folder, command, notify)
    rungs = list[Rung]()
    for rung in ladder.climb():
        notify(f"{rung.name}: {rung.words}")
        rungs.append(rung)
    reached = rungs[-1].name if rungs[-1].low is not None and rungs[-1].low >= options.target else None
    return Climb(ladder.spec.name, options.target, reached, tuple(rungs))


class _Ladder:
    """What one rung leaves to the next: the files, the model, and how good it is."""

    def __init__(
        self,
        files: Sequence[Path],
        overrides: Sequence[str],
        options: ClimbOptions,
        runs_folder: Path,
        command: Sequence[str],
        notify: Callable[[str], None],
    ) -> None:
        self._files, self._overrides, self._options = list(files), list(overrides), options
        self._runs_folder, self._command, self._notify = runs_folder, list(command), notify
        # The file of demonstrations may be one that is yet to be written.
        checked = check_spec(files, [*overrides, _NO_DEMONSTRATIONS])
        self.spec: RunSpec = checked.plan.spec
        if self.spec.data.eval is None:
            raise RlfError(f"{_KEY}: the spec has no `data.eval`, by which a rung is measured. Write one.")
        num = len(list(checked.inputs.evaluation)[: self.spec.eval.limit])
        if num and options.target > (most := wilson_interval(num, num).low):
            notify(
                f"warning: `--target` {options.target:.1%} is not to be shown by {num} questions: where all succeed, "
                f"the interval begins at {most:.1%}. Raise `eval.limit`, or all rungs are tried"
            )
        self._model = self.spec.model.path
        self._best: Rung | None = None

    def climb(self) -> Iterator[Rung]:
        """The rungs, up to the first that is enough."""
        if self._options.writer is not None:  # a key that is refused is found before hours on the first rung
            import_app(_KEY, "prompt", "search").check_writer(self._options.writer)
        for name, try_rung in (
            ("base", partial(self._evaluate, "base", self._files)),
            ("prompt", self._prompt),
            ("demonstrations", self._demonstrations),
            ("distillation", self._distillation),
            ("rewards", self._rewards),
        ):
            try:
                found = try_rung()
            except _Skip as why:
                yield Rung(name, None, None, None, None, None, None, 0, 0, 0.0, None, f"left out: {why}")
                continue
            is_enough = found.low is not None and found.low >= self._options.target
            yield replace(found, words=self._describe(found, is_enough=is_enough))
            if is_enough:
                return
            if self._best is None or (found.success or 0.0) >= (self._best.success or 0.0):
                self._best, self._model = found, found.model or self._model

    def _describe(self, found: Rung, *, is_enough: bool) -> str:
        """Why one stops at a rung, or continues from it."""
        if found.success is None or found.low is None or found.high is None:
            return "no question could be scored"
        success = f"{found.success:.1%} ({found.low:.1%} to {found.high:.1%})"
        if is_enough:
            return f"{success}: enough, the target is {self._options.target:.0%}"
        tries, unsolved, solved = self._options.samples, found.unsolved or 0.0, found.solved or 0.0
        below = f"{success}: below the target of {self._options.target:.0%}."
        if solved == 1:
            return f"{below} All samples solve their question: only more questions (`eval.limit`) may show the target"
        return (
            f"{below} None of {tries} samples solves {unsolved:.0%} "
            f"of the questions, where rewards teach nothing, and some solve {1 - unsolved - solved:.0%}, where they do"
        )

    def _prompt(self) -> Rung:
        writer = self._options.writer
        if writer is None:
            raise _Skip("no model rewrites prompts (--writer-endpoint, --writer-model)")
        searching = import_app(_KEY, "prompt", "search")
        file = self._runs_folder / f"climb-{self.spec.name}-prompt.yaml"
        found = searching.search(
            self._files,
            [*self._overrides, _NO_DEMONSTRATIONS],
            searching.SearchOptions(self._options.num_rollouts, 40),
            endpoint=None,
            writer=writer,
            file=file,
            runs_folder=self._runs_folder,
            notify=lambda line: None,
        )
        if found.file is None:
            raise _Skip(f"none of {found.num_rewrites} rewrites is better than what the spec has")
        rung = self._evaluate("prompt", [file])
        if self._best is None or (rung.success or 0.0) >= (self._best.success or 0.0):
            self._files = [file]
        return replace(rung, num_rollouts=found.num_rollouts, num_sampled=found.num_sampled)

    def _demonstrations(self) -> Rung:
        shown, steps = self._declared()
        changes = ["train.algorithm=supervised", f"data.demonstrations={json.dumps(shown)}", f"train.steps={steps}"]
        own = [] if self._has_demonstrations() else ["train.lr_schedule=constant"]  # for which the passes are enough
        return self._train("demonstrations", [*changes, *own])

    def _declared(self) -> tuple[dict[str, Any], int]:
        """The settings of demonstrations, and how many steps they take: the spec's, or the solutions of its tasks."""
        # Not checked as a whole: the engine may have no run that does both.
        spec = load_spec(self._files, self._overrides).spec if self._has_demonstrations() else self.spec
        if (declared := spec.data.demonstrations) is not None:
            shown = declared.model_dump(mode="json") | {"steps": None}
            return shown, min(declared.steps or spec.train.steps, spec.train.steps)
        file = (self._runs_folder / f"climb-{spec.name}.jsonl").resolve()
        try:
            writing = import_app(_KEY, "demos", "demos")
            done = writing.write_demos(
                self._files, self._overrides, writing.DemosOptions(gold=True), file, runs_folder=self._runs_folder
            )
        except RlfError as fault:
            raise _Skip(f"there are no demonstrations. {fault}") from fault
        steps = max(_LEAST_STEPS, math.ceil(_PASSES * done.num_kept / _PER_STEP))
        return {"path": str(file), "per_step": _PER_STEP, "learning_rate": _FASTER * spec.train.learning_rate}, steps

    def _has_demonstrations(self) -> bool:
        shown = load_spec(self._files, self._overrides).spec.data.demonstrations
        return shown is not None and (shown.path.startswith(BUILTIN) or Path(shown.path).exists())

    def _distillation(self) -> Rung:
        """The policy as its own teacher, shown what is reported against a try: it learns where all fail."""
        best = self._best
        if best is None or best.run_id is None or best.unsolved != 1:
            raise _Skip("some questions are solved, and there rewards teach")
        if (known := self.spec.engine.ESTIMATORS) is not None and "distillation" not in known:
            raise _Skip(f"with {self.spec.engine.TITLE} the policy is not its own teacher")
        describe = import_app(_KEY, "demos", "teaching").describe_failures
        with open_reader(self._runs_folder) as reader:
            tries = reader.trajectories(best.run_id, TrajectoryFilter(phase="sampled"))
            kept = (reader.whole(best.run_id, each) for each in tries)
            if not any(describe(each.scored) for each in kept if each is not None):
                raise _Skip("nothing is reported against tries that fail: no error of a tool, no reason of a reward")
        changes = ["train.algorithm=distillation", "train.dynamic_filtering=null"]  # rewards may all be equal
        rounds = list[Rung]()
        for name in ("distillation", "distillation-2", "distillation-3"):
            rounds.append(self._sample(name, changes, _DISTILLED))
            if (rounds[-1].success or 0.0) < (best.success or 0.0):
                break  # the policy has forgotten: what it was before is what the next rung begins with
            best, self._model = rounds[-1], rounds[-1].model or self._model
            if not best.success or (best.low or 0.0) >= self._options.target:
                break  # what helped had some success after its first round; the divergence fell where nothing did
        spent = {key: sum(getattr(each, key) for each in rounds) for key in ("num_rollouts", "num_sampled", "time_s")}
        return replace(best, name="distillation", **spent)

    def _rewards(self) -> Rung:
        if self._best is not None and self._best.unsolved == 1:
            raise _Skip(f"none of {self._options.samples} samples solves a question: there is nothing to strengthen")
        return self._sample("rewards", [], self.spec.train.steps)

    def _sample(self, name: str, changes: Sequence[str], most: int) -> Rung:
        """The steps that the spec has beside those that imitate, from the best model so far."""
        steps = self.spec.train.steps
        if self._has_demonstrations() and (imitating := self._declared()[1]) < steps:
            steps -= imitating
        changes = [*changes, _NO_DEMONSTRATIONS, f"model.path={self._model}", f"train.steps={min(steps, most)}"]
        return self._train(name, changes)

    def _evaluate(self, name: str, files: Sequence[Path], model: str | None = None) -> Rung:
        """A model, else the one so far, tried on the evaluation set. Stopped, the same call continues it."""
        tried, changes = model or self._model, (*self._overrides, _NO_DEMONSTRATIONS, "eval.greedy=false")
        asked = {"num_samples": self._options.samples, "limit": self.spec.eval.limit}
        play = import_app(_KEY, "evaluate", "python").evaluate
        found = play([tried], list(files), changes, **asked, again=False, runs_folder=self._runs_folder)
        return self._measure(name, found.rows[0].run_id, model)

    def _find(self, plan_hash: str, name: str) -> RunLine | None:
        """The newest run of a plan and a name in the lineage."""
        if not has_lineage(self._runs_folder):
            return None
        with open_reader(self._runs_folder) as reader:
            alike = [each for each in reader.run_lines() if (each.plan_hash, each.name) == (plan_hash, name)]
        return max(alike, key=lambda each: each.started, default=None)

    def _train(self, name: str, changes: Sequence[str]) -> Rung:
        """The rung's run: begun, continued, or where it is over read."""
        named = f"{self.spec.name}-{name}"
        asked = [f"eval.num_samples={self._options.samples}", "eval.greedy=false", "eval.every=null"]
        imitates = "train.algorithm=supervised" in changes
        tried_after = imitates and Feature.EVALUATED_IMITATION in self.spec.engine.LACKS
        if tried_after:
            loaded = load_spec(self._files, [*self._overrides, *changes])
            asked = ["data.eval=null", *(["~eval"] if loaded.value(("eval",)) is not None else [])]
        checked = check_spec(self._files, [*self._overrides, *changes, *asked, f"name={named}"])
        placed, folder = checked.fit_here(power_notices(checked)), self._runs_folder
        known = self._find(placed.plan.plan_hash, named)
        if known is None or known.status is not RunStatus.FINISHED:

            def view(info: Any) -> EventSink:
                self._notify(f"{name}: run {info.run_id}, {info.total_steps - info.first_step + 1} steps")
                return self._show

            play = partial(start, placed) if known is None else partial(resume, known.id)
            done = play(runs_folder=folder, view=view, command=self._command)
            if done.status is not RunStatus.FINISHED:
                again = shlex.join(self._command)
                raise KeyboardInterrupt(f"run {done.run_id} was stopped at step {done.step}; `{again}` continues it")
            run_id = done.run_id
        else:
            run_id = known.id
        steps = checked.plan.spec.train.steps
        model = str(engine_of(checked.plan.spec).models_in(folder / run_id, steps)[steps].resolve())
        if not tried_after:
            return self._measure(name, run_id, model)
        found = self._evaluate(name, self._files, model)
        with open_reader(folder) as reader:
            taught_s = sum(each.metrics.get("time/step_s", 0.0) for each in reader.steps(run_id))
        return replace(found, time_s=found.time_s + taught_s)

    def _show(self, event: RunEvent) -> None:
        if isinstance(event, EvaluationFinished):
            self._notify(f"  step {event.step}: success {event.metrics.get('success', math.nan):.1%}")

    def _measure(self, name: str, run_id: str, model: str | None) -> Rung:
        """What a run or an evaluation came to, as the lineage has it."""
        with open_reader(self._runs_folder) as reader:
            evaluations = reader.evaluations(run_id)
            last = max((one for one in evaluations if one.mode == "sampled"), key=lambda one: one.step)
            times = [each.metrics.get("time/step_s", 0.0) for each in reader.steps(run_id)]
            times += [each.metrics.get("time/total_s", 0.0) for each in evaluations]
            tries = reader.trajectories(run_id, TrajectoryFilter(phase="sampled", step=last.step))
            played = [
                each
                for each in reader.trajectories(run_id, TrajectoryFilter(phase=TRAIN))
                if not each.trajectory_id.startswith("demonstration/")
            ]
        shares, interval = list(success_by_task(tries).values()), interval_of(last.metrics)
        low, high = (None, None) if interval is None else (interval.low, interval.high)
        return Rung(
            name,
            run_id,
            last.metrics.get("success"),
            low,
            high,
            fmean(share == 0 for share in shares) if shares else None,
            fmean(share == 1 for share in shares) if shares else None,
            len(played),
            sum(each.num_sampled for each in played),
            sum(times),
            model,
            "",
        )
