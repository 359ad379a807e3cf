"""`python docs/reference.py` writes the reference of every key, kind and metric from the code, for `make reference`.

The tables of this file are of interest to readers alone: names of other libraries, and keys that no option is for.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from rlf.algo import ESTIMATORS, Estimator
from rlf.apps.openrlhf.argv import OPTIONS, Option
from rlf.apps.openrlhf.flags import EFFECTS, REFUSED
from rlf.apps.openrlhf.settings import VERSION
from rlf.apps.openrlhf.supervised import OPTIONS_OF_IMITATION, TAKEN
from rlf.apps.schema.schemas import dump_schema, model_schema
from rlf.chat import FORMATS
from rlf.cli.commands import is_present
from rlf.core import Registry
from rlf.environments.kind import ENV_KINDS, EnvSpec
from rlf.rewards.kinds.rule import RULES, Rule
from rlf.rewards.term import TERM_KINDS, Term
from rlf.spec.aliases import ALIASES, NEAR_MISSES, Alias, Library
from rlf.spec.engines import ENGINES, EngineSpec
from rlf.spec.facts import KeyFact, first_paragraph, key_facts, submodels
from rlf.spec.models import RunSpec
from rlf.tools.declaration import ToolDeclaration
from rlf.tools.kind import TOOL_KINDS, Faults, ToolKind
from rlf.tools.mcp.listing import ToolServer
from rlf.trackers import TRACKERS, Tracker

DOCS = Path(__file__).parent
_MADE = "<!-- Made by `make reference` from the code; edits here are lost. -->\n"
_HEADER = "| key | type | unit | default | range | meaning |\n|---|---|---|---|---|---|"
_ELSEWHERE: dict[type[BaseModel], str] = {
    ToolDeclaration: "Keys: [tool files](tool.md).",
    Term: "Keys: [reward files](reward.md).",
    Estimator: "Kinds: [estimators](estimators.md).",
    EnvSpec: "Keys: [worlds](env.md).",
}
"""Models whose keys are on another page."""


@dataclass(frozen=True, slots=True)
class KeyNames:
    """One setting of `train`."""

    here: str
    """As a spec writes it, below `train`."""
    trl: str
    """`GRPOConfig` of TRL 1.16."""
    verl: str
    openrlhf: str
    """0.11.2; `-` where it has none."""
    paper: str
    equation: str


OTHER_LIBRARIES = (
    KeyNames(
        "algorithm: grpo", "default", "`adv_estimator: grpo`", "`group_norm`",
        "arXiv:2402.03300", "A = (r - mean(r)) / std(r) over the group",
    ),
    KeyNames(
        "algorithm: dr_grpo", "`scale_rewards: none`", "`norm_adv_by_std_in_grpo: false`", "`dr_grpo`",
        "arXiv:2503.20783", "A = r - mean(r)",
    ),
    KeyNames(
        "algorithm: rloo", "`RLOOTrainer`", "`rloo`", "`rloo`",
        "arXiv:2402.14740", "A_i = r_i - mean of the others",
    ),
    KeyNames(
        "algorithm: reinforce", "-", "`reinforce_plus_plus`", "`reinforce`",
        "arXiv:2501.03262", "A = whiten(return)",
    ),
    KeyNames(
        "algorithm: reinforce_baseline", "-", "`reinforce_plus_plus_baseline`", "`reinforce_baseline`",
        "arXiv:2501.03262", "A = whiten(r - mean(r))",
    ),
    KeyNames("algorithm: flash_reinforce", "-", "-", "`flash_reinforce`", "OpenRLHF", "A = r - mean(r) over the batch"),
    KeyNames(
        "algorithm: {kind: gae, observations: bootstrap}", "-", "-", "`gae`",
        "arXiv:1506.02438", "t + 1 is the next token; V = 0 on observations",
    ),
    KeyNames(
        "algorithm: {kind: gae, observations: skip}", "-", "`gae`", "-",
        "arXiv:1506.02438", "t + 1 is the next sampled token",
    ),
    KeyNames("algorithm: mt_grpo", "-", "-", "-", "arXiv:2505.11821", "A_k = N(R) + c N_k(G_k) for turn k"),
    KeyNames(
        "algorithm: gdpo", "`multi_objective_aggregation: normalize_then_sum`", "`gdpo`", "-",
        "arXiv:2601.05242", "A = S / std(S) over the batch, S = sum_k w_k N(r_k)",
    ),
    KeyNames("algorithm: remax", "-", "`remax`", "-", "arXiv:2310.10505", "A = r - r of the greedy rollout"),
    KeyNames("algorithm: opo", "-", "`opo`", "-", "arXiv:2505.23585", "A = r - sum(l r) / sum(l), l the length"),
    KeyNames(
        "algorithm: gpg", "-", "`gpg`, which takes another M: rewards of 0", "-",
        "arXiv:2504.02546", "A = B / (B - M) (r - mean(r)), M of B in groups of equal rewards",
    ),
    KeyNames(
        "algorithm: {kind: pass_at_k, k: 4}", "-", "-", "-",
        "arXiv:2508.10751", "A_i = (E[max of k with i] - E[max of k]) / std(max of k)",
    ),
    KeyNames("algorithm: maxrl", "-", "-", "-", "arXiv:2602.02710", "A = (r - mean(r)) / mean(r)"),
    KeyNames("algorithm: gigpo", "-", "-", "-", "arXiv:2505.10978", "A = N(R) + w N_s(G), s the state of a turn"),
    KeyNames("algorithm: tree_grpo", "-", "-", "-", "arXiv:2509.21240", "A = N(R) + w N_tree(R), mean where shared"),
    KeyNames("algorithm: turn_returns", "-", "-", "-", "arXiv:2511.14846", "A = N_k(G), k the turn's number"),
    KeyNames("algorithm: distillation", "-", "-", "-", "arXiv:2306.13649", "A = log q - log p of a teacher q"),
    KeyNames(
        "algorithm: grpo_passk", "-", "`grpo_passk`", "-",
        "arXiv:2503.19595", "A of the best = (first - second) / std(r), 0 of others",
    ),
    KeyNames(
        "loss: {kind: ppo}", "default", "`loss_mode: vanilla`", "`ppo`",
        "arXiv:1707.06347, equation 7", "-min(rho A, clip(rho) A)",
    ),
    KeyNames(
        "loss: {kind: gspo}", "`importance_sampling_level: sequence`", "`loss_mode: gspo`", "`gspo`",
        "arXiv:2507.18071", "ppo with rho = exp(mean log ratio) of the sequence",
    ),
    KeyNames(
        "loss: {kind: cispo}", "`loss_type: cispo`, where epsilon_high is 1 + clip_high", "`loss_mode: cispo`", "-",
        "arXiv:2506.13585, equation 4", "-sg(clip(rho)) A log pi",
    ),
    KeyNames(
        "loss: {kind: sapo}", "`loss_type: sapo`", "`loss_mode: sapo`", "-",
        "arXiv:2511.20347", "-sigmoid(tau (rho - 1)) 4 / tau A",
    ),
    KeyNames("loss: {kind: gpg}", "-", "`loss_mode: gpg`", "-", "arXiv:2504.02546", "-A log pi"),
    KeyNames(
        "loss: {aggregation: token_mean}", "`loss_type: dapo`", "`token-mean`", "`token-mean`",
        "arXiv:2503.14476", "sum over tokens / number of tokens",
    ),
    KeyNames(
        "loss: {aggregation: seq_mean_token_mean}", "`loss_type: grpo`", "`seq-mean-token-mean`",
        "`seq-mean-token-mean`", "arXiv:2402.03300, equation 3", "mean over sequences of the mean over tokens",
    ),
    KeyNames(
        "loss: {aggregation: constant_length, length: 512}", "`loss_type: dr_grpo`",
        "`seq-mean-token-sum-norm`, `loss_scale_factor`", "-",
        "arXiv:2503.20783", "mean over sequences of the sum over tokens / length",
    ),
    KeyNames(
        "loss: {correction: {level: token, mode: clip}}", "`token_truncate`", "`rollout_is: token`",
        "level `token`, mode `clip`", "Yao et al. 2025", "w_t = clip(pi / mu)",
    ),
    KeyNames(
        "loss: {correction: {level: seq_product, mode: clip}}", "`sequence_truncate`", "`rollout_is: sequence`", "-",
        "Yao et al. 2025", "w = clip(prod_t pi / mu)",
    ),
    KeyNames(
        "loss: {correction: {level: seq_product, mode: mask}}", "`sequence_mask`", "-", "-",
        "Yao et al. 2025", "w = prod_t pi / mu inside the thresholds, else 0",
    ),
    KeyNames(
        "loss: {off_policy_mask: 0.5}", "`off_policy_mask_threshold`", "-", "-",
        "arXiv:2512.02556", "0 where A < 0 and mean log(mu / pi) > delta",
    ),
    KeyNames(
        "loss: {probability_mask: 0.3}", "-", "-", "-",
        "prime-rl's IPO, INTELLECT policy optimisation", "0 where |pi - mu| > eps",
    ),
    KeyNames(
        "loss: {dppo_mask: 0.2}", "-", "-", "-",
        "arXiv:2602.04879, prime-rl's `dppo`", "0 where sign(A) (pi - mu) > delta",
    ),
    KeyNames("loss: {observations: 0.05}", "-", "-", "-", "ECHO", "+ c mean of -log pi over tool results"),
    KeyNames(
        "loss: {top_entropy: 0.2}", "`top_entropy_quantile`", "-", "-",
        "arXiv:2506.01939", "0 where H < its (1 - rho) quantile",
    ),
    KeyNames(
        "mask_truncated: true", "`mask_truncated_completions`", "-", "-",
        "arXiv:2503.14476, section 3.4", "0 where the trajectory ran out of tokens",
    ),
    KeyNames(
        "kl: {sync_every: 64, sync_mix: 0.6}", "`sync_ref_model`, `ref_model_mixup_alpha`", "-", "-",
        "arXiv:2404.09656", "ref <- alpha pi + (1 - alpha) ref",
    ),
)  # fmt: skip
"""In the order of a spec: estimators, losses, means, corrections, masks, reference."""


@dataclass(frozen=True, slots=True)
class KeysWithoutOption:
    """Keys that need no option."""

    keys: str
    where: str


KEYS_WITHOUT_OPTION: tuple[KeysWithoutOption, ...] = (
    KeysWithoutOption(
        "chat tools rewards success.term success.at_least success.at_most",
        "the agent: rlf's own chat formats, tools and rewards",
    ),
    KeysWithoutOption(
        "env.kind env.files env.keep_state env.limits.reset_s env.limits.step_s env.limits.score_s "
        "env.limits.episode_s env.limits.max_concurrency env.limits.max_output_chars",
        "the agent: rlf's own worlds, each vLLM engine for itself",
    ),
    KeysWithoutOption(
        "rollout.max_turns rollout.max_tool_calls rollout.max_new_tokens rollout.max_parse_failures "
        "rollout.max_failed_turns rollout.stop rollout.top_k rollout.min_p",
        "the agent: rlf's own loop, turn by turn",
    ),
    KeysWithoutOption(
        " ".join(f"{part}.faults.{key}" for part in ("rollout", "eval") for key in Faults.model_fields),
        "the agent: rlf's own loop, between turns and tools",
    ),
    KeysWithoutOption(
        "train.dynamic_filtering.low train.dynamic_filtering.high", "the agents, which know the whole group"
    ),
    KeysWithoutOption("rollout.max_tool_concurrency", "the agents: each vLLM engine for itself"),
    KeysWithoutOption("report_to lineage", "rlf, which follows the job's steps"),
    KeysWithoutOption(
        "limits.max_usd limits.max_usd_per_evaluation",
        "rlf, which follows the job's steps; `max_usd_per_evaluation` is refused",
    ),
    KeysWithoutOption("health", "rlf, which follows the job's steps; `action: rollback` is refused"),
    KeysWithoutOption(
        "eval.num_samples eval.greedy eval.limit",
        "rows of data/eval.jsonl: one for each sample, and a greedy one",
    ),
    KeysWithoutOption("engine.kind engine.ray_address engine.ingest", "how the job is started and followed"),
    KeysWithoutOption("limits.max_usd", "rlf, which follows the job's steps"),
    KeysWithoutOption("data.allow_edited", "what is checked of a built world's files before the job starts"),
    KeysWithoutOption("data.allow_test_data", "what is checked of the rows before the job starts"),
    KeysWithoutOption("engine.accept_versions", "what is checked of the packages before the job starts"),
    KeysWithoutOption("engine.outage_s", "how long an agent waits for what is down"),
    KeysWithoutOption("engine.record_logprobs", "what the agent asks vLLM for"),
    KeysWithoutOption("engine.extra_flags", "options as they are"),
    KeysWithoutOption("rollout.schedule", "a warning: vLLM has no ticks"),
    KeysWithoutOption(
        "rollout.oversample rollout.deadline_s rollout.late train.staleness train.sampler rollout.prefix_rows "
        "rollout.tree.roots rollout.tree.rounds "
        "rollout.context.limit rollout.context.when_full rollout.context.keep_last "
        "train.observations_in_loss rollout.max_concurrency train.dynamic_filtering.max_rounds train.mask_truncated "
        "train.loss.off_policy_mask train.loss.probability_mask train.loss.dppo_mask "
        "train.loss.observations train.loss.top_entropy train.kl.sync_every "
        "limits.max_usd_per_evaluation rollout.agent.least_continued",
        "refused",
    ),
    KeysWithoutOption(
        "data.demonstrations.path data.demonstrations.steps data.demonstrations.per_step "
        "data.demonstrations.learning_rate data.demonstrations.heldout data.demonstrations.limit",
        "where every step imitates, OpenRLHF's supervised trainer, whose options are below; beside steps that sample "
        "`steps` is refused",
    ),
    KeysWithoutOption(
        "rollout.agent.command rollout.agent.callable rollout.agent.url rollout.agent.env rollout.agent.files "
        "rollout.agent.isolation rollout.agent.timeout_s rollout.agent.max_calls rollout.agent.on_break "
        "rollout.agent.scored",
        "the agent: the spec's own program, in place of rlf's loop; `on_break: sample` is refused",
    ),
    KeysWithoutOption("train.algorithm.observations", "`bootstrap` is OpenRLHF's only way; `skip` is refused"),
    KeysWithoutOption(
        "train.loss.length train.loss.tau_pos train.loss.tau_neg train.kl.sync_mix",
        "of losses and estimators that are refused",
    ),
)
"""Keys that are no options, with what uses them."""


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
        "openrlhf.md": "\n".join(_openrlhf_lines()),
    }
    return {name: _MADE + "\n" + text.rstrip() + "\n" for name, text in made.items()}


def build_files() -> dict[str, str]:
    """The schema and the page of build files by their path below `docs`; none without that app."""
    if not is_present("apps.build"):
        return {}
    from rlf.apps.build.kind import BUILD_KINDS, BuildKind, BuildSettings

    schema = dump_schema(model_schema(BuildSettings, "rlf build file"))
    page = _model_page("Build files", BuildSettings, BUILD_KINDS, BuildKind, "build: {{kind: {}}}")
    return {"schema/build.json": schema, "reference/build.md": page}


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


def _model_page(
    title: str, model: type[BaseModel], registry: Registry[Any], base: type[BaseModel], heading: str
) -> str:
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
    for row in OTHER_LIBRARIES:
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
    metrics = yaml.safe_load(Path(__file__).with_name("metrics.yaml").read_text(encoding="utf-8"))
    rows = ["| `{name}` | {unit} | {meaning} |".format_map(metric) for metric in metrics]
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


def _openrlhf_lines() -> Iterator[str]:
    """The options that each key becomes, and those that `engine.extra_flags` does not take."""
    yield f"# Options of OpenRLHF {VERSION}\n"
    yield "What rlf writes for `engine: openrlhf`, in order. An option is left out where its value is null or false.\n"
    yield from _option_lines(OPTIONS)
    yield "\n## Keys that are no option\n"
    yield "| keys | where they count |\n|---|---|"
    for elsewhere in KEYS_WITHOUT_OPTION:
        yield f"| {', '.join(f'`{key}`' for key in elsewhere.keys.split())} | {elsewhere.where} |"
    yield "\n## Options that `engine.extra_flags` does not take\n"
    yield "Beside those above, which a key is for:\n"
    yield "| option | why |\n|---|---|"
    for flag, why in REFUSED.items():
        yield f"| `--{flag}` | {why} |"
    yield "\nThese are refused where they would change nothing:\n"
    yield "| option | refused where |\n|---|---|"
    for flag, (_, why) in EFFECTS.items():
        yield f"| `--{flag}` | {why} |"
    yield "\n## Where every step imitates\n"
    yield (
        "A spec with `data.demonstrations` and no step that samples is a job of `openrlhf.cli.train_sft`. What follows "
        "is written for it; `engine.extra_flags` takes "
        f"{', '.join(f'`{flag}`' for flag in TAKEN)}.\n"
    )
    yield from _option_lines(OPTIONS_OF_IMITATION)


def _option_lines(options: Sequence[Option]) -> Iterator[str]:
    yield "| option | made from | how |\n|---|---|---|"
    for option in options:
        keys = ", ".join(f"`{key}`" for key in option.keys.split()) or "rlf"
        yield f"| `--{option.flag}` | {keys} | {option.note} |"


if __name__ == "__main__":
    for name, text in ({f"reference/{name}": text for name, text in pages().items()} | build_files()).items():
        (DOCS / name).write_text(text, encoding="utf-8")
