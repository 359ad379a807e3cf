"""`rlf demos`: conversations of several origins, chosen and counted, in one file that `data.demonstrations` reads."""

from __future__ import annotations

import asyncio
import json
import operator
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlf.apps.demos.origins import Candidate, from_file, from_gold, from_run
from rlf.apps.demos.rows import Demonstration, write_demonstration
from rlf.apps.demos.steps import play_each
from rlf.apps.demos.trainers import UNEQUAL, WHOLE, TrainerForm, check_name, row_messages, write_rows
from rlf.chat.on_disk import read_tokenizer
from rlf.cli.arguments import runs_option
from rlf.cli.commands import HOMES
from rlf.core import RlfError
from rlf.core.files import write_whole
from rlf.core.identity import hash_json
from rlf.core.registry import load_function
from rlf.endpoints.spec import EndpointSpec
from rlf.rewards.labels import LABELS, read_labelled_lines
from rlf.rewards.normalization import normalize
from rlf.runs.place import open_reader
from rlf.runs.plans import check_spec
from rlf.spec import RunSpec
from rlf.spec.model_files import folder_on_disk
from rlf.types import Task, Trajectory

_CONDITION = re.compile(r"\s*([\w./-]+)\s*(==|!=|>=|<=|>|<)\s*(-?\d+(?:\.\d+)?)\s*")
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


@dataclass(frozen=True, slots=True)
class Teacher:
    """A model that plays the spec's tasks."""

    target: str | None = None
    """A run, folder or name of a model of this machine."""
    endpoint: EndpointSpec | None = None
    samples: int = 1
    """Tries at each task."""
    max_usd: float | None = None
    """What its tools, judges and requests may cost; then it ends with what is played."""


@dataclass(frozen=True, slots=True)
class DemosOptions:
    """What is gathered, and which of it is kept."""

    gold: bool = False
    runs: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    teacher: Teacher | None = None
    where: str = "success >= 1"
    best: int | None = None
    """Conversations of one question; None: all that differ."""
    balance: bool = False
    """Whether each kind of question has as many as the rarest."""
    limit: int | None = None
    closing: str = "Done."
    """The answer after a solution that ends with a call."""
    trainer: TrainerForm | None = None
    """Whose loader is to read the file; None: `data.demonstrations`."""


@dataclass(frozen=True, slots=True)
class DemosReport:
    """What was written."""

    path: Path
    num_kept: int
    kept_by_origin: Mapping[str, int]
    kept_by_kind: Mapping[str, int]
    left_out: Mapping[str, int]
    """Conversations that were not kept, by why."""
    num_tokens: int | None
    """Of all that was kept, as trajectories; None without the model's tokenizer here."""
    settings: str | None = None
    """What another trainer reads the file with; None where it is for `data.demonstrations`."""


def write_demos(
    files: Sequence[Path], overrides: Sequence[str], asked: DemosOptions, out: Path, *, runs_folder: Path
) -> DemosReport:
    """Gathers conversations, keeps the good ones, and writes them as `data.demonstrations` reads them.

    Raises:
        RlfError, SpecError: the spec is wrong, an origin is not there, or nothing is left.
    """
    conditions = parse_conditions(asked.where)
    if asked.trainer is not None:
        check_name(asked.trainer, out)
    checked = check_spec(files, [*overrides, "data.demonstrations=null"])
    spec = checked.plan.spec
    found = _gather(spec, list(checked.inputs.train), asked, files, overrides, runs_folder)
    counts = Counter[str]()
    kept = _keep(found, list(checked.inputs.evaluation), conditions, counts)
    kept, played = _writable(spec, kept, counts)
    rows = None if asked.trainer is None else _split(spec, kept, played, asked.trainer, counts)
    kept = _choose([one for one in kept if rows is None or id(one) in rows], asked, counts)
    if not kept:
        reasons = "; ".join(f"{number}: {why}" for why, number in counts.most_common(3)) or "there were none"
        run = next((str(one.origin["run"]) for one in found if "run" in one.origin), None)
        look = "" if run is None else f" Look at what was played: `rlf trace {run}{runs_option(runs_folder)}`."
        raise RlfError(f"rlf demos: no conversation is left to write ({reasons}).{look}")
    settings = None
    if rows is not None and asked.trainer is not None:
        settings = write_rows(asked.trainer, [row for one in kept for row in rows[id(one)]], out)
    else:
        names = Counter[str]()
        own = [_row(one, names, spec) for one in kept]
        write_whole(out, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in own))
    return DemosReport(
        out,
        len(kept),
        dict(Counter(str(one.origin["kind"]) for one in kept)),
        dict(Counter(_kind(one) for one in kept)),
        dict(counts.most_common()),
        None if played is None else sum(len(played[id(one)].tokens) for one in kept),
        settings,
    )


def parse_conditions(text: str) -> list[tuple[str, str, float]]:
    """`success == 1 and turns < 4`. Raises RlfError for anything else."""
    found = []
    for part in re.split(r"\band\b|,", text):
        match = _CONDITION.fullmatch(part)
        if match is None:
            raise RlfError(
                f"--where: got {part.strip()!r}; expected NAME OP NUMBER, joined by `and`. Write e.g. "
                "`--where 'success == 1 and turns < 4'`."
            )
        found.append((match[1], match[2], float(match[3])))
    return found


def _gather(
    spec: RunSpec,
    tasks: Sequence[Task],
    asked: DemosOptions,
    files: Sequence[Path],
    overrides: Sequence[str],
    runs_folder: Path,
) -> list[Candidate]:
    found = list[Candidate]()
    if asked.gold:
        found += asyncio.run(from_gold(spec, tasks, asked.closing))
    runs = list(asked.runs)
    if asked.teacher is not None:
        runs += _teach(spec, asked.teacher, len(tasks), files, overrides, runs_folder)
    if runs:
        with open_reader(runs_folder) as reader:
            lines = read_labelled_lines(runs_folder / LABELS) if (runs_folder / LABELS).exists() else []
            said = ((line.id, line.label) for line in lines)  # by people: 1 for good and 0 for bad, or their number
            labels = {id_: float(label) for id_, label in said if id_ is not None and not isinstance(label, str)}
            found += [one for name in runs for one in from_run(reader, name, labels)]
    return found + [one for path in asked.files for one in from_file(path)]


def _teach(
    spec: RunSpec, teacher: Teacher, num_tasks: int, files: Sequence[Path], overrides: Sequence[str], runs_folder: Path
) -> list[str]:
    """The evaluation in which a teacher plays the training tasks; what it has played is not paid for again."""
    if "eval" not in HOMES:
        raise RlfError("--teacher: a teacher plays by `rlf eval`, and the app `evaluate` is not here.")
    source = spec.data.train.model_dump(mode="json", exclude_defaults=True)
    changes = ["data.demonstrations=null", f"data.eval={json.dumps(source)}", "eval.greedy=false"]
    if teacher.max_usd is not None:
        changes.append(f"limits.max_usd_per_evaluation={teacher.max_usd}")
    endpoint = teacher.endpoint
    report = load_function("apps.evaluate.python:evaluate")(
        [] if teacher.target is None else [teacher.target],
        list(files),
        [*overrides, *changes],
        endpoint=None if endpoint is None else endpoint.url,
        model=None if endpoint is None else endpoint.model,
        api_key_env=None if endpoint is None else endpoint.api_key_env,
        timeout_s=120.0 if endpoint is None else endpoint.timeout_s,
        num_samples=teacher.samples,
        limit=num_tasks,
        again=False,
        runs_folder=runs_folder,
    )
    return list(dict.fromkeys(row.run_id for row in report.rows))


def _keep(
    found: Sequence[Candidate],
    evaluation: Sequence[Task],
    conditions: Sequence[tuple[str, str, float]],
    counts: Counter[str],
) -> list[Candidate]:
    """Those that can be read, meet the conditions, differ, and are of no question of the evaluation set."""
    held = {normalize(task.question) for task in evaluation}
    names_tasks = 2 * len(held) > len(evaluation)  # else prompts say little of which task it is, as in games
    held_ids = {task.id for task in evaluation}
    known = {name for one in found for name in one.facts}
    kept, seen = list[Candidate](), set[str]()
    for one in found:
        shown = one.demonstration
        if shown is None:
            counts[one.fault] += 1
        elif shown.task.id in held_ids or (names_tasks and normalize(shown.task.question) in held):
            counts["its question stands in the evaluation set"] += 1
        elif why := _unmet(one, conditions, known):
            counts[why] += 1
        elif (key := hash_json(_content(shown))) in seen:
            counts["it is the same as another"] += 1
        else:
            seen.add(key)
            kept.append(one)
    return kept


def _unmet(one: Candidate, conditions: Sequence[tuple[str, str, float]], known: set[str]) -> str:
    if one.origin["kind"] == "file":  # nobody has scored it
        return ""
    for name, sign, number in conditions:
        if name not in one.facts:
            if name not in known:
                raise RlfError(f"--where: nothing has {name!r} (known: {', '.join(sorted(known))}).")
            return f"it has no {name}"
        if not _COMPARE[sign](one.facts[name], number):
            return f"not {name} {sign} {number:g}"
    return ""


def _content(shown: Demonstration) -> list[Any]:
    row = write_demonstration(replace(shown, tools=None))
    return [row.get("messages"), row.get("prompt"), row.get("completion")]


def _writable(
    spec: RunSpec, kept: Sequence[Candidate], counts: Counter[str]
) -> tuple[list[Candidate], dict[int, Trajectory] | None]:
    """Those that the spec's chat format writes and reads back, within its budget; and them as trajectories."""
    shown = [one.demonstration for one in kept if one.demonstration is not None]
    played = play_each(spec, shown)
    if played is None:
        return list(kept), None
    left, trajectories = list[Candidate](), dict[int, Trajectory]()
    for one, result in zip(kept, played, strict=True):
        if isinstance(result, str):
            counts[re.sub(r"^demonstration .*?: ", "", result).partition(". ")[0][:90]] += 1
        else:
            left.append(one)
            trajectories[id(one)] = result
    return left, trajectories


def _split(
    spec: RunSpec,
    kept: Sequence[Candidate],
    played: Mapping[int, Trajectory] | None,
    trainer: TrainerForm,
    counts: Counter[str],
) -> dict[int, list[list[dict[str, str]]]]:
    """The rows of another trainer, of those whose text gives its tokens again."""
    folder = folder_on_disk(spec.model.path)
    if played is None or folder is None:
        raise RlfError(
            f"--for: the text of turns takes the tokenizer of {spec.model.path}, which is not on this machine. "
            "Download it, or name a folder under `model.path`."
        )
    tokenizer = read_tokenizer(folder)
    found = {id(one): row_messages(played[id(one)], tokenizer, encodes_whole=trainer in WHOLE) for one in kept}
    if lost := sum(rows is None for rows in found.values()):
        counts[UNEQUAL] += lost
    return {key: rows for key, rows in found.items() if rows is not None}


def _choose(kept: Sequence[Candidate], asked: DemosOptions, counts: Counter[str]) -> list[Candidate]:
    """The best of each question, as many of each kind, and no more than are asked for."""
    left = list(kept)
    if asked.best is not None:
        by_question = dict[str, list[Candidate]]()
        for one in left:
            assert one.demonstration is not None, "a candidate without a conversation"
            by_question.setdefault(one.demonstration.task.id.partition("#")[0], []).append(one)
        groups = [
            sorted(several, key=lambda one: (-one.facts.get("reward", 0.0), one.facts["turns"]))[: asked.best]
            for several in by_question.values()
        ]
        best = {id(one) for several in groups for one in several}
        left = _cut(left, lambda one: id(one) in best, "others of its question are better", counts)
    if asked.balance:
        num, taken = min(Counter(map(_kind, left)).values(), default=0), Counter[str]()

        def has_room(one: Candidate) -> bool:
            taken[_kind(one)] += 1
            return taken[_kind(one)] <= num

        left = _cut(left, has_room, "its kind has as many as the rarest", counts)
    if asked.limit is not None and len(left) > asked.limit:
        counts["there are as many as asked for"] += len(left) - asked.limit
        left = left[: asked.limit]
    return left


def _cut(
    items: Sequence[Candidate], keeps: Callable[[Candidate], bool], why: str, counts: Counter[str]
) -> list[Candidate]:
    left = [one for one in items if keeps(one)]
    if len(left) < len(items):
        counts[why] += len(items) - len(left)
    return left


def _kind(one: Candidate) -> str:
    assert one.demonstration is not None, "a candidate without a conversation"
    return one.demonstration.task.kind or "-"


def _row(one: Candidate, names: Counter[str], spec: RunSpec) -> dict[str, Any]:
    """The row; conversations of one question are numbered, since ids are unique."""
    assert one.demonstration is not None, "a candidate without a conversation"
    shown = one.demonstration
    names[shown.task.id] += 1
    number = names[shown.task.id]
    id_ = shown.task.id if number == 1 else f"{shown.task.id}~{number}"
    tools = shown.tools or spec.shown_tools or None
    return write_demonstration(replace(shown, task=replace(shown.task, id=id_), tools=tools), one.origin)
