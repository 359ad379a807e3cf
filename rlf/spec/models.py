"""The run spec: one model per section of the YAML. Defaults here never depend on the machine."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from rlf.algo import Estimator
from rlf.algo.health import HealthConfig
from rlf.algo.loss_config import KlKind, LrSchedule, PolicyLossConfig
from rlf.chat.settings import ContextLimit, FailurePolicy, HistoryPolicy, RepairPolicy
from rlf.core.kinds import StrictModel
from rlf.environments.kind import EnvSpec
from rlf.rewards.term import Success, Term
from rlf.spec.agent import AgentSpec
from rlf.spec.engines import EngineSpec, default_engine
from rlf.tools.declaration import ToolDeclaration
from rlf.tools.kind import Faults
from rlf.trackers import Tracker
from rlf.types import FailureClass, ToolDescription

# The base of every part of a spec: frozen, and an unknown key is a fault.


class Section(StrictModel, allow_inf_nan=False):
    """A mapping of the YAML whose keys are the fields."""


class LoraSpec(Section):
    """Low-rank adapters in place of full weights (Hu et al. 2021)."""

    rank: int = Field(16, ge=1)
    """Width of the adapters."""
    alpha: int = Field(32, ge=1)
    """Scale; the adapter's output is multiplied by alpha / rank."""
    target_modules: str | tuple[str, ...] = "all-linear"
    """Names of the modules that get an adapter."""


class ModelSpec(Section):
    """The policy's starting point."""

    path: str
    """`builtin:NAME`, a folder, or a Hugging Face id."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Type of the computation; `auto`: bfloat16 on a GPU, float32 on a CPU. Weights trained whole stay float32."""
    lora: LoraSpec | None = None
    """None trains all weights."""


class ChatSpec(Section):
    """How messages and tool calls are written for the model."""

    format: str = "auto"
    """A chat format's name; `auto` decides from the model's own chat template."""
    repair: RepairPolicy = RepairPolicy.NONE
    """`safe` repairs calls where that cannot change their meaning, and counts it; `none` answers them as failures."""
    failures: Mapping[FailureClass | Literal["default"], FailurePolicy] = {}
    """`feedback`, `penalise` or `end` by failure class; `default` for the classes that are not named."""
    history: HistoryPolicy = HistoryPolicy.KEEP
    """For templates that rewrite earlier turns: `keep` the tokens as they were sampled, or `refuse` the template."""
    thinking_tag: Annotated[str, Field(pattern=r"^[A-Za-z][\w\-]*$")] | None = None
    """The tag between which the model thinks, e.g. `thinking` for `<thinking>`; `<think>` is always read as one."""
    stop_after_call: bool = False
    """Ends a turn with its first call, without sampling to the end of the turn; rules out parallel calls."""


class DataSource(Section):
    """One dataset and the names of its columns."""

    path: str
    """`builtin:NAME/SPLIT`, a .jsonl, .json, .csv, .parquet or .mix.yaml file, or a Hugging Face dataset id.
    A .mix.yaml file lists several datasets with weights."""
    config: str | None = None
    """Configuration of a Hugging Face dataset; None takes its default one."""
    split: str = "train"
    """Split of a Hugging Face dataset; files have none."""
    prompt: str = "prompt"
    """Column with the question, or with a list of {role, content} messages. Dots go into a column: `a.b`, `a.0`."""
    template: str | None = None
    """Jinja2 text over the row's columns, or a .jinja file with it, that makes the question in place of `prompt`."""
    answer: str | None = "answer"
    """Column with the gold answer or list of answers; None when no reward term needs one."""
    kind: str | None = None
    """Column with the kind of question, for reports."""
    id: str | None = None
    """Column that names the row, once each; None takes `id` where there is one, else the row's number and content."""
    tools: str | None = None
    """Column with the names of the tools that the row's trajectories see and may call; None: every declared one."""
    images: str | None = None
    """Column with the row's image or list of them, for each `<image>` in the prompt: a path from the data file's
    folder on, a `data:` URI, or the bytes of a file. None: prompts are text."""
    system: str | None = None
    """System message put before every prompt: Jinja2 like `template`, or a .jinja file."""
    examples: str | tuple[Mapping[str, Any], ...] = ()
    """Solved questions before every prompt: {prompt, answer} each, or a data file with such rows."""
    limit: int | None = Field(None, ge=1)
    """Number of rows taken from the start; None takes all."""


class EvalSource(DataSource):
    """The evaluation set."""

    cluster: str | None = None
    """Column with what questions have in common beside their kind, such as their document, world or template. Answers
    within one are alike, so that intervals and claims count these rather than the questions. None: each question is one
    of its own."""


class DemonstrationsSpec(Section):
    """Conversations that a run begins with: its first steps imitate them."""

    path: str
    """A .jsonl, .json or .parquet file of `messages` in OpenAI's form, as `rlf demos` writes it."""
    steps: int | None = Field(None, ge=1)
    """Steps, the first ones, that imitate demonstrations; `train.algorithm` has those that follow. None: every step."""
    per_step: int = Field(32, ge=1)
    """Demonstrations of one step; each pass over them has an order of its own."""
    learning_rate: float | None = Field(None, gt=0, le=1e6)
    """Peak rate of these steps, with the schedule of `train` over them alone; None: that of `train`."""
    heldout: int = Field(0, ge=0)
    """Demonstrations, the last of the file, that no step imitates: their loss is `loss/heldout`."""
    limit: int | None = Field(None, ge=1)
    """Number of rows taken from the start; None takes all."""


class DataSpec(Section):
    """The training set and the evaluation set."""

    train: DataSource
    """The tasks that rollouts are collected on, shuffled again for each pass."""
    eval: EvalSource | None = None
    """None: no evaluation."""
    demonstrations: DemonstrationsSpec | None = None
    """Conversations that the first steps imitate, before a policy learns from its own. None: it does from the start."""
    allow_edited: bool = False
    """Whether files of a built world may differ from those that its certificate was written for."""
    allow_test_data: bool = False
    """Whether rows of a test split are trained on, which can test nothing any more then."""

    @property
    def gold_columns(self) -> frozenset[str]:
        """Columns that hold gold answers, which no program that plays is given."""
        answers = (source.answer for source in (self.train, self.eval) if source is not None)
        return frozenset(answer.partition(".")[0] for answer in answers if answer is not None)


class Schedule(StrEnum):
    """When sampled rows leave and rejoin the batch around tool calls."""

    CLOCK = "clock"
    """As soon as their tools return: fastest, and no tokens repeat."""
    INVARIANT = "invariant"
    """As soon as their tools return, each row computed in shapes of its own: the same seed gives the same tokens, bit
    for bit, whatever the timing. Where kernels do not allow that, as on some GPUs, `logical` takes its place."""
    LOGICAL = "logical"
    """At fixed decode ticks, where all wait for the slowest tool. Nobody has to write it: `invariant` falls back to
    it."""


class Late(StrEnum):
    """Treatment of groups that are not whole when an update starts; after four steps one waits for them."""

    KEEP = "keep"
    """They continue under the new weights."""
    DROP = "drop"
    """They are cut off, and the next step plays their tasks from the beginning."""


class TreeSpec(Section):
    """Groups that are trees: rollouts branch at the start of later turns of others, and share what came before."""

    roots: int = Field(2, ge=1)
    """Rollouts of a group that begin with the prompt, each the first of its tree."""
    rounds: int = Field(1, ge=1)
    """Times that each tree grows: in each by an equal share of the group's other rollouts, where its rollouts of
    earlier rounds began a later turn, each such place as likely as the others."""

    def tree_of(self, sample_index: int) -> int:
        """The tree of a group's rollout, from 0."""
        return sample_index % self.roots

    def round_of(self, sample_index: int, num_generations: int) -> int:
        """The round that adds a group's rollout; 0: it is a root."""
        per_round = max(1, (num_generations - self.roots) // self.rounds)
        return 0 if sample_index < self.roots else 1 + (sample_index - self.roots) // per_round


class RolloutSpec(Section):
    """How trajectories are collected."""

    num_generations: int = Field(8, ge=1, le=100_000)
    """Rollouts per task, the group."""
    max_turns: int = Field(4, ge=1)
    """Generations per trajectory."""
    max_tool_calls: int | None = Field(None, ge=0)
    """Tool calls per trajectory; None: as many as the turns hold."""
    max_images: int = Field(0, ge=0)
    """Images per trajectory, of the prompt and of tools' results together; 0: the model gets none."""
    max_new_tokens: int | None = Field(None, ge=1)
    """Sampled tokens per turn; None: what is left of max_total_tokens."""
    max_total_tokens: int = Field(1024, ge=8)
    """Tokens of the whole trajectory: prompt, actions and observations."""
    temperature: float = Field(1.0, ge=0.01)
    """Divides the logits of rollouts: 1 samples the policy itself. Below 0.01 the quotients overflow."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Sampling keeps the likeliest tokens whose probabilities add up to this; 1 keeps all."""
    top_k: int = Field(0, ge=0)
    """Number of likeliest tokens kept; 0 keeps all."""
    min_p: float = Field(0.0, ge=0, lt=1)
    """Sampling drops tokens less likely than this share of the likeliest; 0 keeps all."""
    stop: tuple[Annotated[str, Field(json_schema_extra={"minLength": 1})], ...] = ()
    """Strings that end a turn, beside the chat format's own stop tokens. They stay in the tokens."""
    max_parse_failures: int = Field(1, ge=0)
    """Turns with a parse failure that are answered by a corrective observation; the next one ends the trajectory."""
    max_failed_turns: int | None = Field(None, ge=1)
    """Turns in a row without a valid call that end the trajectory: they fail to parse, or each call names no tool or
    has arguments that do not fit. None: they use up the turns."""
    max_concurrency: int = Field(256, ge=1)
    """Trajectories sampled at once."""
    max_tool_concurrency: int | None = Field(None, ge=1)
    """Tool calls that run at once, all tools together; None: as many as the tools' own limits let."""
    schedule: Schedule = Schedule.CLOCK
    """When sampled rows leave and rejoin the batch around tool calls: what a seed repeats, and what that costs."""
    oversample: float = Field(1.0, ge=1, le=4, allow_inf_nan=False)
    """Groups under way for each that a step needs: its update starts when prompts_per_step of them are whole."""
    deadline_s: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Seconds after which a step's update starts with the groups that are whole by then, at least one. None: never."""
    late: Late = Late.KEEP
    """Treatment of groups that are not whole when an update starts; after four steps one waits for them."""
    context: ContextLimit | None = None
    """When a trajectory continues in a new context, a row with its advantage. None: it ends where its one is full."""
    faults: Faults | None = None
    """Disturbances of tools and worlds to train under. None: none."""
    tree: TreeSpec | None = None
    """Which of a group's rollouts branch from others, at the start of a later turn: what they share is sampled and
    trained once, calls in it are made again and must have the same results. None: each begins with the prompt."""
    agent: AgentSpec | None = None
    """The program that plays each trajectory, and reaches the policy as a model's endpoint. None: rlf's own loop plays,
    with the spec's tools."""
    prefix_rows: bool = False
    """Ablation: trains on single turns, as FTRL does (ACL 2026). The policy plays each task once; from one of the
    states that this went through, drawn evenly, the group plays one turn more, and that turn alone is trained on. A
    later pass over the training set draws its states again."""

    @property
    def has_stragglers(self) -> bool:
        """Whether an update may start while groups are under way."""
        return self.oversample > 1 or self.deadline_s is not None

    @property
    def may_wait(self) -> bool:
        """Whether all may wait for the slowest tool."""
        return self.agent is None and not self.has_stragglers


class KlPlace(StrEnum):
    """Where the distance to the reference policy counts."""

    REWARD = "reward"
    """Subtracted from the reward, token by token."""
    LOSS = "loss"
    """Added to the loss."""


class KlSpec(Section):
    """Distance to a frozen copy of the starting policy. A coefficient of 0 loads no reference."""

    coef: float = Field(0.0, ge=0)
    """Weight of the distance; 0 turns it off."""
    kind: KlKind = KlKind.K3
    """Estimate of the distance, token by token."""
    place: KlPlace = KlPlace.LOSS
    """Where the distance counts."""
    sync_every: int | None = Field(None, ge=1)
    """Steps after which the reference moves towards the policy, as in TR-DPO (arXiv:2404.09656); None: never."""
    sync_mix: float = Field(0.6, gt=0, le=1)
    """Share of the policy's weights in the reference that it makes; 1 copies the policy."""


class FilterSpec(Section):
    """Dynamic filtering: groups whose rewards are all equal, or by `low` and `high` too bad or too good, are dropped
    and replaced."""

    low: float | None = None
    """With it, or with `high`, a group is kept by its mean reward, which must be above this. Without both, a group is
    kept where its rewards differ, whatever their range is."""
    high: float | None = None
    """The mean reward must be below this; None: it may be any."""
    max_rounds: int = Field(4, ge=1)
    """Collections per step at the most; then the step continues with what was kept."""

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The open range of the mean reward; None where rewards must differ instead."""
        if self.low is None and self.high is None:
            return None
        return (-math.inf if self.low is None else self.low, math.inf if self.high is None else self.high)


class TaskSampler(StrEnum):
    """Which tasks the steps take."""

    PASSES = "passes"
    """All of them, each pass in an order of its own."""
    POOLS = "pools"
    """Those of kinds whose groups differ, by success so far; what a whole group solved is retired for a while."""


class CriticSpec(Section):
    """The value model of `gae`, started from the policy's weights."""

    learning_rate: float = Field(9e-6, gt=0, le=1e6)
    """Peak rate of the critic's AdamW; it follows the policy's schedule."""
    value_clip: float = Field(0.2, gt=0)
    """Distance from its old value beyond which a value has no gradient."""


_TRUNCATED = {"level": "token", "mode": "clip", "threshold": [0.0, 2.0]}
"""Truncated importance sampling (Yao et al. 2025), for tokens that older weights sampled."""


class TrainSpec(Section):
    """One step collects prompts_per_step x num_generations trajectories and updates the policy."""

    algorithm: Estimator
    """Advantage estimator: a name, or a mapping with `kind` and its settings."""
    steps: int = Field(100, ge=1, le=1_000_000)
    """Updates of the policy over the whole run, each on a collection of its own."""
    prompts_per_step: int = Field(16, ge=1, le=1_000_000)
    """Tasks drawn for one step."""
    learning_rate: float = Field(1e-6, gt=0, le=1e6)
    """Peak rate of the policy's AdamW."""
    lr_schedule: LrSchedule = LrSchedule.CONSTANT
    """How the rate moves from its peak to its end, after the warmup."""
    warmup_steps: int = Field(0, ge=0)
    """Optimiser updates over which the rate rises to its peak; 0 starts at the peak."""
    min_lr_ratio: float = Field(0.1, ge=0, le=1)
    """Floor of `cosine_with_min_lr`, as a share of learning_rate."""
    weight_decay: float = Field(0.0, ge=0, le=1e6)
    """AdamW's decoupled decay; biases and norms have none."""
    adam_betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.95)
    """Decay of AdamW's running mean and of its running square."""
    max_grad_norm: float = Field(1.0, gt=0)
    """Gradients are scaled down to this norm over all parameters."""
    epochs: int = Field(1, ge=1, le=10_000)
    """Passes over the collected trajectories."""
    mini_batches: int = Field(1, ge=1)
    """Optimiser updates per pass."""
    micro_batch_tokens: int = Field(8192, ge=1)
    """Tokens, padding included, of one forward and backward pass."""
    loss: PolicyLossConfig = PolicyLossConfig()
    """The policy's loss: its kind, clips, masks, correction and mean."""
    kl: KlSpec = KlSpec()
    """Distance to a frozen copy of the starting policy. A coefficient of 0 loads no reference."""
    entropy_coef: float = Field(0.0, ge=0)
    """Weight of the mean entropy of the policy's distributions, in nats, added as a bonus."""
    reward_clip: tuple[float, float] = (-10.0, 10.0)
    """Bounds on each trajectory's reward after baseline and group scaling."""
    dynamic_filtering: FilterSpec | None = None
    """None keeps every group."""
    sampler: TaskSampler = TaskSampler.PASSES
    """Which tasks the steps take: with dynamic_filtering, which asks for other groups, a curriculum."""
    mask_truncated: bool = False
    """Leaves trajectories that ran out of tokens out of the loss; their rewards stay in their group's statistics
    (DAPO's overlong filtering, arXiv:2503.14476, section 3.4)."""
    critic: CriticSpec = CriticSpec()
    """The value model of `gae`; other estimators have none."""
    staleness: int = Field(0, ge=0, le=1)
    """Updates that rollouts may be behind: 1 plays the next step's rollouts beside the update, with a copy of the
    weights. `loss.correction` is then `{level: token, mode: clip, threshold: [0, 2]}` where the spec has none."""
    observations_in_loss: bool = False
    """Ablation only: trains on observation tokens too. Refused unless the spec's name ends in `_ablation`."""

    @property
    def has_reference(self) -> bool:
        """Whether a copy of the policy stays behind: its distance counts, or it is the policy's teacher."""
        learns = self.algorithm.needs_teacher and getattr(self.algorithm, "teacher", None) is None
        return learns or self.kl.coef > 0

    @model_validator(mode="before")
    @classmethod
    def _corrects_stale_rollouts(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not data.get("staleness") or not isinstance(data.get("loss", {}), dict):
            return data
        return data | {"loss": {"correction": _TRUNCATED} | data.get("loss", {})}


class EvalSpec(Section):
    """When and how the evaluation set is tried. It always is before the first step and after the last."""

    every: int | None = Field(None, ge=1)
    """Steps between evaluations; None: only the first and the last."""
    num_samples: int = Field(1, ge=1, le=10_000)
    """Sampled rollouts per question, for pass@k."""
    greedy: bool = True
    """Whether a greedy pass is made beside the sampled one."""
    temperature: float = Field(1.0, ge=0.01)
    """Divides the logits of the sampled evaluation."""
    limit: int = Field(256, ge=1)
    """Number of questions, from the start of the set."""
    faults: Faults | None = None
    """Disturbances of tools and worlds in evaluations. None: none, also where `rollout.faults` has some."""

    def due_steps(self, num_steps: int) -> frozenset[int]:
        """The numbers of updates after which a run of `num_steps` evaluates."""
        between = range(self.every, num_steps, self.every) if self.every is not None else ()
        return frozenset({0, num_steps, *between})


class CheckpointSpec(Section):
    """When the run's state is saved."""

    every: int = Field(10, ge=1)
    """Steps between checkpoints; the last step always has one."""
    keep: int = Field(2, ge=1)
    """Complete checkpoints kept, the newest."""


def _keep_rule(text: str) -> str:
    if re.fullmatch(r"(last|every):[1-9][0-9]*|failed|none", text) is None:
        message = f"got {text!r}; expected `last:N`, `every:N`, `failed` or `none`. Write e.g. `last:5`"
        raise PydanticCustomError("keep", "{message}", {"message": message})
    return text


KeepRule = Annotated[str, AfterValidator(_keep_rule)]


class LineageSpec(Section):
    """Where the run is recorded, and how much of it stays. No part of the plan's hash."""

    url: str | None = None
    """Any SQLAlchemy URL; null: `rlf.db` in the runs folder. RLF_DB replaces it, also for commands that read."""
    keep: tuple[KeepRule, ...] | None = None
    """Training trajectories that keep tokens, calls and scores once the run has finished, as `rlf runs gc --keep` says
    it: `last:N` steps, `every:N` steps, `failed`, `none`. null: all."""


class LimitsSpec(Section):
    """Limits of what the run spends on models behind tools and judges. No part of the plan's hash."""

    max_usd: float | None = Field(None, gt=0, allow_inf_nan=False)
    """US dollars of the whole run, those before a resume included: when they are spent, it stops as by Ctrl-C, and can
    be resumed. Requests that are under way are still paid for. null: no limit."""
    max_usd_per_evaluation: float | None = Field(None, gt=0, allow_inf_nan=False)
    """US dollars of one evaluation in one mode: when they are spent, it ends with the questions that are done. null: no
    limit."""


OUTSIDE = ("lineage", "report_to")
"""Sections that say where a run is reported, and nothing of the run."""
WITHOUT_EFFECT = ("name", "checkpoint", "limits", *OUTSIDE)
"""Keys that cannot change a run's results: two plans that differ in these alone have the same hash."""


class RunSpec(Section):
    """A whole run."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """The run's name in lists and reports."""
    model: ModelSpec
    chat: ChatSpec = ChatSpec()
    """How messages and tool calls are written for the model."""
    data: DataSpec
    tools: tuple[ToolDeclaration, ...] = ()
    """Tools that the policy may call: files, or declarations in place."""
    env: EnvSpec | None = None
    """The world that every trajectory has one of, with tools and scores of its own. None: there are only tools."""
    rewards: tuple[Term, ...] = Field(min_length=1)
    """Terms of the reward, summed by weight."""
    success: Success | None = None
    """What counts as success, from 0 to 1. null: the value of the first term, whose range must lie within 0 to 1."""
    rollout: RolloutSpec = RolloutSpec()
    """How trajectories are collected: turns, tokens, sampling, and how many at once."""
    train: TrainSpec
    eval: EvalSpec = EvalSpec()
    """When and how the evaluation set is tried. It always is before the first step and after the last."""
    checkpoint: CheckpointSpec = CheckpointSpec()
    """When the run's state is saved."""
    health: HealthConfig = HealthConfig()
    """Guards against collapse, each with its bounds and what follows. null turns one off."""
    limits: LimitsSpec = LimitsSpec()
    """What the run may spend on models behind tools and judges. No part of the plan's hash."""
    lineage: LineageSpec = LineageSpec()
    """Where the run is recorded, and how much of it stays. No part of the plan's hash."""
    report_to: tuple[Tracker, ...] = ()
    """Where metrics go beside the lineage, as the run goes: names, or mappings with `kind` and its settings. No part of
    the plan's hash."""
    engine: EngineSpec = Field(default_factory=default_engine)
    """What trains, in this process or as a job on a cluster, and its own keys."""
    seed: int = Field(0, ge=0, le=2**63 - 1)
    """Every random number of the run derives from it."""

    @property
    def shown_tools(self) -> tuple[ToolDescription, ...]:
        """Tools that the model sees: the declared ones except hidden ones, then the world's. Raises RlfError."""
        declared = tuple(tool.description_for_model for tool in self.tools if not tool.hidden)
        return declared if self.env is None else (*declared, *self.env.tools)

    @property
    def imitates_only(self) -> bool:
        """Whether every step imitates demonstrations, so that nothing is sampled to be trained on."""
        shown = self.data.demonstrations
        return shown is not None and (shown.steps is None or shown.steps >= self.train.steps)

    @property
    def most_at_once(self) -> int:
        """Trajectories sampled at once: no more than there may be worlds, since a logical order must wait for none."""
        most = self.rollout.max_concurrency
        return most if self.env is None else min(most, self.env.limits.max_concurrency)

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Names that the rows of a dataset may list: of declared tools, and of the world's. Raises RlfError."""
        declared = tuple(tool.name for tool in self.tools)
        return declared if self.env is None else (*declared, *(tool.name for tool in self.env.tools))
