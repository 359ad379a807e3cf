"""The keys of `engine: {kind: openrlhf}`, how a plan lies on GPUs by them, and the version that it is made for."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field

from rlf.algo.loss_config import PolicyLossKind
from rlf.core.servers import TlsCertificate
from rlf.engines.engine import Engine
from rlf.spec.models import RunSpec, Section

INGEST_TOKEN = "RLF_INGEST_TOKEN"
"""The variable with the word that both sides of `ingest` know."""

Package = Literal["openrlhf", "vllm", "ray", "deepspeed"]
"""Those whose versions a job is written for."""
ESTIMATOR_NAMES = {
    "gae": "gae",
    "reinforce": "reinforce",
    "reinforce_baseline": "reinforce_baseline",
    "rloo": "rloo",
    "grpo": "group_norm",
    "dr_grpo": "dr_grpo",
    "flash_reinforce": "flash_reinforce",
}
"""OpenRLHF's names of the estimators that it has; the others are refused."""
LOSS_NAMES = {PolicyLossKind.PPO: "ppo", PolicyLossKind.GSPO: "gspo"}
"""The same of policy losses."""


class Colocate(StrEnum):
    """Which models share GPUs."""

    ALL = "all"
    """Every model and vLLM share the policy's GPUs and take turns. Not with an asynchronous mode."""
    TRAINED = "trained"
    """Policy, reference and critic share GPUs; vLLM has its own. With an asynchronous mode alone."""
    ACTOR_REF = "actor_ref"
    """Policy and reference share GPUs; critic and vLLM have their own."""
    NONE = "none"
    """Each model has its own GPUs."""


class Mode(StrEnum):
    """How collecting and training follow each other."""

    SYNC = "sync"
    """In turn: every trajectory is of the newest weights."""
    ASYNC = "async"
    """At the same time: a collection is of the weights before the last updates, as many as `queue_size` allows."""
    PARTIAL = "partial"
    """Like `async`, and sampling is only paused for new weights: one trajectory can be of several."""


class Gpus(Section):
    """Where one model lies."""

    nodes: int = Field(1, ge=1)
    """Machines."""
    per_node: int = Field(1, ge=1)
    """GPUs of each."""

    @property
    def total(self) -> int:
        """GPUs in all."""
        return self.nodes * self.per_node


class VllmSpec(Section):
    """The sampling side."""

    engines: int | None = Field(None, ge=1)
    """Copies of the model that sample. None: one, or with `colocate: all` as many as fill the policy's GPUs."""
    tensor_parallel: int = Field(1, ge=1)
    """GPUs that one copy is cut over."""
    gpu_memory: float | None = Field(None, gt=0, lt=1)
    """Share of each GPU's memory that vLLM takes. None: 0.5 where it shares the GPU, else 0.9."""
    enforce_eager: bool = False
    """True saves the memory and start-up time of CUDA graphs and samples slower."""
    prefix_caching: bool = True
    """Keeps the keys and values of common beginnings: those of a group, and of a trajectory's earlier turns."""
    sync_backend: Literal["nccl", "gloo"] = "nccl"
    """What carries new weights to vLLM; `gloo` where there is no NCCL."""


class MuonSpec(Section):
    """Muon for the policy's matrices, AdamW with `train.learning_rate` for the rest."""

    learning_rate: float = Field(0.02, gt=0)
    """Of the matrices."""
    momentum: float = Field(0.95, ge=0, lt=1)
    """Share of the last update that the next one keeps."""


class WandbSpec(Section):
    """Reports to Weights & Biases as the run of the spec's name; the key is read from WANDB_API_KEY."""

    project: str = "rlf"
    """Project of the run."""
    organisation: str | None = None
    """Team or user; None: the default one of the key."""
    group: str | None = None
    """Group of runs that are shown together."""


class IngestSpec(Section):
    """Where the nodes send trajectories, tool calls and scores over HTTP: the machine that runs `rlf`, which then needs
    to share no disk with them. Both sides read the same word, any long one, from RLF_INGEST_TOKEN."""

    host: str
    """Name or address of that machine, as the nodes reach it."""
    port: int = Field(8790, ge=1, le=65535)
    """Port that the nodes reach it at, and that it listens on."""
    bind: str | None = None
    """Address that it listens on; None: `host`. `0.0.0.0` where `host` is no address of its own, as behind a NAT."""
    certificate: str | None = None
    """File in PEM that names `host`; nodes then send over TLS and trust this certificate alone. None: plain HTTP."""
    key: str | None = None
    """File in PEM with the key of `certificate`; it stays on this machine."""

    @property
    def scheme(self) -> str:
        """Of its address."""
        return "http" if self.certificate is None else "https"

    def shown(self) -> TlsCertificate | None:
        """The server's certificate; None without TLS."""
        return None if not (self.certificate and self.key) else TlsCertificate(Path(self.certificate), Path(self.key))


class OpenRlhfSettings(Engine):
    """The keys of `engine` under OpenRLHF."""

    WITHOUT_EFFECT: ClassVar[tuple[str, ...]] = (
        "hf_checkpoints",
        "wandb",
        "tensorboard",
        "ray_address",
        "output",
        "accept_versions",
        "ingest",
    )
    """Where the job runs and what it writes beside the weights. Layouts and memory settings order float sums: they
    count."""

    kind: Literal["openrlhf"] = "openrlhf"
    colocate: Colocate = Colocate.ALL
    mode: Mode = Mode.SYNC
    queue_size: int = Field(1, ge=1)
    """Collections that an asynchronous mode makes ahead at most."""
    sleep: bool | None = None
    """Whether models leave the GPU while others work. None: with `colocate: all`, the only layout that allows it."""
    actor: Gpus = Gpus()
    """Where the policy is trained."""
    ref: Gpus | None = None
    """Where the reference of `train.kl` lies; None: as the policy."""
    critic: Gpus | None = None
    """Where the critic of `gae` is trained; None: as the policy."""
    vllm: VllmSpec = VllmSpec()
    zero_stage: Literal[1, 2, 3] = 2
    """What DeepSpeed cuts over the GPUs of a model: 1 the optimiser, 2 gradients too, 3 weights too. (Its stage 0
    keeps no float32 weights, so that small updates are lost to rounding.)"""
    offload_optimizer: bool = False
    """Keeps the optimisers in the machines' own memory and makes their step on the CPU."""
    offload_ref: bool = False
    """Keeps the reference's weights in the machines' own memory. Needs `zero_stage: 3`."""
    muon: MuonSpec | None = None
    """None: AdamW alone. With it gradients are not clipped, since DeepSpeed clips what Muon has made of them."""
    ema: float | None = Field(None, gt=0, lt=1)
    """Share of a mean over the policy's weights that each update keeps, e.g. 0.992; the mean is what is saved as the
    final model. It lies whole on each GPU of the policy, with `zero_stage: 3` in the machine's own memory. None: the
    weights themselves are saved."""
    packing: bool = True
    """Trajectories lie end to end without padding and fill `train.micro_batch_tokens`. Needs flash attention."""
    ring_attention: int = Field(1, ge=1)
    """GPUs that one trajectory is cut over. Needs packing."""
    attention: str = "flash_attention_2"
    """Attention of the trained models, as transformers names it: `flash_attention_2`, `sdpa`, `eager` ..."""
    gradient_checkpointing: bool = True
    """Computes activations twice instead of keeping them: a fraction of the memory, a third more time."""
    hf_checkpoints: bool = False
    """Writes each checkpoint as a Hugging Face folder too. The final model always is one."""
    wandb: WandbSpec | None = None
    """None: no reports there."""
    tensorboard: bool = False
    """Writes OpenRLHF's own metrics for TensorBoard into the run's folder, beside those that rlf keeps."""
    ray_address: str | None = None
    """A running Ray cluster's job server, e.g. `http://head:8265`; None starts Ray on this machine."""
    output: str | None = None
    """Folder for checkpoints, the final model and what agents record; None: the run's own. With `ray_address` one that
    all nodes and this machine see; with `ingest` this machine need not."""
    ingest: IngestSpec | None = None
    """How a cluster's nodes report trajectories; None: through the folder `output`."""
    outage_s: float = Field(600.0, ge=0)
    """How long training waits for a tool or a reward term that is down. Trajectories that need it are played again when
    it answers; after this time they are left out of the loss, up to an eighth of a step, and half of it for all causes.
    Beyond that the run ends as failed; `rlf resume` continues it from its last checkpoint."""
    accept_versions: Mapping[Package, str] = {}
    """Versions of packages other than those of rlf, on purpose, e.g. `{vllm: 0.32.0}`. Any other is refused before
    the job starts. Jobs were tried with vLLM 0.32.0 too, of 0.30.0 and 0.31.0 what OpenRLHF imports."""
    deterministic: bool = False
    """Seeds each request to vLLM, so that a turn does not depend on what is sampled beside it, and makes the trainers
    deterministic (OpenRLHF's `train.full_determinism_enable`). Slower: vLLM draws seeded rows one by one."""
    record_logprobs: bool = False
    """Asks vLLM for the log-probability of each sampled token also where no off-policy correction reads it, so that the
    lineage has it. Sampling is slower."""
    extra_flags: Mapping[str, Any] = {}
    """Options of OpenRLHF that have no key here, without dashes, checked by its own parser:
    `{ds.overlap_comm: true, actor.aux_loss_coef: 0.001}`. `true` for a switch, a list for several values."""


def openrlhf_settings(spec: RunSpec) -> OpenRlhfSettings:
    """The engine of a spec that is for OpenRLHF."""
    assert isinstance(spec.engine, OpenRlhfSettings), f"a job of OpenRLHF for engine {spec.engine.kind}"
    return spec.engine


SHARED_GPU_MEMORY = 0.5
OWN_GPU_MEMORY = 0.9
LAYOUT_KEYS = (
    "engine.colocate",
    "engine.mode",
    "engine.actor",
    "engine.ref",
    "engine.critic",
    "engine.vllm",
    "engine.sleep",
    "engine.ring_attention",
    "train.prompts_per_step",
    "train.mini_batches",
    "train.micro_batch_tokens",
    "train.algorithm",
    "train.kl",
    "train.steps",
    "rollout.num_generations",
    "rollout.max_total_tokens",
    "data.demonstrations",
)
"""Keys of a spec that decide its layout."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which model has which GPUs, and how a step's trajectories are cut over them."""

    actor: Gpus
    ref: Gpus | None
    """None where nothing needs a reference."""
    critic: Gpus | None
    """None where the estimator needs no critic."""
    num_engines: int
    tensor_parallel: int
    gpu_memory: float
    """Share of a GPU that vLLM takes."""
    all_share: bool
    """Whether every model and vLLM are on the policy's GPUs."""
    sleep: bool
    num_ranks: int
    """Parts that a batch of the policy is cut into: its GPUs / ring attention."""
    batch: int
    """Trajectories of one optimiser update."""
    micro_batch: int
    """Trajectories of one pass without packing: as many as surely fit `train.micro_batch_tokens`, at least one."""
    micro_batch_tokens: int
    """Tokens of one pass on one GPU with packing; a whole trajectory at least."""

    @classmethod
    def of(cls, spec: RunSpec) -> Self:
        """The layout of a spec whose engine is OpenRLHF."""
        engine, train, rollout = openrlhf_settings(spec), spec.train, spec.rollout
        shown = spec.data.demonstrations if spec.imitates_only else None  # then there is the policy alone
        all_share = engine.colocate is Colocate.ALL and engine.mode is Mode.SYNC and shown is None
        num_ranks = max(1, engine.actor.total // engine.ring_attention)
        batch = (
            train.prompts_per_step * rollout.num_generations // train.mini_batches if shown is None else shown.per_step
        )
        longest = rollout.max_total_tokens
        of_rank = max(1, batch // num_ranks)
        most = min(of_rank, train.micro_batch_tokens // longest)
        memory = engine.vllm.gpu_memory
        fills = max(1, engine.actor.total // engine.vllm.tensor_parallel) if all_share else 1
        micro_batch = next((n for n in range(most, 1, -1) if of_rank % n == 0), 1)
        budget = max(train.micro_batch_tokens, longest) if shown is None else micro_batch * longest
        return cls(
            actor=engine.actor,
            ref=(engine.ref or engine.actor) if train.kl.coef > 0 and shown is None else None,
            critic=(engine.critic or engine.actor) if train.algorithm.needs_critic and shown is None else None,
            num_engines=0 if shown is not None else engine.vllm.engines or fills,
            tensor_parallel=engine.vllm.tensor_parallel,
            gpu_memory=memory if memory is not None else SHARED_GPU_MEMORY if all_share else OWN_GPU_MEMORY,
            all_share=all_share,
            sleep=all_share if engine.sleep is None else engine.sleep,
            num_ranks=num_ranks,
            batch=batch,
            micro_batch=micro_batch,
            micro_batch_tokens=-(-budget // engine.ring_attention),
        )

    @property
    def vllm_gpus(self) -> int:
        """GPUs that sample."""
        return self.num_engines * self.tensor_parallel

    def total_gpus(self, engine: OpenRlhfSettings) -> int:
        """GPUs of the whole job."""
        if self.all_share:
            return self.actor.total
        ref = 0 if self.ref is None or engine.colocate is not Colocate.NONE else self.ref.total
        critic = 0 if self.critic is None or engine.colocate is Colocate.TRAINED else self.critic.total
        return self.actor.total + ref + critic + self.vllm_gpus


VERSION = "0.11.2"
NEWEST_PYTHON = (3, 12)
"""The last Python that this version has a wheel for; there is nothing to build it from."""


def find_python_complaint() -> str | None:
    """Why OpenRLHF cannot be installed for this interpreter; None where it can."""
    if sys.version_info[:2] <= NEWEST_PYTHON:
        return None
    here, newest = (".".join(map(str, version)) for version in (sys.version_info[:2], NEWEST_PYTHON))
    return f"OpenRLHF {VERSION} cannot be installed for Python {here}: it has wheels up to {newest}"
