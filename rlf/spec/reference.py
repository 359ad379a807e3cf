"""`python -m rlf.spec.reference [FOLDER]` writes the reference of every key, kind and metric from the code."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from rlf.algo import ESTIMATORS, Estimator
from rlf.chat import FORMATS
from rlf.core import Registry
from rlf.environments.kind import ENV_KINDS, EnvSpec
from rlf.rewards.kinds.rule import RULES, Rule
from rlf.rewards.term import TERM_KINDS, Term
from rlf.spec.aliases import ALIASES, NEAR_MISSES, Alias, Library
from rlf.spec.facts import KeyFact, first_paragraph, key_facts, submodels
from rlf.spec.libraries import ROWS
from rlf.spec.models import ENGINES, EngineSpec, RunSpec
from rlf.tools.declaration import ToolDeclaration
from rlf.tools.kind import TOOL_KINDS, ToolKind
from rlf.tools.mcp.listing import ToolServer
from rlf.trackers import TRACKERS, Tracker
from rlf.types.events import METRICS

FOLDER = Path("docs/reference")
_MADE = "<!-- Made by `python -m rlf.spec.reference` from the code; edits here are lost. -->\n"
_HEADER = "| key | type | unit | default | range | meaning |\n|---|---|---|---|---|---|"
_ELSEWHERE: dict[type[BaseModel], str] = {
    ToolDeclaration: "Keys: [tool files](tool.md).",
    Term: "Keys: [reward files](reward.md).",
    Estimator: "Kinds: [estimators](estimators.md).",
    EnvSpec: "Keys: [worlds](env.md).",
}
"""Models whose keys are on another page."""


def _names_page() -> str:
    keys = list(dict.fromkeys(key for alias in ALIASES for key in alias.canonical))
    lines = [f"| `{key}` | " + " | ".join(_names_of(key, source) for source in Library) + " |" for key in keys]
    heads = " | ".join(Library)
    near = [f"| `{name}` | {words[0].upper()}{words[1:]} |" for name, words in NEAR_MISSES.items()]
    return "\n".join(
        [
            "# Names of other libraries",
            "",
            "Accepted in a spec and on the command line, and stored under the name on the left. In brackets: what a "
            "name says beside its value, unless the same file says otherwise.",
            "",
            f"| here | {heads} |",
            "|---|" + "---|" * len(Library),
            *lines,
            "",
            "## Names that mean something else",
            "",
            "| name | why it is refused |",
            "|---|---|",
            *near,
        ]
    )


def _names_of(key: str, source: Library) -> str:
    found = [alias for alias in ALIASES if alias.source is source and key in alias.canonical]
    return "<br>".join(f"`{name}`{_show_conversion(alias)}" for alias in found for name in alias.names)


def _show_conversion(alias: Alias) -> str:
    parts = [f"{key.removeprefix('train.')}: {value}" for key, value in alias.implies.items()]
    parts += [f"also {key.rpartition('.')[2]}" for key in alias.also]
    parts += [f"{theirs} = {ours}" for theirs, ours in alias.values.items()]
    return f" ({', '.join(parts)})" if parts else ""


def pages() -> dict[str, str]:
    """The text of each page, by its file's name."""
    made = {
        "spec.md": _spec_page(),
        "tool.md": _tool_page(),
        "env.md": _env_page(),
        "reward.md": _reward_page(),
        "estimators.md": _estimators_page(),
        "chat-formats.md": _chat_formats(),
        "metrics.md": _metrics_page(),
        "names.md": _names_page(),
    }
    return {name: _MADE + "\n" + text.rstrip() + "\n" for name, text in made.items()}


def write_reference(folder: Path) -> None:
    """Writes every page."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


def _spec_page() -> str:
    intro = (
        "# The spec\n\nA run, as `rlf run` takes it. A key that is not here is a fault. Values may be `${oc.env:NAME}` "
        "or `${another.key}`; paths start from the file that has them.\n\n"
        "`extends` names one spec or several that this one is laid over; `tools` and `rewards` are lists of files, of "
        "`{use: FILE, ...}` with keys that differ, or of declarations in place.\n"
    )
    return "\n".join([intro, *_list_sections(RunSpec, "", 2)])


def _tool_page() -> str:
    kinds = _list_kinds(TOOL_KINDS, ToolKind, "target: {{kind: {}}}")
    servers = [f"## Servers in `tools`\n\n{_docstring_of(ToolServer)}\n", *_key_table(key_facts(ToolServer))]
    declared = [f"# Tool files\n\n{_docstring_of(ToolDeclaration)}\n", *_list_sections(ToolDeclaration, "", 2)]
    return "\n".join([*declared, *kinds, *servers])


def _env_page() -> str:
    kinds = _list_kinds(ENV_KINDS, EnvSpec, "env: {{kind: {}}}")
    return "\n".join([f"# Worlds\n\n{_docstring_of(EnvSpec)}\n", *_list_sections(EnvSpec, "", 2), *kinds])


def model_page(title: str, model: type[BaseModel], registry: Registry[Any], base: type[BaseModel], heading: str) -> str:
    """The page of a file of another model, with the kinds of one of its keys."""
    kinds = _list_kinds(registry, base, heading)
    return (
        "\n".join([f"{_MADE}\n# {title}\n\n{_docstring_of(model)}\n", *_list_sections(model, "", 2), *kinds]).rstrip()
        + "\n"
    )


def _reward_page() -> str:
    kinds = _list_kinds(TERM_KINDS, Term, "kind: {}")
    rules = _list_kinds(RULES, Rule, "rule: {}")
    return "\n".join([f"# Reward files\n\n{_docstring_of(Term)}\n", *_list_sections(Term, "", 2), *kinds, *rules])


def _estimators_page() -> str:
    intro = "# Advantage estimators\n\n`train.algorithm`: a name, or a mapping with `kind` and the keys below.\n"
    parts = [intro]
    for name in ESTIMATORS.names():
        estimator = ESTIMATORS.get(name)
        group = "Compares the rollouts of one task: `rollout.num_generations` of at least 2. "
        needs = (group if estimator.needs_group else "") + ("Trains a critic." if estimator.needs_critic else "")
        having = [engine for engine in ENGINES.names() if name in (ENGINES.get(engine).ESTIMATORS or (name,))]
        needs += "" if having == ENGINES.names() else f"Runs on `engine: {' or '.join(having)}` only."
        parts += [f"## {name}\n", _docstring_of(estimator) + "\n", *([needs.strip() + "\n"] if needs else [])]
        parts += _key_table(key_facts(estimator))
    return "\n".join([*parts, *_other_libraries()])


def _other_libraries() -> Iterator[str]:
    """Estimators, losses and their settings in other libraries."""
    yield "## Here and elsewhere\n"
    yield (
        "Names and formulas; what OpenRLHF does not have (-) is a fault under the engine of that name. "
        "Names of TRL 1.16 and OpenRLHF 0.11.2 are checked against their sources by a test. Numbers "
        "of equations are checked against transcriptions of the papers for PPO, GAE and GRPO; other papers' numbers "
        "and names of verl are not checked against their sources. Formulas are checked by tests that compute them "
        "again.\n"
    )
    yield "| here | TRL | verl | OpenRLHF | paper and equation |\n|---|---|---|---|---|"
    for row in ROWS:
        cells = (f"`{row.here}`", row.trl, row.verl, row.openrlhf, f"{row.paper}: {row.equation}")
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""


_CHAT_FORMATS = """# Chat formats

`chat.format`: one of these names, or `auto` to read it off the model's template.

A call in a syntax without a format here is the failure `wrong_tag`, never an answer. Gemma 4 has no format: its
template writes the results of a turn's calls inside that turn and before its text, where rlf feeds results after a turn
that has ended.
"""


def _chat_formats() -> str:
    parts = [_CHAT_FORMATS]
    for name in FORMATS.names():
        module = inspect.getmodule(FORMATS.get(name))
        chosen = "Chosen by name only.\n" if FORMATS.get(name).by_name else ""
        parts += [f"## {name}\n", f"{_docstring_of(module)}\n", *([chosen] if chosen else [])]
    return "\n".join(parts)


def _metrics_page() -> str:
    rows = [f"| `{metric.name}` | {metric.unit} | {metric.meaning} |" for metric in METRICS]
    intro = "# Metrics\n\nOf steps and evaluations, as `rlf runs show` and the JSON of a run have them.\n"
    return "\n".join([intro, "| name | unit | meaning |\n|---|---|---|", *rows])


def _list_sections(model: type[BaseModel], path: str, level: int) -> Iterator[str]:
    """The keys of a model in a table, then those of each mapping in it."""
    yield from _key_table(key_facts(model))
    for name, below in submodels(model):
        inner = f"{path}.{name}".lstrip(".")
        if below is ToolKind:
            continue
        yield f"{'#' * min(level, 4)} {inner}\n"
        yield f"{first_paragraph(below)}\n"
        if below in _ELSEWHERE:
            yield f"{_ELSEWHERE[below]}\n"
        elif below is EngineSpec:
            yield from _list_kinds(ENGINES, EngineSpec, "engine: {{kind: {}}}")
        elif below is Tracker:
            yield from _list_kinds(TRACKERS, Tracker, "report_to: [{{kind: {}}}]")
        else:
            yield from _list_sections(below, inner, level + 1)


def _list_kinds(registry: Registry[Any], base: type[BaseModel], heading: str) -> Iterator[str]:
    """Each kind, and the keys it has beside those of its base."""
    for name in registry.names():
        kind = registry.get(name)
        own = [fact for fact in key_facts(kind) if fact.name not in base.model_fields]
        yield f"## `{heading.format(name)}`\n"
        yield f"{_docstring_of(kind)}\n"
        yield from _key_table(own)
        for key, below in submodels(kind):
            if key not in base.model_fields:
                yield f"### `{key}`\n\n{first_paragraph(below)}\n"
                yield from [f"{_ELSEWHERE[below]}\n"] if below in _ELSEWHERE else _list_sections(below, key, 4)


def _key_table(facts: Sequence[KeyFact]) -> Iterator[str]:
    if not facts:
        return
    yield _HEADER
    for fact in facts:
        cells = (f"`{fact.name}`", fact.type, fact.unit, _quote_code(fact.default), fact.range, fact.meaning)
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""
    for fact in facts:
        if fact.choices:
            yield f"`{fact.name}`:\n"
            yield from (f"- `{value}`: {words}" for value, words in fact.choices)
            yield ""


def _quote_code(default: str) -> str:
    return default if default in ("", "required") else f"`{default}`"


def _docstring_of(documented: Any) -> str:
    return inspect.cleandoc(documented.__doc__ or "")


if __name__ == "__main__":
    write_reference(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
