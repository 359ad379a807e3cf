"""Settings that are legal and unwise: each check is a function from a spec and its questions to its warnings.

Pure, and apart from `rlf.plan.checks`: nothing here stops a run. A warning is a `Fault` in form: a place and a fix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rlf.algo.loss_config import LrSchedule, PolicyLossKind
from rlf.builtin.names import BUILTIN
from rlf.core import Fault
from rlf.data import recall
from rlf.plan.algorithms import dropped_terms_are_compared, gae_says_its_way, single_rollouts_are_mixed
from rlf.plan.checks import term_conditions
from rlf.plan.datasets import find_gold_warnings, find_misread_golds, find_overlaps, find_two_golds
from rlf.plan.estimate import planned_engine
from rlf.rewards.term import Stage
from rlf.spec import LoadedSpec, RunSpec
from rlf.spec.budget import PromptSizes
from rlf.spec.engines import Feature
from rlf.spec.models import Late, Schedule
from rlf.spec.nodes import KeyPath
from rlf.types import Task

# Warnings about reward terms that misread what the data holds.


def find_reward_warnings(loaded: LoadedSpec, datasets: Sequence[Sequence[Task]]) -> Iterator[Fault]:
    """Golds that a term misreads, golds without rows, and schemas that an empty value satisfies."""
    yield from find_misread_golds(loaded, datasets)
    for index, term in enumerate(loaded.spec.rewards):
        for key, message in term.misread_keys(datasets):
            yield loaded.fault(("rewards", index, key), message)


# Settings that nothing reads, because of another setting: legal, and without the effect that their writer wants.


@dataclass(frozen=True, slots=True)
class Unread:
    """Keys of one mapping without effect."""

    parent: KeyPath
    keys: tuple[str, ...]
    why: str
    """The reason, and what to write."""


def find_unread(loaded: LoadedSpec) -> Iterator[Fault]:
    """A warning at each key that is written and not read."""
    spec = loaded.spec
    for unread in (*_unread_by_loss(spec), *_unread_by_training(spec), *_unread_by_rollouts(spec)):
        yield from find_written(loaded, unread)


def find_written(loaded: LoadedSpec, unread: Unread) -> Iterator[Fault]:
    """A warning at each of the keys that the spec says something about."""
    for key in unread.keys:
        path = (*unread.parent, key)
        if (value := loaded.value(path)) is not None:
            yield loaded.fault(path, f"got {value}, which nothing reads: {unread.why}")


def _unread_by_loss(spec: RunSpec) -> Iterator[Unread]:
    loss, parent = spec.train.loss, ("train", "loss")
    gates = ("mode", "gating", "threshold")
    if loss.correction.level == "off":
        why = "level is off, so nothing is corrected. Write `level: token`, or remove it."
        yield Unread((*parent, "correction"), gates, why)
    if loss.sampler_is_old:
        why = f"gspo with level {loss.correction.level} uses the sampler as the old policy and reads "
        fix = "nothing else. Write `level: seq_product` to weigh the loss, or remove it."
        yield Unread((*parent, "correction"), gates, f"{why}{fix}")
    if loss.kind in (PolicyLossKind.SAPO, PolicyLossKind.GPG):
        yield Unread(parent, ("clip_low", "clip_high"), f"{loss.kind} has no clip. Remove it.")
    if loss.kind is not PolicyLossKind.SAPO:
        why = f"it belongs to sapo, not to {loss.kind}. Remove it, or write `kind: sapo`."
        yield Unread(parent, ("tau_pos", "tau_neg"), why)


def _unread_by_training(spec: RunSpec) -> Iterator[Unread]:
    train = spec.train
    if train.kl.sync_every is None:
        why = "the reference never moves. Write e.g. `sync_every: 64`, or remove it."
        yield Unread(("train", "kl"), ("sync_mix",), why)
    if train.kl.coef == 0:
        why = "coef is 0, so that there is no reference. Write e.g. `coef: 0.001`, or remove it."
        yield Unread(("train", "kl"), ("kind", "place"), why)
    if train.lr_schedule is not LrSchedule.COSINE_WITH_MIN_LR:
        why = f"lr_schedule {train.lr_schedule} has no floor. Write `lr_schedule: cosine_with_min_lr`, or remove it."
        yield Unread(("train",), ("min_lr_ratio",), why)


def _unread_by_rollouts(spec: RunSpec) -> Iterator[Unread]:
    if not spec.rollout.has_stragglers:
        why = "an update waits for all of its groups. Write e.g. `oversample: 1.25` or `deadline_s: 60`, or remove it."
        yield Unread(("rollout",), ("late",), why)
    if not spec.tools and spec.env is None:
        why = "there are no tools. Add some, or remove it."
        yield Unread(("rollout",), ("max_tool_calls", "max_tool_concurrency"), why)


MAX_CHARS_PER_TOKEN = 8
"""More than any tokenizer's mean on prose or code: what has more characters has more tokens than the budget."""
MIN_NEW_TOKENS = 32
"""About what a call of a tool with one argument takes."""
MAX_EPOCHS_WITHOUT_KL = 2
FULL_RATES = (1e-8, 2e-5)
"""Learning rates of all weights beyond which runs stand still or break down."""
LORA_RATES = (2e-6, 2e-3)
"""The same of adapters, which learn at some ten times the rate."""
BUILTIN_RATES = (1e-4, 1e-2)
"""The same of the built-in models, which are a thousand times smaller."""
ONE_TOOL = "builtin:small"
"""It was not taught to choose a tool."""
MIN_STEPS_TO_LEARN = 10
"""Shorter runs try something out."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A spec with all that warnings look at."""

    loaded: LoadedSpec
    train: Sequence[Task] = ()
    evaluation: Sequence[Task] = ()
    """Empty where they are not read or there are none."""
    sizes: PromptSizes | None = None
    """What the training prompts take in tokens; None where that was not measured."""


def find_warnings(subject: Subject) -> list[Fault]:
    """The warnings of all checks, by place."""
    loaded = subject.loaded
    found = [warning for check in SPEC_CHECKS for warning in check(loaded)]
    found += [warning for check in DATA_CHECKS for warning in check(subject)]
    found += find_reward_warnings(loaded, (subject.train, subject.evaluation))
    return sorted(found)


def _warmup_is_short(loaded: LoadedSpec) -> Iterator[Fault]:
    train = loaded.spec.train
    updates = train.steps * train.epochs * train.mini_batches
    path = ("train", "warmup_steps")
    if train.warmup_steps == 1:
        message = "got 1; the first update has the whole learning rate already. Write 0, or a tenth of the updates."
        yield loaded.fault(path, message)
    elif 2 * train.warmup_steps > updates:
        yield loaded.fault(
            path,
            f"got {train.warmup_steps} of {updates} updates; most of the run is below its learning rate. "
            f"Write at most {updates // 10}.",
        )


def _something_is_rewarded(loaded: LoadedSpec) -> Iterator[Fault]:
    """A reward of penalties alone is what is left when a sign is wrong."""
    weights = [(at, term.weight_at(1)) for at, term in enumerate(loaded.spec.rewards) if term.peak_weight]
    if weights and all(weight < 0 for _, weight in weights):
        at, weight = weights[0]
        message = f"got {weight:g}, and no weight is above 0: the least value of {loaded.spec.rewards[at].name!r} is "
        yield loaded.fault(
            ("rewards", at, "weight"), f"{message}rewarded most. Write `weight: {-weight:g}`, unless that is meant."
        )


def _builtin_model_has_learnt_it(subject: Subject) -> Iterator[Fault]:
    spec, path = subject.loaded.spec, ("model", "path")
    num_tools = sum(not tool.hidden for tool in spec.tools)
    if spec.model.path == ONE_TOOL and num_tools > 1:
        message = f"it chooses between tools no better than by chance, and there are {num_tools}. Write one tool, or "
        yield subject.loaded.fault(path, f"got {ONE_TOOL}; {message}name a model of the Hub.")
    if spec.model.path.startswith(BUILTIN) and (foreign := recall(_find_foreign, subject.train)):
        message = f"it has learnt words of unaccented letters, and most questions have others, e.g. {foreign!r}. "
        yield subject.loaded.fault(path, f"got {spec.model.path}; {message}Name a model of the Hub.")


def _find_foreign(tasks: Sequence[Task]) -> str:
    """The beginning of a question in other letters; empty where most are in unaccented ones."""
    foreign = [task for task in tasks if not task.question.isascii()]
    return foreign[0].question[:40] if 2 * len(foreign) > len(tasks) else ""


def _rows_fill_a_step(subject: Subject) -> Iterator[Fault]:
    num, asked = len(subject.train), subject.loaded.spec.train.prompts_per_step
    if 0 < num < asked:
        message = f"got {asked}; data.train has {num} row{'s' * (num > 1)}, so that a step takes one several times. "
        yield subject.loaded.fault(("train", "prompts_per_step"), f"{message}Write e.g. `prompts_per_step: {num}`.")


def _tool_output_fits(loaded: LoadedSpec) -> Iterator[Fault]:
    spec = loaded.spec
    budget = spec.rollout.max_total_tokens
    for index, tool in enumerate(spec.tools):
        if tool.limits.max_output_chars > MAX_CHARS_PER_TOKEN * budget:
            yield loaded.fault(
                ("tools", index, "limits", "max_output_chars"),
                f"got {tool.limits.max_output_chars}; one result of {tool.name!r} can end a trajectory, which has "
                f"max_total_tokens: {budget}. Write e.g. `max_output_chars: {max(100, budget)}`, a quarter of it.",
            )


def _kl_holds_many_epochs(loaded: LoadedSpec) -> Iterator[Fault]:
    train = loaded.spec.train
    if train.epochs > MAX_EPOCHS_WITHOUT_KL and train.kl.coef == 0:
        message = f"got {train.epochs} with kl.coef 0; nothing keeps the policy near the one that sampled. "
        yield loaded.fault(("train", "epochs"), f"{message}Write 1, or `kl: {{coef: 0.001}}`.")


def _results_are_read(loaded: LoadedSpec) -> Iterator[Fault]:
    spec = loaded.spec
    if spec.rollout.max_turns == 1 and spec.rollout.agent is None and (spec.env or spec.shown_tools):
        message = "got 1; the turn that calls a tool is the last one, so that its result is never read. "
        yield loaded.fault(("rollout", "max_turns"), f"{message}Write at least 2, or remove the tools.")


def _worlds_are_named(subject: Subject) -> Iterator[Fault]:
    env = subject.loaded.spec.env
    if env is None or len(env.parts) == 1 or not subject.train:
        return
    named = {task.columns.get(getattr(env, "column", "")) for task in subject.train if task.columns}
    for name in env.parts:
        if name not in named:
            message = "no row of data.train names this world, so that nothing is trained in it. Remove it, or add rows."
            yield subject.loaded.fault(("env", "worlds", str(name)), message)


def _turns_have_room(subject: Subject) -> Iterator[Fault]:
    """Counted where the tokenizer and the answers are on this machine, by a bound where not."""
    given, sizes = subject.loaded.spec.rollout.max_new_tokens, subject.sizes
    if given is None:
        return
    path = ("rollout", "max_new_tokens")
    longer = [] if sizes is None else [size for size in sizes.answers if size > given]
    if sizes is not None and 2 * len(longer) > len(sizes.answers):
        answers, half = sorted(sizes.answers), len(sizes.answers) // 2
        message = f"got {given}; {len(longer)} of {len(answers)} sampled answers need more (median {answers[half]}, "
        fix = f"Write at least {answers[-1]}, or null."
        yield subject.loaded.fault(path, f"{message}longest {answers[-1]}), which are cut off. {fix}")
    elif sizes is not None and given < sizes.turn:
        message = f"got {given}; {sizes.turn_words} takes {sizes.turn} tokens, so it is cut off. "
        yield subject.loaded.fault(path, f"{message}Write more, or null.")
    elif sizes is None and given < MIN_NEW_TOKENS:
        message = f"got {given}; a call of a tool takes about {MIN_NEW_TOKENS}, so most turns are cut off. "
        yield subject.loaded.fault(path, f"{message}Write more, or null.")


def _prompts_leave_room(subject: Subject) -> Iterator[Fault]:
    sizes, budget = subject.sizes, subject.loaded.spec.rollout.max_total_tokens
    share = 0.0 if sizes is None else sizes.share_cut(budget)
    if sizes is not None and share:
        yield subject.loaded.fault(
            ("rollout", "max_total_tokens"),
            f"got {budget}; {100 * share:.0f} % of the training prompts leave no room for a turn: with tools they take "
            f"up to {max(sizes.tokens)} tokens, a turn at least {sizes.turn}. Write more, or leave the long ones out.",
        )


def _learning_rate_is_usual(loaded: LoadedSpec) -> Iterator[Fault]:
    spec, rate = loaded.spec, loaded.spec.train.learning_rate
    if spec.model.path.startswith(BUILTIN):
        if spec.train.steps < MIN_STEPS_TO_LEARN and rate < 1:
            return
        what, (low, high), usual = "built-in models", BUILTIN_RATES, "3e-4"
    elif spec.model.lora is None:
        what, (low, high), usual = "all weights", FULL_RATES, "1e-6"
    else:
        what, (low, high), usual = "adapters", LORA_RATES, "2e-5"
    if not low <= rate <= high:
        sign = " (is the minus of its exponent missing?)" if rate >= 1 else ""
        message = f"got {rate:g}{sign}; for {what} {low:g} to {high:g} is usual. Write e.g. `learning_rate: {usual}`."
        yield loaded.fault(("train", "learning_rate"), message)


def _questions_are_apart(subject: Subject) -> Iterator[Fault]:
    asked = subject.evaluation[: subject.loaded.spec.eval.limit]
    yield from find_overlaps(subject.loaded, subject.train, asked)
    for name, tasks in (("train", subject.train), ("eval", subject.evaluation)):
        yield from find_two_golds(subject.loaded, name, tasks)
        yield from find_gold_warnings(subject.loaded, name, tasks)


def _groups_are_large(loaded: LoadedSpec) -> Iterator[Fault]:
    train, rollout = loaded.spec.train, loaded.spec.rollout
    if train.algorithm.needs_group and rollout.num_generations <= 2:
        name = loaded.value(("train", "algorithm", "kind"))
        message = f"got {rollout.num_generations}; with so few rollouts, the advantages of {name} are mostly chance. "
        yield loaded.fault(("rollout", "num_generations"), f"{message}Write 4 or more.")


def _policy_is_tried_as_it_is_sampled(loaded: LoadedSpec) -> Iterator[Fault]:
    """Saved weights are the policy at 1: who trains at another temperature tries it at that one."""
    spec = loaded.spec
    trained, tried = spec.rollout.temperature, spec.eval.temperature
    if spec.data.eval is not None and trained not in (1.0, tried):
        message = (
            f"got {trained:g}; the policy is trained as sampled there, and tried at {tried:g} (eval.temperature). "
        )
        fix = f"Write 1.0, or `eval: {{temperature: {trained:g}}}` where it will be used at that."
        yield loaded.fault(("rollout", "temperature"), message + fix)


def _long_tasks_are_not_begun_again(loaded: LoadedSpec) -> Iterator[Fault]:
    rollout = loaded.spec.rollout
    if rollout.deadline_s is not None and rollout.late is Late.DROP:
        message = f"got drop; a group that takes longer than deadline_s: {rollout.deadline_s:g} is begun again, so "
        fix = "tasks that always take longer are trained on less often. Write keep, which continues them."
        yield loaded.fault(("rollout", "late"), f"{message}{fix}")


def _answers_outweigh_shape(loaded: LoadedSpec) -> Iterator[Fault]:
    terms = loaded.spec.rewards
    shaping = [term for term in terms if term.pays_for_form]
    weight, rest = (sum(t.peak_weight for t in group) for group in (shaping, [t for t in terms if t not in shaping]))
    if weight > rest:
        names = ", ".join(repr(term.name) for term in shaping)
        message = f"{names} weigh {weight:g} and what looks at the answer {rest:g}; the form can earn more than a "
        yield loaded.fault(("rewards",), f"{message}right answer. Give them less weight.")


def _check_turn_credit(loaded: LoadedSpec) -> Iterator[Fault]:
    spec = loaded.spec
    by_turn = [position for position, term in enumerate(spec.rewards) if term.stage is Stage.TURN]
    name = loaded.value(("train", "algorithm", "kind"))
    if name == "mt_grpo" and not by_turn:
        message = (
            f"got {name}, but no reward term has `stage: turn`, and without one it is grpo. Write grpo, or add one."
        )
        yield loaded.fault(("train", "algorithm"), message)
    elif by_turn and not spec.train.algorithm.reads_turns and Feature.TURN_REWARDS not in spec.engine.LACKS:
        message = f"got turn, but {name} gives every turn the trajectory's advantage; only the mean over turns counts. "
        fix = "Write algorithm: mt_grpo, or stage: outcome."
        yield loaded.fault(("rewards", by_turn[0], "stage"), f"{message}{fix}")


def _engine_does_otherwise(loaded: LoadedSpec) -> Iterator[Fault]:
    why = loaded.spec.engine.LACKS.get(Feature.LOGICAL_SCHEDULE)
    schedule = loaded.spec.rollout.schedule
    if why is not None and schedule is not Schedule.CLOCK:
        yield loaded.fault(("rollout", "schedule"), f"got {schedule}; {why}. Write clock.")
    elif schedule is Schedule.LOGICAL:
        message = "got logical, under which sampling stops until the slowest tool returns. "
        yield loaded.fault(("rollout", "schedule"), f"{message}Write invariant, which repeats too and does not wait.")
    yield from planned_engine(loaded.spec).find_warnings(loaded)


def _conditions_of_terms(loaded: LoadedSpec) -> Iterator[Fault]:
    yield from term_conditions(loaded, "WARNINGS")


SPEC_CHECKS: tuple[Callable[[LoadedSpec], Iterator[Fault]], ...] = (
    _warmup_is_short,
    _something_is_rewarded,
    _tool_output_fits,
    _kl_holds_many_epochs,
    _learning_rate_is_usual,
    _groups_are_large,
    _policy_is_tried_as_it_is_sampled,
    _long_tasks_are_not_begun_again,
    _answers_outweigh_shape,
    _check_turn_credit,
    _engine_does_otherwise,
    find_unread,
    single_rollouts_are_mixed,
    dropped_terms_are_compared,
    gae_says_its_way,
    _conditions_of_terms,
    _results_are_read,
)
DATA_CHECKS: tuple[Callable[[Subject], Iterator[Fault]], ...] = (
    _worlds_are_named,
    _rows_fill_a_step,
    _builtin_model_has_learnt_it,
    _turns_have_room,
    _prompts_leave_room,
    _questions_are_apart,
)
