"""The arms of a comparison: each is one plan and its runs, one for each seed.

An arm is named by one run, by several with commas between them, or by a sweep, which stands for an arm for each of its
settings but the seed. Runs of one arm are taken for independent draws of one setting, so that runs that differ in more
than their seeds are refused, and equal ones count once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from rlf.core.errors import RlfError
from rlf.core.text import list_some
from rlf.lineage.calls import tool_call_summary
from rlf.lineage.records import (
    EVALUATION,
    SWEEP,
    AcceptedChange,
    Evaluation,
    Run,
    RunRecord,
    StepTotals,
    ToolCallSummary,
    TrainingStep,
    TrajectoryFilter,
    TrajectorySummary,
)
from rlf.reports.sheets import letters_for, visible

if TYPE_CHECKING:
    from rlf.lineage.reader import Reader


@dataclass(frozen=True, slots=True)
class ArmMember:
    """One run of an arm, with what a comparison needs of it."""

    run: Run
    steps: Sequence[TrainingStep]
    evaluations: Sequence[Evaluation]
    """All of them, every mode."""
    totals: Sequence[StepTotals]
    tools: Sequence[ToolCallSummary]
    tries: Mapping[tuple[str, int], Sequence[TrajectorySummary]]
    """Of the evaluations that are compared, by mode and step: each mode's last, and those that arms share."""
    changes: Sequence[AcceptedChange] = ()
    """Inputs that were accepted as changed when the run was resumed."""
    clusters: Mapping[str, str] = field(default_factory=dict)
    """What a held-out question belongs to, of those that belong to anything."""

    def last_step(self, mode: str) -> int | None:
        """The updates before the last evaluation of a mode; None without one."""
        return max((found.step for found in self.evaluations if found.mode == mode), default=None)

    def curve(self, mode: str) -> list[Evaluation]:
        """The evaluations of one mode that could score a question, in order of step."""
        return [found for found in self.evaluations if found.mode == mode and "success" in found.metrics]


@dataclass(frozen=True, slots=True)
class Arm:
    """Runs of one plan but for the seed."""

    letter: str
    label: str
    """The run's name, or what distinguishes the arm from the others of its sweep."""
    members: tuple[ArmMember, ...] = field(metadata={"json": None})
    repeats: tuple[str, ...] = ()
    """Ids of runs that were named with it and do not count: each has the plan and the seed of a member."""
    JSON_PROPERTIES: ClassVar = ("runs",)

    def list_other_code(self) -> list[str]:
        """What its runs were made with and do not share, with its versions: rlf, packages, Python."""
        facts = [dict(_list_code(member.run.record)) for member in self.members]
        names = sorted({name for found in facts for name in found})
        versions = {name: sorted({found.get(name, "none") for found in facts}) for name in names}
        return [f"{name} {' and '.join(each)}" for name, each in versions.items() if len(each) > 1]

    @property
    def runs(self) -> tuple[str, ...]:
        """Ids of its runs."""
        return tuple(member.run.record.id for member in self.members)

    @property
    def modes(self) -> list[str]:
        """The modes in which every run was evaluated, sampled first."""
        shared = set.intersection(*({found.mode for found in member.evaluations} for member in self.members))
        return sorted(shared, key=lambda mode: (mode != "sampled", mode))


def shared_step(arms: Sequence[Arm], mode: str) -> int | None:
    """The newest step after which every run of the arms was evaluated; None without one.

    Evaluations by `rlf eval` are of no training: the models were chosen, whatever steps they have seen.
    """
    members = [member for arm in arms for member in arm.members]
    if any(member.run.record.engine == EVALUATION for member in members):
        return None
    steps = [{found.step for found in member.curve(mode)} for member in members]
    return max(set.intersection(*steps), default=None)


def read_arms(reader: Reader, names: Sequence[str]) -> list[Arm]:
    """The arms that names stand for, the first one the baseline.

    Raises:
        RlfError: a run is not there, one is named twice, or runs of an arm differ in more than their seeds.
    """
    groups = [group for name in names for group in _find_groups(reader, name)]
    ids = [run.record.id for group in groups for run in (*group.runs, *group.repeats)]
    repeated = [run_id for run_id in ids if ids.count(run_id) > 1]
    if repeated:
        raise RlfError(f"run {repeated[0]}: is named twice. Name each run once.")
    arms = [
        Arm(
            letter,
            group.label,
            tuple(_read_member(reader, run) for run in group.runs),
            tuple(run.record.id for run in group.repeats),
        )
        for letter, group in zip(letters_for(len(groups)), groups, strict=True)
    ]
    return [_with_tries(reader, arms[0], arm, arms) for arm in arms]


def _with_tries(reader: Reader, baseline: Arm, arm: Arm, arms: Sequence[Arm]) -> Arm:
    """An arm with the tries of its last evaluations, and of those that it shares with the baseline."""
    others = arms if arm is baseline else [arm]
    members = []
    for member in arm.members:
        modes = {found.mode for found in member.evaluations}
        places = {(mode, member.last_step(mode)) for mode in modes}
        places |= {(mode, shared_step([baseline, other], mode)) for mode in modes for other in others}
        tries = {
            (mode, step): reader.trajectories(member.run.record.id, TrajectoryFilter(phase=mode, step=step))
            for mode, step in places
            if step is not None
        }
        clusters = {task: name for mode in modes for task, name in reader.clusters(member.run, mode).items()}
        members.append(replace(member, tries=tries, clusters=clusters))
    return replace(arm, members=tuple(members))


@dataclass(frozen=True, slots=True)
class _Group:
    """An arm's runs before anything of them is read."""

    label: str
    runs: Sequence[Run]
    repeats: Sequence[Run] = ()


def _find_groups(reader: Reader, name: str) -> list[_Group]:
    """The arms that one word of the command names."""
    runs = [reader.get_run(part) for part in name.split(",") if part]
    if len(runs) == 1 and runs[0].record.engine == SWEEP:
        return _sweep_groups(reader, runs[0])
    for run in runs:
        if run.record.engine == SWEEP:
            raise RlfError(f"run {run.record.id}: a sweep has an arm for each setting. Name it without commas.")
    if not runs:
        raise RlfError(f"got {name!r}; expected a run's id, several with commas, or a sweep.")
    return [_join_seeds(reader, runs)]


def _sweep_groups(reader: Reader, sweep: Run) -> list[_Group]:
    members = [line.id for line in reader.run_lines(parent_id=sweep.record.id)]
    run_by_hash = {run.record.plan_hash: run for run in reader.list_runs(members)}
    groups: dict[str, list[Run]] = {}
    for planned in sweep.record.plan["members"]:
        run = run_by_hash.get(planned["plan_hash"])
        settings = [word for word in planned["overrides"] if not word.startswith("seed=")]
        if run is not None:
            groups.setdefault(" ".join(settings) or sweep.record.name, []).append(run)
    if not groups:
        raise RlfError(f"sweep {sweep.record.id}: none of its members has started. `rlf resume` starts them.")
    return [_Group(label, runs) for label, runs in groups.items()]


def _read_member(reader: Reader, run: Run) -> ArmMember:
    run_id = run.record.id
    return ArmMember(
        run=run,
        steps=reader.steps(run_id),
        evaluations=reader.evaluations(run_id),
        totals=reader.step_totals(run_id),
        tools=tool_call_summary(reader, run_id),
        tries={},
        changes=reader.changes(run_id),
    )


# Seeds of one setting: what runs of an arm must have in common, and which of them are one and the same.


def _join_seeds(reader: Reader, runs: Sequence[Run]) -> _Group:
    """Runs as the seeds of one arm. Raises RlfError where they differ in more than the seed."""
    first = runs[0]
    setting = _read_setting(reader, first.record)
    kept: dict[tuple[object, ...], Run] = {}
    repeats = []
    for run in runs:
        other = _read_setting(reader, run.record)
        what = [key for key in dict.fromkeys((*setting, *other)) if setting.get(key) != other.get(key)]
        if what:
            parts = [_describe_values(key, setting.get(key), other.get(key)) for key in what]
            raise RlfError(
                f"run {run.record.id}: is no other seed of run {first.record.id}; they differ in "
                f"{list_some(parts)}. Commas join runs that differ in their seeds alone. Write a space between others: "
                f"`rlf runs compare {first.record.id} {run.record.id}`."
            )
        record = run.record  # evaluations of one model are one, and so are other runs of one seed
        models = tuple(file.sha256 for file in record.files if file.role == "model")
        if kept.setdefault(models if record.engine == EVALUATION and models else (record.seed,), run) is not run:
            repeats.append(run)
    return _Group(first.record.name, list(kept.values()), repeats)


def _read_setting(reader: Reader, record: RunRecord) -> dict[str, str]:
    """What decides a run's results beside its seed; of an evaluation, with that of the run whose model it tries."""
    facts = dict([*_list_setting(record), *_list_accepted(reader, record)])
    if record.engine == EVALUATION and record.parent_id is not None:
        # the model that is evaluated is what the seed made; its setting is that of the run that trained it
        facts = {key: value for key, value in facts.items() if key not in ("model.path", _CONTENT + "model")}
        with suppress(RlfError):  # the run may have been removed
            trained = reader.get_run(record.parent_id).record
            facts |= dict([*_list_setting(trained), *_list_accepted(reader, trained)])
    return facts


def _list_accepted(reader: Reader, record: RunRecord) -> Iterator[tuple[str, str]]:
    """Inputs that were replaced on the way: from there on a run was made from others than its files say."""
    for change in reader.changes(record.id):
        if change.role != "package":
            yield f"{_CONTENT}{change.path.rsplit('/', 1)[-1]} after step {change.step}", change.sha256


_CONTENT = "the content of "
_UNSET = "null"
"""A value of a plan as JSON that says no more than a plan without the key, such as one from before there was any."""
_OF_REPORTS = ("data.eval.cluster",)
"""Keys that say how results are read, and change none."""


def _list_setting(record: RunRecord) -> Iterator[tuple[str, str]]:
    """Keys of the plan, and contents of files. As in a plan's hash, a path counts by what the file holds."""
    from rlf.spec.engines import ENGINES  # pydantic, which a page of two runs does without
    from rlf.spec.models import WITHOUT_EFFECT

    spec = {key: value for key, value in record.plan.get("spec", {}).items() if key not in ("seed", *WITHOUT_EFFECT)}
    engine = spec.get("engine")
    if isinstance(engine, Mapping) and engine.get("kind") in ENGINES.names():
        without = ENGINES.get(engine["kind"]).WITHOUT_EFFECT
        spec["engine"] = {key: value for key, value in engine.items() if key not in without}
    paths = {json.dumps(file.path, ensure_ascii=False) for file in record.files}
    for key, value in flatten(spec):
        if value != _UNSET and key not in _OF_REPORTS and not _is_of_tests(key):
            yield key, "a file" if value in paths else value
    by_name: dict[str, list[str]] = {}
    for file in record.files:
        if file.role not in ("spec", "package"):  # what a spec's text says is in the plan
            what = f"{_OF_THE_MODEL.get(file.role, '')}{file.path.rsplit('/', 1)[-1]}"
            by_name.setdefault(_CONTENT + what, []).append(file.sha256)
    yield from ((what, " ".join(sorted(hashes))) for what, hashes in by_name.items())


def _is_of_tests(key: str) -> bool:
    """Whether a key is of the tests of a tool or a term, which no run reads."""
    words = key.split(".")
    return words[0] in _NAMED_LISTS and "tests" in words[2:]


def _describe_values(key: str, left: str | None, right: str | None) -> str:
    if key.startswith(_CONTENT):
        return key
    values = ["absent" if value is None else visible(value[:_MAX_VALUE]) for value in (left, right)]
    return f"{visible(key)} ({values[0]} against {values[1]})"


# Differences between arms by cause, each with every arm's value.

_LABELS = ("name", "report_to", "lineage")
"""Keys of a spec that name and describe a run and do not change what it does."""
_MACHINE = ("name", "system", "cpus", "device", "threads")
_OF_THE_MODEL = {"tokenizer": "tokenizer of ", "template": "chat template of "}
_NAMED_LISTS = ("tools", "rewards")


class DifferenceCause(StrEnum):
    """Where a difference lies."""

    PLAN = "plan"
    """A value of the spec."""
    FILE = "file"
    """The content of a tool's, reward's or template's file."""
    DATA = "data"
    """The content of a dataset."""
    MODEL = "model"
    """The content of the starting model, its tokenizer and its chat template."""
    CODE = "code"
    """rlf's own version."""
    CHANGE = "change"
    """An input that was accepted as changed when a run was resumed."""
    PACKAGE = "package"
    MACHINE = "machine"


@dataclass(frozen=True, slots=True)
class ArmDifference:
    """One thing that is not the same in all arms."""

    cause: DifferenceCause
    what: str
    """Dotted key, file, package or fact."""
    values: tuple[str | None, ...]
    """By arm; None where an arm has no such thing."""


def arm_differences(arms: Sequence[Arm]) -> list[ArmDifference]:
    """Everything that differs between the first runs of the arms. Seeds count where each arm is one run."""
    members = [arm.members[0] for arm in arms]
    with_seed = all(len(arm.members) == 1 for arm in arms)
    facts = [
        dict([*_list_facts(member.run.record, with_seed=with_seed), *_list_changes(member.changes)])
        for member in members
    ]
    keys = list(dict.fromkeys(key for found in facts for key in found))
    rows = [(key, tuple(found.get(key) for found in facts)) for key in keys]
    return [ArmDifference(cause, what, values) for (cause, what), values in rows if _are_different(what, values)]


def _are_different(key: str, values: Sequence[str | None]) -> bool:
    """An absent key is as one without a value, but for what a tool or a term consists of."""
    is_item = key.split(".")[0] in _NAMED_LISTS
    return len({None if value == _UNSET and not is_item else value for value in values}) > 1


def _list_facts(record: RunRecord, *, with_seed: bool) -> Iterator[tuple[tuple[DifferenceCause, str], str]]:
    spec = {key: value for key, value in record.plan.get("spec", {}).items() if key not in _LABELS}
    if not with_seed:
        spec.pop("seed", None)
    for key, value in flatten(spec):
        yield (DifferenceCause.PLAN, key), value
    causes = {"data": DifferenceCause.DATA} | dict.fromkeys(("model", *_OF_THE_MODEL), DifferenceCause.MODEL)
    for file in record.files:
        if file.role not in ("spec", "package"):
            what = f"{_OF_THE_MODEL.get(file.role, '')}{file.path}"
            yield (causes.get(file.role, DifferenceCause.FILE), what), file.sha256[:12]
    for name, version in _list_code(record):
        yield (
            ({"rlf": DifferenceCause.CODE, "python": DifferenceCause.MACHINE}.get(name, DifferenceCause.PACKAGE), name),
            version,
        )
    for name in _MACHINE:
        yield (DifferenceCause.MACHINE, name), str(record.host.get(name))


def _list_code(record: RunRecord) -> Iterator[tuple[str, str]]:
    yield "rlf", record.code_version
    yield from ((name, version) for name, version in record.packages.items() if name != "rlf")
    yield from ((file.path, file.sha256) for file in record.files if file.role == "package")
    yield "python", str(record.host.get("python"))


def _list_changes(changes: Sequence[AcceptedChange]) -> Iterator[tuple[tuple[DifferenceCause, str], str]]:
    for change in changes:
        yield (
            (DifferenceCause.CHANGE, f"{change.role} {change.path} after step {change.step}"),
            change.sha256[:12] or "absent",
        )


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Leaves of a spec by dotted key, as JSON; tools and reward terms are named, so that their order does not count."""
    if isinstance(value, Mapping) and value:
        for key, child in value.items():
            yield from flatten(
                _name_items(child) if key in _NAMED_LISTS else child, f"{path}.{key}" if path else str(key)
            )
    else:
        yield path, json.dumps(value, ensure_ascii=False)


def _name_items(items: Any) -> Any:
    if isinstance(items, list) and items and all(isinstance(item, Mapping) and "name" in item for item in items):
        return {item["name"]: {key: value for key, value in item.items() if key != "name"} for item in items}
    return items


# Names of arms: by what differs between them, in few words.

_NAMED = 3
"""Differences that a name holds."""
_MAX_VALUE = 24
"""Characters of a value in a name; a longer one is named by its key alone."""


def named_by_difference(arms: Sequence[Arm]) -> list[Arm]:
    """The arms with distinct labels: the spec's name where that is enough, then keys with their values.

    Files, versions and machines are named only where names and keys leave two arms alike.
    """
    found = arm_differences(arms)
    settings = [item for item in found if item.cause is DifferenceCause.PLAN]
    others = [item for item in found if item.cause is not DifferenceCause.PLAN]
    names = [arm.label if len({each.label for each in arms}) > 1 else "" for arm in arms]
    labels = [_join_words([name, *_name_parts(settings, place)]) for place, name in enumerate(names)]
    if len(set(labels)) < len(arms):
        labels = [_join_words([label, *_name_parts(others, place)]) for place, label in enumerate(labels)]
    return [
        arm if "=" in arm.label else replace(arm, label=visible(label or arm.label))  # settings name a sweep's arms
        for arm, label in zip(arms, labels, strict=True)
    ]


def _name_parts(found: Sequence[ArmDifference], place: int) -> list[str]:
    """The first few differences, as one arm has them."""
    keys = [item.what for item in found]
    parts = list(dict.fromkeys(word for item in found if (word := _name_difference(item, place, keys))))
    return [*parts[:_NAMED], *([f"and {len(parts) - _NAMED} more"] if len(parts) > _NAMED else [])]


def _join_words(words: Sequence[str]) -> str:
    return " · ".join(word for word in words if word)


def _name_difference(item: ArmDifference, place: int, keys: Sequence[str]) -> str:
    """A difference as a name of one arm; empty where it is not short."""
    value = item.values[place]
    match item.cause:
        case DifferenceCause.PLAN:
            head, *rest = item.what.split(".")
            if head in _NAMED_LISTS and rest and any(other is None for other in item.values):
                return f"{head[:-1]} {rest[0]}" if value is not None else f"no {head[:-1]} {rest[0]}"
            key = _shorten_key(item.what, keys)
            text = "absent" if value is None else value.strip('"')
            return f"{key}={text}" if len(text) <= _MAX_VALUE else ""
        case DifferenceCause.CODE | DifferenceCause.PACKAGE:
            return f"{item.what} {value or 'absent'}"
        case DifferenceCause.MACHINE:
            return f"{item.what} {(value or 'absent')[:_MAX_VALUE]}"
        case _:
            return f"{item.what.rsplit('/', 1)[-1]} {'absent' if value is None else value[:6]}"


def _shorten_key(key: str, keys: Sequence[str]) -> str:
    """The key's last word, with as many before it as distinguish it from the other keys."""
    words = key.split(".")
    for count in range(1, len(words)):
        end = ".".join(words[-count:])
        if sum(other == end or other.endswith(f".{end}") for other in keys) == 1:
            return end
    return key
