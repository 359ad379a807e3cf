"""Pages made from data: `python docs/generate.py` writes them.

The reference of keys, kinds and options is made by rlf itself; see the target `reference` of the Makefile.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import typer
import yaml

from rlf.cli.main import COMMANDS, app
from rlf.engines.engine import engine_of
from rlf.plan.estimate import ModelShape, shape_of
from rlf.spec import load_spec
from rlf.spec.models import RunSpec

DOCS = Path(__file__).parent
GLOSSARY = DOCS / "glossary.yaml"
BASE_SPEC = DOCS.parent / "specs/search_qwen3_lora_one_gpu.yaml"
GPU_SIZES_GB = (24, 48, 80, 141)
NUM_GPUS = (1, 2, 4, 8, 16)
USABLE_SHARE = 0.9
"""Of a GPU; CUDA contexts, NCCL and fragmentation take the rest."""


class Architecture(NamedTuple):
    """The sizes of a model, as its config.json has them."""

    name: str
    num_layers: int
    hidden: int
    num_heads: int
    intermediate: int
    is_tied: bool
    num_kv_heads: int = 8
    head_dim: int = 128
    vocab: int = 151_936

    def read_shape(self) -> ModelShape:
        """Return what memory estimates need, as from the model's files."""
        hidden, query, kv = self.hidden, self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        tensors: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab, hidden)}
        if not self.is_tied:
            tensors["lm_head.weight"] = (self.vocab, hidden)
        for layer in range(self.num_layers):
            attention, mlp = f"model.layers.{layer}.self_attn", f"model.layers.{layer}.mlp"
            tensors |= {f"{attention}.q_proj.weight": (query, hidden), f"{attention}.o_proj.weight": (hidden, query)}
            tensors |= {f"{attention}.{name}_proj.weight": (kv, hidden) for name in "kv"}
            tensors |= {f"{mlp}.{name}_proj.weight": (self.intermediate, hidden) for name in ("gate", "up")}
            tensors[f"{mlp}.down_proj.weight"] = (hidden, self.intermediate)
        config = {
            "num_attention_heads": self.num_heads,
            "hidden_size": hidden,
            "head_dim": self.head_dim,
            "num_hidden_layers": self.num_layers,
            "num_key_value_heads": self.num_kv_heads,
            "intermediate_size": self.intermediate,
            "vocab_size": self.vocab,
        }
        shape = shape_of(config, tensors)
        assert shape is not None, f"{self.name} is not a plain decoder"
        return shape


MODELS = (
    Architecture("Qwen3-0.6B", 28, 1024, 16, 3072, True),
    Architecture("Qwen3-1.7B", 28, 2048, 16, 6144, True),
    Architecture("Qwen3-4B", 36, 2560, 32, 9728, True),
    Architecture("Qwen3-8B", 36, 4096, 32, 12288, False),
    Architecture("Qwen3-14B", 40, 5120, 40, 17408, False),
    Architecture("Qwen3-32B", 64, 5120, 64, 25600, False),
)


def read_glossary() -> list[dict[str, Any]]:
    """Return the terms of the glossary: `write`, `means` and, for some, `never`."""
    terms: list[dict[str, Any]] = yaml.safe_load(GLOSSARY.read_text(encoding="utf-8"))
    return terms


def write_glossary_page() -> str:
    """Return the page of all terms in the order of the alphabet."""
    terms = sorted(read_glossary(), key=lambda term: term["write"].lower())
    rows = [f"| {term['write']} | {term['means']} |" for term in terms]
    return "\n".join(
        [
            "# Glossary",
            "",
            "The words that rlf's messages, help and pages use, each in one sense. Made from",
            "[glossary.yaml](../glossary.yaml), which also lists the words that are not written in their place;",
            "a test holds messages, `--help`, pages and docstrings to it.",
            "",
            "| term | meaning |",
            "|---|---|",
            *rows,
            "",
        ]
    )


def load_layout(num_gpus: int, *, adapters: bool) -> RunSpec:
    """Return the base spec on so many GPUs that sampling and training share."""
    nodes, per_node = max(1, num_gpus // 8), min(num_gpus, 8)
    overrides = [f"+engine.actor={{nodes: {nodes}, per_node: {per_node}}}"]
    if nodes > 1:
        overrides += ["+engine.ray_address=http://head:8265", "+engine.output=/mnt/runs"]
    if adapters:
        overrides += ["+engine.zero_stage=2"]
    else:
        overrides += ["~model.lora", "train.learning_rate=1e-6", f"+engine.zero_stage={3 if num_gpus > 1 else 2}"]
    return load_spec([BASE_SPEC], overrides).spec


def estimate_peak(spec: RunSpec, shape: ModelShape, gpu_bytes: int) -> int | None:
    """Return the bytes that the fullest GPU holds; None where a part does not fit its share, as vLLM's weights."""
    gpus = engine_of(spec).report(spec, shape, Path("RUN"), gpu_bytes=gpu_bytes, num_eval_rows=128).gpus
    return None if any(group.lacks for group in gpus) else max(group.peak.total_bytes for group in gpus)


def find_num_gpus(specs: dict[int, RunSpec], shape: ModelShape, size_gb: int) -> str:
    """Return the smallest number of GPUs that fits with its peak, e.g. `2 (17 GB)`."""
    for num_gpus, spec in specs.items():
        peak = estimate_peak(spec, shape, size_gb * 10**9)
        if peak is not None and peak <= USABLE_SHARE * size_gb * 10**9:
            return f"{num_gpus} ({peak / 10**9:.0f} GB)"
    return "no"


def write_gpu_page() -> str:
    """Return the page on which GPUs a model needs, by the formulas of `rlf plan`."""
    head = [f"| model | {' | '.join(f'GPUs of {size} GB' for size in GPU_SIZES_GB)} |", "|---" * 5 + "|"]
    tables = []
    for adapters in (False, True):
        specs = {number: load_layout(number, adapters=adapters) for number in NUM_GPUS}
        rows = [
            f"| {model.name} | {' | '.join(find_num_gpus(specs, model.read_shape(), size) for size in GPU_SIZES_GB)} |"
            for model in MODELS
        ]
        tables.append("\n".join([*head, *rows]))
    return f"""# Which GPU for which model

The smallest number of GPUs that a model fits, of {", ".join(map(str, NUM_GPUS))}, with the memory that the fullest GPU
holds. Made by `python docs/generate.py` from the formulas of `rlf plan`, which [the OpenRLHF
engine](../explanation/openrlhf.md#memory) lists. **Untested: nobody has held these figures against a GPU.** A model
counts as fitting if a tenth of the GPU stays free, and half of it holds all weights and a trajectory for vLLM
(`gpu_memory: 0.5`, `tensor_parallel: 1`). Run `rlf plan SPEC --gpu 24GB` for your own spec and layout.

Every row has the budgets of [the one-GPU spec](../../specs/search_qwen3_lora_one_gpu.yaml): 3,072 tokens a
trajectory, passes of 4,096 tokens, vLLM and the trainer on the same GPUs in turns, no reference model. More tokens, a
reference (`train.kl`) or a critic (`gae`) need more memory; `offload_optimizer` needs less.

## All weights

bfloat16 weights and gradients, float32 optimiser, `zero_stage: 3` from two GPUs on.

{tables[0]}

## Adapters of rank 32

`zero_stage: 2`: every GPU holds all weights, so more GPUs add speed and little memory.

{tables[1]}
"""


def describe_parameters(command: Any) -> list[str]:
    """Return a row for each argument and option of a command."""
    rows = []
    for parameter in command.params:
        text = " ".join((parameter.help or "").split()).replace("|", "/")
        metavar = parameter.metavar or ""
        names = ", ".join(parameter.opts) if parameter.opts[0].startswith("-") else metavar or parameter.name.upper()
        value = f" {metavar}" if names != metavar and metavar else ""
        rows.append(f"| `{(names + value).replace('|', '/')}` | {text} |")
    return rows


def describe_command(name: str, command: Any) -> Iterator[str]:
    """Yield the Markdown of a command and of those under it."""
    if not name.count(" ") or not hasattr(command, "commands"):
        yield f"{'##' if name.count(' ') == 1 else '###'} `{name}`"
        yield " ".join((command.help or "").split())
    if hasattr(command, "commands"):
        for word, inner in sorted(command.commands.items()):
            yield from describe_command(f"{name} {word}", inner)
    elif rows := describe_parameters(command):
        yield "\n".join(["| | |", "|---|---|", *rows])


def write_commands_page() -> str:
    """Return the page of every command with its arguments and options."""
    root = typer.main.get_command(app)
    parts = []
    for name in COMMANDS:
        command = root.get_command(None, name)
        assert command is not None, name
        parts += describe_command(f"rlf {name}", command)
    text = "Exit codes: 0 done, 1 the run failed, 2 the input is wrong, 3 a check failed, 130 interrupted."
    return "\n\n".join(["# Commands", "Made from `--help` by `python docs/generate.py`.", text, *parts]) + "\n"


PAGES = {
    "reference/commands.md": write_commands_page,
    "reference/glossary.md": write_glossary_page,
    "reference/gpus.md": write_gpu_page,
}


if __name__ == "__main__":
    for name, write_page in PAGES.items():
        (DOCS / name).write_text(write_page(), encoding="utf-8")
