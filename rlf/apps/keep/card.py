"""A model card in Markdown with one image: what a model was made from, its results, and how to train it again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlf.lineage.graph import row_hashes
from rlf.lineage.records import BRANCH, CHAT, EVALUATION, TRAIN, Evaluation, Run, RunRecord, TrajectoryFilter
from rlf.reports.pages.chart import ArmCurve, charts_svg, draw, main_curves
from rlf.reports.report import Report, sheet_markdown
from rlf.reports.sheets import Sheet, decimal, percent, visible
from rlf.reports.success import kinds_of, success_words

if TYPE_CHECKING:
    from rlf.lineage.chain import Link
    from rlf.lineage.reader import Reader

CURVE = "curve.svg"
CONTROL = "control"
"""The tag of runs that a card holds its own run against."""
_MODEL_LIMITS = ("max_turns", "max_tool_calls", "max_total_tokens", "max_new_tokens", "max_images")
_SAMPLING = ("num_generations", "temperature", "top_p", "top_k", "min_p", "schedule")
_CHANCES = ("pass@", "pass^")


@dataclass(frozen=True, slots=True)
class CardEvaluation:
    """An evaluation with what it was of."""

    of: str
    """`step 40`, or the run of an evaluation of its own."""
    found: Evaluation
    num_failed: int
    """Trajectories without a reward, which `success` leaves out."""


@dataclass(frozen=True, slots=True)
class Card:
    """The content of a card; everything but the texts of `usage` is from the lineage."""

    report: Report
    step: int
    """Updates that the model has seen."""
    evaluations: tuple[CardEvaluation, ...]
    """Of this model and of the one that it was trained from."""
    controls: tuple[tuple[Run, Evaluation], ...]
    """Runs that are tagged `control`, with the last evaluation of each."""
    licence: str
    """Of the base; empty where it is not known."""
    usage: Sequence[tuple[str, str]]
    """Commands by what they do."""
    image: str | None
    """The curves as SVG; None where there is nothing to draw."""
    head: Link | None
    """Of the run's chain, before this card."""
    num_seen: int
    """Questions of the run's evaluations that it was trained on, word for word."""
    num_questions: int
    """Of its evaluations."""


def read_card(reader: Reader, report: Report, step: int, *, licence: str, usage: Sequence[tuple[str, str]]) -> Card:
    """The card of a run's model after some number of updates."""
    run_id = report.run.record.id
    own = reader.evaluations(run_id)
    tried = [
        _describe_evaluation(reader, run_id, f"step {found.step}", found) for found in own if found.step in {0, step}
    ]
    tried += _tried_apart(reader, run_id, step)
    charts = [draw(chart) for chart in main_curves([ArmCurve("", [report.steps], [own])])[:2]]
    image = charts_svg(charts) if charts else None
    return Card(
        report,
        step,
        tuple(tried),
        tuple(_find_controls(reader, run_id)),
        licence,
        usage,
        image,
        reader.link(run_id),
        *_count_seen(reader, run_id),
    )


def _count_seen(reader: Reader, run_id: str) -> tuple[int, int]:
    hashes = row_hashes(reader, run_id)
    evaluated = {each for phase, of_phase in hashes.items() if phase != TRAIN for each in of_phase}
    return len(evaluated & set(hashes.get(TRAIN, ()))), len(evaluated)


def _describe_evaluation(reader: Reader, run_id: str, of: str, found: Evaluation) -> CardEvaluation:
    rows = reader.trajectories(run_id, TrajectoryFilter(phase=found.mode, step=found.step))
    return CardEvaluation(of, found, sum(row.reward is None for row in rows))


def _tried_apart(reader: Reader, run_id: str, step: int) -> Iterator[CardEvaluation]:
    """Evaluations of their own of a run's model; of several of the same the newest."""
    known: set[str] = set()
    for run in reader.list_runs():
        record = run.record
        is_of_model = record.engine == EVALUATION and (record.parent_id, record.parent_step) == (run_id, step)
        if not is_of_model or record.plan_hash in known:
            continue
        known.add(record.plan_hash)
        where = visible(_without_folders(record.plan["spec"]["data"]["eval"]["path"]))
        for found in reader.evaluations(record.id):
            if found.mode not in (BRANCH, CHAT):
                yield _describe_evaluation(reader, record.id, f"step {step}, {where} ({record.id})", found)


def _find_controls(reader: Reader, run_id: str) -> Iterator[tuple[Run, Evaluation]]:
    for control_id, tags in reader.tags().items():
        found = [item for item in reader.evaluations(control_id) if "success" in item.metrics]
        if CONTROL in tags and control_id != run_id and found:
            yield reader.get_run(control_id), found[-1]


def card_markdown(card: Card) -> str:
    """The card as the README of a model's folder."""
    record = card.report.run.record
    spec = record.plan["spec"]
    rows = []
    for term in spec.get("rewards", ()):
        kind = ": ".join(str(term[key]) for key in ("kind", "rule") if term.get(key))
        weight = "hidden, never trained on" if term.get("hidden") else _compact_value(term.get("weight", 1.0))
        rows.append((visible(term["name"]), visible(kind), weight))
    parts = [
        _front_matter(card, spec),
        f"# {visible(record.name)}",
        f"A language model that calls tools, trained by reinforcement learning with rlf for "
        f"{card.step} updates, as run `{record.id}`.",
        "\n".join(["```sh", *(f"{command}  # {what}" for what, command in card.usage), "```"]) if card.usage else "",
        _show_base(card, record, spec),
        _show_tools(spec),
        _make_sheet("Rewards", ("term", "kind", "weight"), rows, note="The first term is what counts as success."),
        _show_training(card, spec),
        _write_evaluations(card),
        _controls_part(card),
        _show_limits(spec),
        _show_repeat(record, card.head),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _front_matter(card: Card, spec: Mapping[str, Any]) -> str:
    base = spec["model"]["path"]
    lines = ["library_name: transformers", "pipeline_tag: text-generation"]
    lines += [f"license: {card.licence}"] if card.licence else []
    lines += [f"base_model: {base}"] if _is_hub_id(base) else []
    sources = [source["path"] for source in spec.get("data", {}).values() if isinstance(source, Mapping)]
    datasets = [path for path in sources if _is_hub_id(path)]
    lines += [f"datasets: {json.dumps(list(dict.fromkeys(datasets)))}"] if datasets else []
    lines += ["tags: [rlf, reinforcement-learning, tool-use]"]
    return "\n".join(["---", *lines, "---"])


def _is_hub_id(path: str) -> bool:
    return path.count("/") == 1 and not path.startswith(("/", ".", "builtin:"))


def _show_base(card: Card, record: RunRecord, spec: Mapping[str, Any]) -> str:
    adapters, base = spec["model"].get("lora"), _without_folders(spec["model"]["path"])
    how = f"adapters of rank {adapters['rank']}, merged" if adapters else "all weights"
    rows = [
        ("base", f"`{visible(base)}`"),
        ("licence of the base", card.licence or "not known: see the base"),
        ("trained", how),
    ]
    for file in (file for file in record.files if file.role in _ROLES):
        rows += [(_ROLES[file.role], f"`{visible(_without_folders(file.path))}`, hash in the lineage `{file.sha256}`")]
    return _make_sheet("Made from", ("", ""), rows)


def _without_folders(path: str) -> str:
    """A path as it may be read elsewhere: without the folders of the machine that it is on."""
    return Path(path).name if Path(path).is_absolute() else path


_ROLES = {"model": "weights", "tokenizer": "tokenizer", "template": "chat template", "data": "data"}


def _show_tools(spec: Mapping[str, Any]) -> str:
    rows = []
    for tool in spec.get("tools", ()):
        schema = tool.get("inputSchema") or tool.get("input_schema") or {}
        arguments = ", ".join(schema.get("properties", {})) or "none"
        rows.append((visible(tool["name"]), visible(tool["description"]), visible(arguments)))
    return _make_sheet("Tools", ("tool", "what it does", "arguments"), rows) if rows else "## Tools\n\nNone."


def _show_training(card: Card, spec: Mapping[str, Any]) -> str:
    train = spec["train"]
    keys = {key: value for key, value in train.items() if value is not None and key != "algorithm"}
    rows = [("algorithm", _compact_value(train.get("algorithm")))]
    rows += [(key, _compact_value(value)) for key, value in keys.items()]
    rollout = spec.get("rollout", {})
    rows += [(f"rollout.{key}", _compact_value(rollout[key])) for key in _SAMPLING if key in rollout]
    rows += [("engine", str(spec["engine"]["kind"])), ("seed", str(card.report.run.record.seed))]
    image = [f"![held-out success by step]({CURVE})"] if card.image is not None else []
    return "\n\n".join([_make_sheet("Training", ("setting", "value"), rows), *image])


def _write_evaluations(card: Card) -> str:
    rows = []
    for tried in card.evaluations:
        metrics = tried.found.metrics
        kinds = ", ".join(f"{visible(kind)} {percent(rate)}" for kind, rate in sorted(kinds_of(metrics).items()))
        chances = [f"{name} {percent(value)}" for name, value in sorted(metrics.items()) if name.startswith(_CHANCES)]
        num = f"{metrics.get('num_questions', 0):.0f}"
        reward = decimal(metrics.get("reward/mean"))
        failed = str(tried.num_failed)
        rows.append(
            (tried.of, tried.found.mode, success_words(metrics), ", ".join(chances), reward, num, failed, kinds)
        )
    if not rows:
        return "## Evaluations\n\nThis model was not evaluated."
    header = ("model", "mode", "success", "chances", "reward", "questions", "failed", "by kind")
    note = "In brackets: 95 % Wilson intervals over questions, or over clusters where their data names them. Step 0 is "
    note += "the base. Failed: broken by something outside the model; the other figures leave them out. "
    note += f"Of the {card.num_questions} questions of its run's evaluations, {card.num_seen} are rows it trained on."
    return _make_sheet("Evaluations", header, rows, note=note)


def _controls_part(card: Card) -> str:
    verdict = f"Compared with the model before training, on the same questions: {visible(card.report.verdict.line)}."
    if not card.controls:
        return f"## Controls\n\n{verdict}\n\nNo run of its lineage is tagged `{CONTROL}`."
    rows = [
        (visible(run.record.name), run.record.id, f"{found.mode}, step {found.step}", success_words(found.metrics))
        for run, found in card.controls
    ]
    return _make_sheet("Controls", ("run", "id", "evaluated", "success"), rows, note=verdict)


def _show_limits(spec: Mapping[str, Any]) -> str:
    limits = {
        key: value for key, value in spec.get("rollout", {}).items() if key in _MODEL_LIMITS and value is not None
    }
    note = (
        "It was trained and evaluated only within these limits and with these tools. Nothing is known about other "
        "tools, other questions, longer conversations or other languages. It was trained for its reward terms only."
    )
    return _make_sheet(
        "Limits", ("limit", "value"), [(key, _compact_value(value)) for key, value in limits.items()], note=note
    )


def _show_repeat(record: RunRecord, head: Link | None) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in record.packages.items())
    commands = [record.command, f"rlf runs reproduce {record.id}"]
    return "\n\n".join(
        [
            "## Train it again",
            "\n".join(["```sh", *map(visible, commands), "```"]),
            f"Plan `{record.plan_hash}`, code `{visible(record.code_version)}`, {visible(packages)}.",
            *([] if head is None else [f"Head of its lineage's chain: link {head.number}, `{head.sha256}`."]),
        ]
    )


def _make_sheet(title: str, header: tuple[str, ...], rows: Sequence[tuple[str, ...]], note: str = "") -> str:
    return sheet_markdown(Sheet(title, note, header, tuple(rows)))


def _compact_value(value: Any) -> str:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        value = {key: item for key, item in value.items() if item is not None}
    return f"{value:g}" if isinstance(value, float) else visible(json.dumps(value, ensure_ascii=False))
