"""A benchmark becomes a spec with its rows in a folder, models are tried by it, and a table is made of the results."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

import yaml

import rlf
from rlf.apps.bench.kind import BENCHMARKS, Benchmark
from rlf.core.errors import RlfError, SpecError
from rlf.core.identity import hash_bytes, hash_json
from rlf.core.plain_json import Jsonable
from rlf.core.registry import UnknownKind
from rlf.reports.evaluations import EvaluationReport, EvaluationRow
from rlf.reports.sheets import rate
from rlf.reports.statistics import Interval
from rlf.runs.targets import endpoint_of, open_target
from rlf.spec.model_files import folder_on_disk, read_context

logger = logging.getLogger(__name__)

TRAIN, TEST = "train", "test"
"""Values of a row's column `split`."""
SPEC_PREFIX = "bench_"
"""Of the names of benchmarks' specs."""
_ROWS, _TRAIN_ROWS, _SPEC = "rows.jsonl", "train.jsonl", "spec.yaml"


@dataclass(frozen=True, slots=True)
class BenchmarkLine(Jsonable):
    """One benchmark of `rlf bench list`."""

    name: str
    title: str
    licence: str
    options: tuple[str, ...]
    installed: str | None
    """The version of its package; None: it is not installed, or there is none."""
    needs: str
    """What is missing or what the user brings, in words."""


@dataclass(frozen=True, slots=True)
class BenchmarkFolder(Jsonable):
    """A benchmark with its options, written down as a spec."""

    benchmark: str
    options: dict[str, Any]
    package: str
    """With its version; empty where there is none."""
    spec: Path
    data_sha256: str
    """Of the rows."""
    num_rows: int


@dataclass(frozen=True, slots=True)
class ModelScore(Jsonable):
    """One model's figures."""

    target: str
    run_id: str
    mode: str
    num_questions: int
    num_failed: int
    success: float | None
    low: float | None
    high: float | None
    summary: dict[str, float]
    """The benchmark's own figures."""
    kinds: dict[str, float]
    pass_all: dict[int, float]
    scores: dict[str, float]
    """Mean of each score of the world."""
    num_calls: float
    num_tokens: float
    cost_usd: float


@dataclass(frozen=True, slots=True)
class BenchmarkResult(Jsonable):
    """Models tried on a benchmark."""

    made: BenchmarkFolder
    models: tuple[ModelScore, ...]


def known_benchmarks() -> list[BenchmarkLine]:
    """Every benchmark, shipped or of an installed package."""
    lines = []
    for name in BENCHMARKS.names():
        kind = BENCHMARKS.get(name)
        version = None if kind.packages is None else kind.packages.version
        needs = kind.needs
        if kind.packages is not None and version is None:
            needs = f"rlf bench {name} --setup ({kind.packages.pins})"
        lines.append(BenchmarkLine(name, kind.title, kind.licence, tuple(kind.model_fields), version, needs))
    return lines


def make_benchmark(name: str, options: Mapping[str, Any]) -> Benchmark:
    """A benchmark with options. Raises RlfError for an option that it has not, or a wrong value."""
    from pydantic import ValidationError

    try:
        kind = BENCHMARKS.get(name)
    except UnknownKind as error:
        asked = "questions of your own are asked by `rlf eval TARGET --data FILE.jsonl`"
        raise RlfError(f"{error}. Name one of these; {asked}.") from error
    known = list(kind.model_fields)
    for option in options:
        if option not in known:
            raise RlfError(f"--{option}: {name} has no such option (it has: {', '.join(known) or 'none'}). Remove it.")
    try:
        return kind.model_validate(dict(options))
    except ValidationError as fault:
        first = fault.errors()[0]
        if first["type"] == "missing":
            raise RlfError(f"bench {name}: --{first['loc'][0]} is missing. Bring {kind.needs or 'it'}.") from fault
        place = "".join(f"--{part}: " for part in first["loc"][:1])
        raise RlfError(f"{place}{first['msg']}.") from fault


def write_benchmark(benchmark: Benchmark, folder: Path) -> BenchmarkFolder:
    """Writes rows and spec into a folder of `folder`, named by what they hold; one that is there stays."""
    name = BENCHMARKS.name_of(type(benchmark))
    rows = [{"split": TEST, "benchmark": name, **row} for row in benchmark.read_rows()]
    if not rows:
        raise RlfError(f"{name}: no rows are left of its options {benchmark.model_dump()}. Choose others.")
    train = [row for row in rows if row["split"] == TRAIN]
    test = [row for row in rows if row["split"] != TRAIN]
    # Without rows to train on there is no second file: training on what is asked is a fault of the spec.
    parts = {_ROWS: test or train} | ({_TRAIN_ROWS: train} if train else {})
    texts = {part: "".join(json.dumps(row) + "\n" for row in found) for part, found in parts.items()}
    spec = make_spec(name, benchmark, texts)
    written = yaml.safe_dump(spec, sort_keys=False, allow_unicode=True)
    key = hash_json([written, *(hash_bytes(text.encode()) for text in texts.values())])[:12]
    place = folder.absolute() / f"{name}-{key}"
    place.mkdir(parents=True, exist_ok=True)
    for file, text in ({**texts, _SPEC: written}).items():
        if not (place / file).is_file():  # the same bytes: the folder is named by them
            (place / file).write_text(text, encoding="utf-8")
    return BenchmarkFolder(
        name,
        benchmark.model_dump(mode="json"),
        (spec["env"] or {}).get("judge", ""),
        place / _SPEC,
        hash_bytes(texts[_ROWS].encode()),
        len(rows),
    )


def make_spec(name: str, benchmark: Benchmark, files: Mapping[str, str]) -> dict[str, Any]:
    """The spec of a benchmark, whose model the target replaces."""
    play = benchmark.play
    packages = benchmark.packages
    columns = {"answer": None, "kind": "kind", "id": "id", **play.columns}
    env: dict[str, Any] = {
        "kind": "rows",
        "rows": list(files),
        "callable": play.world,
        "args": dict(play.args),
        "scores": list(play.scores),
        "limits": {"max_concurrency": 64, "reset_s": 120.0, "step_s": 60.0, "score_s": 120.0},
        **play.env,
    }
    if packages is not None:
        env["judge"] = f"{packages.name} {packages.version}"
        if packages.path is not None:
            env["packages"] = packages.path
    rewards = [
        {"kind": "env", "name": score, "score": score, "weight": 1.0 if at == 0 else 0.0}
        for at, score in enumerate(play.scores)
    ]
    sections = {**play.sections}
    if "env" in sections:
        env = {**sections.pop("env"), "rows": list(files)} if sections["env"] is not None else {}
    trained = _TRAIN_ROWS if _TRAIN_ROWS in files else _ROWS
    spec: dict[str, Any] = {
        "name": f"{SPEC_PREFIX}{name}",
        "model": {"path": "builtin:tiny"},
        # As the checkers of others: what cannot be read ends the task, and no correction helps the model on.
        "chat": {"failures": {"default": "end"}},
        "data": {"train": {"path": trained, **columns}, "eval": {"path": _ROWS, **columns}},
        "env": env,
        "rewards": rewards,
        "rollout": {"max_parse_failures": 0, "max_concurrency": 64, **play.rollout},
        "train": {"algorithm": "grpo"},
        "eval": {"limit": 100_000},
        **sections,
    }
    return {key: value for key, value in spec.items() if value != {}}


@dataclass(frozen=True, slots=True)
class TrialOptions:
    """How models are tried, as `rlf eval` takes it: greedily, unless samples or a temperature are asked for."""

    runs_folder: Path
    on_event: Callable[[Any], None]
    endpoint: str | None = None
    model: str | None = None
    api_key_env: str | None = None
    num_samples: int | None = None
    temperature: float | None = None
    limit: int | None = None
    timeout_s: float = 120.0

    def evaluate(
        self, targets: Sequence[str], files: Sequence[Path], overrides: Sequence[str]
    ) -> tuple[EvaluationRow, ...]:
        """A row for each target, and for the endpoint.

        Raises:
            RlfError, SpecError: a target is no model, or the spec does not fit it.
            KeyboardInterrupt: it was stopped; the same call continues it.
        """
        greedy = self.num_samples is None and self.temperature is None
        report: EvaluationReport = rlf.evaluate(
            list(targets),
            list(files),
            list(overrides),
            endpoint=self.endpoint,
            model=self.model,
            api_key_env=self.api_key_env,
            timeout_s=self.timeout_s,
            num_samples=self.num_samples,
            temperature=self.temperature,
            greedy=greedy,
            limit=self.limit,
            runs_folder=self.runs_folder,
            on_event=self.on_event,
        )
        return tuple(row for row in report.rows if (row.mode == "greedy") is greedy)


def bench(
    made: BenchmarkFolder, targets: Sequence[str], asked: TrialOptions, overrides: Sequence[str] = ()
) -> BenchmarkResult:
    """Tries models on a benchmark. Raises as `TrialOptions.evaluate` does."""
    kind = make_benchmark(made.benchmark, made.options)
    served = endpoint_of(asked.endpoint, asked.model, asked.api_key_env)
    fitting = [(name, _fit_context(name, made.spec, asked.runs_folder)) for name in targets]
    rows: list[EvaluationRow] = []
    for name, limits in fitting:
        only = replace(asked, endpoint=None, model=None, api_key_env=None)
        try:
            rows += only.evaluate([name], [made.spec], [*limits, *overrides])
        except SpecError as error:
            if not limits or {fault.path for fault in error.faults} != {"rollout.max_total_tokens"}:
                raise
            words = f"too few for the shortest task of {made.benchmark}. Name a model with more positions."
            raise RlfError(f"{name}: {limits[0].partition('=')[2]} tokens in all are {words}") from error
    if served is not None:
        # A name that is on no disk: the spec's own model, which is not asked, would bound the tokens.
        name = "endpoint" if folder_on_disk(served.model) or served.model.startswith((".", "/", "~")) else served.model
        rows += asked.evaluate([], [made.spec], [f"model.path={json.dumps(name)}", *overrides])
    return BenchmarkResult(made, tuple(score_model(kind, row) for row in rows))


def _fit_context(name: str, file: Path, runs_folder: Path) -> list[str]:
    """Overrides that end a model's trajectories where its positions do. Raises RlfError for what is no model."""
    with open_target(name, runs_folder=runs_folder, needs_data=False) as target:
        folder = None if target.model is None else folder_on_disk(target.model)
        context = None if folder is None else read_context(folder)
    limits = yaml.safe_load(file.read_text(encoding="utf-8"))["rollout"]
    changed = {
        key: min(limits[key], context or limits[key]) for key in ("max_total_tokens", "max_new_tokens") if key in limits
    }
    if all(limits[key] == value for key, value in changed.items()):
        return []
    logger.warning("%s takes %d tokens in all; the benchmark allows %d", name, context, limits["max_total_tokens"])
    return [f"rollout.{key}={value}" for key, value in changed.items()]


def score_model(benchmark: Benchmark | None, row: EvaluationRow) -> ModelScore:
    """A model's figures. Args: benchmark: whose own figures are formed; None: one that is not here any more."""
    rates = {one.kind: (one.success, one.num_questions) for one in row.kinds}
    return ModelScore(
        row.target,
        row.run_id,
        row.mode,
        row.num_questions,
        row.num_failed,
        row.success,
        row.low,
        row.high,
        {} if benchmark is None else dict(benchmark.summary(rates)),
        {one.kind: one.success for one in row.kinds},
        row.pass_all,
        row.terms,
        row.num_calls,
        row.num_tokens,
        row.cost_usd,
    )


def table_of(result: BenchmarkResult) -> tuple[list[str], list[list[str]]]:
    """Heads and cells of the table over models: a line for each figure, a column for each model."""
    columns, rows = columns_of(result.models)
    return ["", *(one.target for one in result.models)], [
        [name, *(row[at] for row in rows)] for at, name in enumerate(columns)
    ]


def columns_of(models: Sequence[ModelScore]) -> tuple[list[str], list[list[str]]]:
    """Names of the figures, and a line of texts for each model."""
    columns: list[tuple[str, list[str]]] = [("all", [_with_interval(one) for one in models])]
    parts = (("summary", "", True), ("kinds", "", True), ("pass_all", "pass^", True), ("scores", "mean ", False))
    for attribute, before, is_share in parts:
        maps = [getattr(one, attribute) for one in models]
        names = dict.fromkeys(name for found in maps for name in found)
        columns += [(f"{before}{name}", [_share(found.get(name), is_share) for found in maps]) for name in names]
    columns += [
        ("questions", [f"{one.num_questions:,}" for one in models]),
        ("broken", [f"{one.num_failed:,}" for one in models]),
        ("calls", [f"{one.num_calls:.2f}" for one in models]),
        ("tokens", [f"{one.num_tokens:,.0f}" for one in models]),
        ("US$", [f"{one.cost_usd:.2f}" for one in models]),
    ]
    return [name for name, _ in columns], [[texts[at] for _, texts in columns] for at in range(len(models))]


def _with_interval(one: ModelScore) -> str:
    return rate(one.success, None if one.low is None or one.high is None else Interval(one.low, one.high))


def _share(value: float | None, is_share: bool) -> str:
    if value is None:
        return "-"
    return f"{100 * value:.1f} %" if is_share else f"{value:.3f}"


def about_of(made: BenchmarkFolder) -> str:
    """What was measured, for below the table: package, rows and their hash."""
    return f"{made.benchmark}, {made.package or 'no package'}, {made.num_rows:,} rows, data {made.data_sha256}"


def page_of(title: str, about: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as a page by itself."""
    head = "".join(f"<th>{escape(one)}</th>" for one in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    style = "body{font:15px sans-serif;margin:2em}td,th{padding:.2em .8em;text-align:right}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title><style>{style}</style>'
        f"<h1>{escape(title)}</h1><p>{escape(about)}</p><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></html>"
    )
