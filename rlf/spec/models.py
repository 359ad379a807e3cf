"""The run spec: one model per section of the YAML. Defaults here never depend on the machine."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, SerializeAsAny

from rlf.algo import ESTIMATORS, Estimator
from rlf.algo.kl import KlKind
from rlf.algo.loss_config import PolicyLossConfig
from rlf.algo.schedule import LrSchedule
from rlf.rewards.term import Term
from rlf.spec.engine import ENGINES, EngineSpec
from rlf.spec.engines.local import LocalEngineSpec
from rlf.spec.kinds import KindOf
from rlf.spec.section import Section
from rlf.tools.declaration import ToolDeclaration


class LoraSpec(Section):
    """Low-rank adapters in place of full weights (Hu et al. 2021)."""

    rank: int = Field(16, ge=1)
    alpha: int = Field(32, ge=1)
    """Scale; the adapter's output is multiplied by alpha / rank."""
    target_modules: str | tuple[str, ...] = "all-linear"
    """Names of the modules that get an adapter."""


class ModelSpec(Section):
    """The policy's starting point."""

    path: str
    """`builtin:NAME`, a folder, or a Hugging Face id."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """`auto`: bfloat16 on a GPU, float32 on a CPU."""
    lora: LoraSpec | None = None
    """None trains all weights."""


class ChatSpec(Section):
    """How messages and tool calls are written for the model."""

    format: str = "auto"
    """A chat format's name; `auto` decides from the model's own chat template."""


class DataSource(Section):
    """One dataset and the names of its columns."""

    path: str
    """`builtin:NAME/SPLIT`, a .jsonl, .json, .csv or .parquet file, or a Hugging Face dataset id."""
    split: str = "train"
    """Split of a Hugging Face dataset; files have none."""
    prompt: str = "prompt"
    """Column with the question, or with a list of {role, content} messages."""
    answer: str | None = "answer"
    """Column with the gold answer or list of answers; None when no reward term needs one."""
    kind: str | None = None
    """Column with the kind of question, for reports."""
    system: str | None = None
    """System message put before every prompt."""
    limit: int | None = Field(None, ge=1)
    """Number of rows taken from the start; None takes all."""


class DataSpec(Section):
    """What is trained on and what is evaluated on."""

    train: DataSource
    eval: DataSource | None = None
    """None: no evaluation."""


class Schedule(StrEnum):
    """When sampled rows leave and rejoin the batch around tool calls."""

    CLOCK = "clock"
    """As soon as their tools return: fastest."""
    LOGICAL = "logical"
    """At fixed decode ticks: the same seed gives the same tokens, bit for bit, whatever the timing."""


class RolloutSpec(Section):
    """How trajectories are collected."""

    num_generations: int = Field(8, ge=1)
    """Rollouts per task, the group."""
    max_turns: int = Field(4, ge=1)
    """Generations per trajectory."""
    max_tool_calls: int | None = Field(None, ge=0)
    """Tool calls per trajectory; None: as many as the turns hold."""
    max_new_tokens: int | None = Field(None, ge=1)
    """Sampled tokens per turn; None: what is left of max_total_tokens."""
    max_total_tokens: int = Field(1024, ge=8)
    """Tokens of the whole trajectory: prompt, actions and observations."""
    temperature: float = Field(1.0, gt=0)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0)
    """Number of likeliest tokens kept; 0 keeps all."""
    min_p: float = Field(0.0, ge=0, lt=1)
    stop: tuple[str, ...] = ()
    """Strings that end a turn, beside the chat format's own stop tokens. They stay in the tokens."""
    max_parse_failures: int = Field(1, ge=0)
    """Turns with a parse failure that are answered by a corrective observation; the next one ends the trajectory."""
    max_concurrency: int = Field(256, ge=1)
    """Trajectories sampled at once."""
    schedule: Schedule = Schedule.CLOCK


class KlPlace(StrEnum):
    """Where the distance to the reference policy counts."""

    REWARD = "reward"
    """Subtracted from the reward, token by token."""
    LOSS = "loss"
    """Added to the loss."""


class KlSpec(Section):
    """Distance to a frozen copy of the starting policy. A coefficient of 0 loads no reference."""

    coef: float = Field(0.0, ge=0)
    kind: KlKind = KlKind.K3
    place: KlPlace = KlPlace.LOSS


class FilterSpec(Section):
    """Dynamic filtering: groups whose mean reward lies outside (low, high) are dropped and replaced."""

    low: float = 0.0
    high: float = 1.0
    max_rounds: int = Field(4, ge=1)
    """Collections per step at the most; then the step goes on with what was kept."""


class CriticSpec(Section):
    """The value model of `gae`, started from the policy's weights."""

    learning_rate: float = Field(9e-6, gt=0)
    value_clip: float = Field(0.2, gt=0)


class TrainSpec(Section):
    """One step collects prompts_per_step x num_generations trajectories and updates the policy."""

    algorithm: Annotated[Estimator, KindOf(ESTIMATORS)]
    """Advantage estimator: a name, or a mapping with `kind` and its settings."""
    steps: int = Field(100, ge=1)
    prompts_per_step: int = Field(16, ge=1)
    learning_rate: float = Field(1e-6, gt=0)
    lr_schedule: LrSchedule = LrSchedule.CONSTANT
    warmup_steps: int = Field(0, ge=0)
    min_lr_ratio: float = Field(0.1, ge=0, le=1)
    """Floor of `cosine_with_min_lr`, as a share of learning_rate."""
    weight_decay: float = Field(0.0, ge=0)
    adam_betas: tuple[float, float] = (0.9, 0.95)
    max_grad_norm: float = Field(1.0, gt=0)
    epochs: int = Field(1, ge=1)
    """Passes over the collected trajectories."""
    mini_batches: int = Field(1, ge=1)
    """Optimiser updates per pass."""
    micro_batch_tokens: int = Field(8192, ge=1)
    """Tokens, padding included, of one forward and backward pass."""
    loss: PolicyLossConfig = PolicyLossConfig()
    kl: KlSpec = KlSpec()
    entropy_coef: float = Field(0.0, ge=0)
    reward_clip: tuple[float, float] = (-10.0, 10.0)
    dynamic_filtering: FilterSpec | None = None
    """None keeps every group."""
    critic: CriticSpec = CriticSpec()
    observations_in_loss: bool = False
    """Ablation only: trains on observation tokens too. Refused unless the spec's name ends in `_ablation`."""


class EvalSpec(Section):
    """When and how the evaluation set is tried. It always is before the first step and after the last."""

    every: int | None = Field(None, ge=1)
    """Steps between evaluations; None: only the first and the last."""
    num_samples: int = Field(1, ge=1)
    """Sampled rollouts per question, for pass@k."""
    greedy: bool = True
    """Whether a greedy pass is made beside the sampled one."""
    temperature: float = Field(1.0, gt=0)
    limit: int = Field(256, ge=1)
    """Number of questions, from the start of the set."""


class CheckpointSpec(Section):
    """When the run's state is saved."""

    every: int = Field(10, ge=1)
    """Steps between checkpoints; the last step always has one."""
    keep: int = Field(2, ge=1)
    """Complete checkpoints kept, the newest."""


class RunSpec(Section):
    """A whole run."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    model: ModelSpec
    chat: ChatSpec = ChatSpec()
    data: DataSpec
    tools: tuple[ToolDeclaration, ...] = ()
    rewards: tuple[SerializeAsAny[Term], ...] = Field(min_length=1)
    rollout: RolloutSpec = RolloutSpec()
    train: TrainSpec
    eval: EvalSpec = EvalSpec()
    checkpoint: CheckpointSpec = CheckpointSpec()
    engine: Annotated[EngineSpec, KindOf(ENGINES)] = LocalEngineSpec()
    seed: int = Field(0, ge=0)
