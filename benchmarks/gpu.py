"""For the day a GPU is there: one card, no network, 30 minutes at most, one report.

    python benchmarks/gpu.py [--minutes 30] [--report build/gpu.md]     `make gpu`
    python benchmarks/gpu.py --cpu                                      the same with a tiny shape, without a GPU

`rlf doctor`; the local engine in bfloat16 with each kernel of attention, compiled and not; a job of OpenRLHF with vLLM;
both on random weights of Qwen3's shape at 0.6B and 4B, their memory and step time beside the figures of `rlf plan`; and
tokens and action masks of one step on the card beside those of the CPU. A part that fails or has no time left is a line
of the report, and the others run. Exit code 1 where a part failed. What was seen on a card: docs/tried.md.

OpenRLHF runs with this Python (`pip install 'rlf[openrlhf]'`), with `--cpu` in the environment of rehearsals.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

SPEC, JOB_SPEC = ROOT / "specs" / "search.yaml", ROOT / "specs" / "search_openrlhf.yaml"
SHAPES = {
    "0.6B": {"hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "intermediate_size": 3072},
    "4B": {"hidden_size": 2560, "num_hidden_layers": 36, "num_attention_heads": 32, "intermediate_size": 9728},
}
"""Qwen3's own."""
HEADS = {"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936}
TINY = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
TINY_HEADS = {"num_key_value_heads": 2, "head_dim": 32, "vocab_size": 2_048}  # vLLM on a CPU knows no smaller heads
WITH_ADAPTERS = ("4B",)
"""Shapes whose optimiser of all weights fits no single card."""
SIZES = [
    "train.steps=3",
    "train.prompts_per_step=4",
    "rollout.num_generations=16",
    "rollout.max_total_tokens=128",
    "train.micro_batch_tokens=2048",
    "checkpoint.every=3",
    "eval.limit=1",
    "eval.every=3",
]
"""Many short trajectories: they fill the micro-batch, and few ticks sample them."""
KERNELS = ("flash", "mem_efficient", "math")
"""Of torch's `scaled_dot_product_attention`, which the local engine calls."""
LEAST_S, MOST_S = 30.0, 300.0
"""Time that a part needs at the least: with less left it is not begun; and at the most."""
WRAPPED = """
import json, sys
import torch
kernel, compiled = sys.argv.pop(1), sys.argv.pop(1) == "compiled"
if torch.cuda.is_available() and kernel != "any":
    for name in ("flash", "mem_efficient"):  # torch's own is there for the shapes that the one does not take
        getattr(torch.backends.cuda, f"enable_{name}_sdp")(name == kernel)
if compiled:
    import transformers
    load = transformers.PreTrainedModel.from_pretrained.__func__
    def load_compiled(cls, *arguments, **options):
        model = load(cls, *arguments, **options)
        for module in model.modules():
            if type(module).__name__.endswith("MLP"):
                module.compile()
        return model
    transformers.PreTrainedModel.from_pretrained = classmethod(load_compiled)
from rlf.cli.start import main
try:
    main()
except SystemExit as end:
    if end.code not in (None, 0, 3):
        raise
    print("peak of the card:", torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0, file=sys.stderr)
"""
"""`rlf` with one kernel of attention, its MLPs compiled or not, and the card's peak as its last line."""


@dataclass
class Part:
    """A line of the report."""

    name: str
    seconds: float = 0.0
    result: str = ""
    figures: dict[str, str] = field(default_factory=dict)
    failed: bool = False


class Report:
    """The parts as they end, written again after each, so that a stop loses none."""

    def __init__(self, path: Path, minutes: float) -> None:
        self.path, self.parts = path, list[Part]()
        self._deadline = time.monotonic() + minutes * 60

    def left_s(self) -> float:
        """Seconds that a command may take. Raises TimeoutError where it is not worth beginning."""
        left_s = self._deadline - time.monotonic()
        if left_s < LEAST_S:
            raise TimeoutError("not begun: no time left")
        return min(left_s, MOST_S)

    @contextmanager
    def part(self, name: str) -> Iterator[Part]:
        """Runs one part; its error is its result."""
        part, began = Part(name), time.monotonic()
        try:
            yield part
        except Exception as error:  # noqa: BLE001 - the other parts run all the same
            lines = str(error).strip().splitlines() or [type(error).__name__]
            part.result, part.failed = f"FAILED: {' '.join(lines[-4:])[-600:]}", True
        part.seconds = time.monotonic() - began
        self.parts.append(part)
        print(f"{part.seconds:6.1f} s  {name}: {part.result} {part.figures or ''}", flush=True)
        self._write()

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lines = [
            "# rlf on one card\n",
            "| part | seconds | result | measured, and by `rlf plan` |",
            "|---|---|---|---|",
        ]
        for part in self.parts:
            figures = "; ".join(f"{name} {value}" for name, value in part.figures.items())
            lines.append(f"| {part.name} | {part.seconds:.0f} | {part.result.replace('|', '/')} | {figures} |")
        self.path.write_text("\n".join(lines) + "\n")


def make_model(folder: Path, shape: dict[str, int]) -> Path:
    """A Qwen3 of random weights, with the built-in model's template and its tokenizer, filled up to the vocabulary."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from rlf.spec.model_files import model_location

    tiny = Path(model_location("builtin:tiny"))
    config = Qwen3Config(**shape, tie_word_embeddings=True, eos_token_id=1, pad_token_id=2, bos_token_id=None)
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = Qwen3ForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer = json.loads((tiny / "tokenizer.json").read_text())
    words = tokenizer["model"]["vocab"]
    words |= {f"<fill{number}>": number for number in range(len(words), shape["vocab_size"])}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    for name in ("tokenizer_config.json", "chat_template.jinja"):
        (folder / name).write_text((tiny / name).read_text())
    return folder


def run(command: list[str], left_s: float) -> str:
    """Runs a command; its errors' text. Raises RuntimeError with its last words."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": path}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=left_s, check=False, env=environment)
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"not over after {left_s:.0f} s") from None
    if done.returncode not in (0, 3):
        raise RuntimeError(done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}")
    return done.stderr


def compare_with_plan(runs: Path, peak_bytes: int, planned: int) -> dict[str, str]:
    """The median step of a folder's newest run, and its memory: of the card, else of the process where it is known.

    Args:
        peak_bytes: of the card; 0 without one.
        planned: by `rlf plan`.
    """
    from rlf.runs.place import open_reader

    with open_reader(runs) as reader:
        steps = [step.metrics for step in reader.steps(reader.get_run("latest").record.id)]
    peak_bytes = peak_bytes or int(steps[-1].get("memory/peak_bytes", 0))
    memory = f"{peak_bytes / 1e9:.2f} GB, planned {planned / 1e9:.2f} GB" if peak_bytes else "not measured"
    times = {name: median(step[f"time/{name}_s"] for step in steps) for name in ("step", "generate", "update")}
    speed = median(step["throughput/generate_tokens_per_s"] for step in steps)
    return {name: f"{value:.2f} s" for name, value in times.items()} | {
        "sampled tokens a second": f"{speed:.0f}",
        "memory": memory,
    }


def planned_bytes(spec: Path, overrides: list[str], card_bytes: int | None) -> int:
    """The peak of the fullest card by `rlf plan`; of the process without one."""
    from rlf.runs.planning import report_plan

    gpu = None if card_bytes is None else f"{card_bytes / 1e9:.0f}GB"
    found = report_plan([spec], overrides, gpu=gpu, runs_folder=ROOT / "runs")
    return max((group.peak_bytes for group in found.gpus), default=0) or (
        found.memory.total_bytes if found.memory else 0
    )


@contextmanager
def watched_card() -> Iterator[Callable[[], int]]:
    """The most bytes that all processes together had on the card, looked at twice a second."""
    peak, over = [0], threading.Event()

    def look() -> None:
        command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        while not over.wait(0.5):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            peak[0] = max(peak[0], *(int(line) * 2**20 for line in done.stdout.split()), 0)

    thread = threading.Thread(target=look, daemon=True)
    if card_size() is not None:
        thread.start()
    try:
        yield lambda: peak[0]
    finally:
        over.set()


def card_size() -> int | None:
    """Bytes of the card; None without one."""
    import torch

    return torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else None


def try_local(report: Report, scratch: Path, size: str, model: Path, kernel: str, *, compiled: bool) -> None:
    """Three steps of the local engine in bfloat16."""
    how = "compiled" if compiled else "as it is"
    with report.part(f"local engine, {size}, attention {kernel}, {how}") as part:
        adapters = ["+model.lora={rank: 16}"] if size in WITH_ADAPTERS else []
        overrides = [*SIZES, f"model.path={model}", "+model.dtype=bfloat16", "rollout.schedule=clock", *adapters]
        runs = scratch / f"local-{size}-{kernel}-{compiled}"
        command = [sys.executable, "-c", WRAPPED, kernel, "compiled" if compiled else "plain"]
        errors = run([*command, "run", str(SPEC), *overrides, "--runs", str(runs)], report.left_s())
        peak = int(errors.rpartition("peak of the card: ")[2].split()[0])
        planned = planned_bytes(SPEC, overrides, card_size())
        part.figures = compare_with_plan(runs, peak, planned)
        part.result = "three steps"


def try_job(report: Report, scratch: Path, size: str, model: Path) -> None:
    """Three steps of OpenRLHF's job; on a card with vLLM that shares it, and packing where flash attention is there."""
    with report.part(f"OpenRLHF with vLLM, {size}") as part:
        adapters = ["+model.lora={rank: 16}"] if size in WITH_ADAPTERS else []
        overrides = [*SIZES, f"model.path={model}", *adapters]
        rlf = [sys.executable, "-m", "rlf"]
        if card_size() is None:
            from rlf.apps.openrlhf.rehearsal_place import rehearsal_environment

            environment = rehearsal_environment()
            if not environment.is_ready(vllm=True):
                raise RuntimeError("there is no environment of rehearsals: `rlf rehearse --setup --vllm` makes it")
            rlf = [str(environment.command)]
        else:
            flash = find_spec("flash_attn") is not None
            overrides += [f"engine.packing={str(flash).lower()}", "engine.colocate=all"]
            overrides += [f"engine.attention={'flash_attention_2' if flash else 'sdpa'}", "rollout.max_new_tokens=48"]
            overrides += ["engine.gradient_checkpointing=true", "+engine.vllm.gpu_memory=0.4"]
            overrides += ["engine.vllm.enforce_eager=false", "engine.vllm.sync_backend=nccl"]
        runs = scratch / f"job-{size}"
        with watched_card() as peak:
            run([*rlf, "run", str(JOB_SPEC), *overrides, "--runs", str(runs)], report.left_s())
        planned = planned_bytes(JOB_SPEC, overrides, card_size())
        part.figures = compare_with_plan(runs, peak(), planned)
        part.result = "three steps"


def compare_with_cpu(report: Report, scratch: Path) -> None:
    """One step of the built-in model in float32 on each device, from the same seeds."""
    from rlf.lineage.records import TrajectoryFilter
    from rlf.runs.place import open_reader

    with report.part("tokens and masks beside the CPU") as part:
        found = []
        for device in ("cpu", "cpu" if card_size() is None else "cuda"):
            runs = scratch / f"beside-{device}-{len(found)}"
            overrides = ["train.steps=1", "train.prompts_per_step=4", "eval.limit=4", "+model.dtype=float32"]
            command = [
                sys.executable,
                "-m",
                "rlf",
                "run",
                str(SPEC),
                *overrides,
                f"engine={{kind: local, device: {device}}}",
            ]
            run([*command, "--runs", str(runs)], report.left_s())
            with open_reader(runs) as reader:
                run_id = reader.get_run("latest").record.id
                heads = reader.trajectories(run_id, TrajectoryFilter(phase="train"))
                wholes = [whole for whole in reader.wholes(run_id, heads) if whole is not None]
            played = [item.scored.trajectory for item in wholes]
            by_place = {(item.task.id, item.sample_index): item for item in played}
            found.append(by_place)
        one, other = found
        assert one and one.keys() == other.keys(), "other trajectories were played"
        same = [place for place in one if list(one[place].tokens) == list(other[place].tokens)]
        masks = [place for place in same if list(one[place].action_mask) == list(other[place].action_mask)]
        gaps = [
            abs(a - b)
            for place in same
            for a, b in zip(one[place].rollout_logprobs, other[place].rollout_logprobs, strict=True)
        ]
        assert len(masks) == len(same), f"{len(same) - len(masks)} trajectories of equal tokens have other masks"
        part.figures = {
            "equal tokens": f"{len(same)} of {len(one)}",
            "logprobs differ by up to": f"{max(gaps, default=0):.2g}",
        }
        part.result = "masks of equal tokens are equal"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0, help="after which no part is begun or goes on")
    parser.add_argument("--report", type=Path, default=ROOT / "build" / "gpu.md")
    parser.add_argument("--cpu", action="store_true", help="a tiny shape, where there is no GPU")
    options = parser.parse_args()
    card = card_size()
    if (card is None) != options.cpu:
        parser.error("there is no GPU; try --cpu" if card is None else "there is a GPU; leave --cpu out")
    shapes = {"tiny": TINY | TINY_HEADS} if options.cpu else {name: shape | HEADS for name, shape in SHAPES.items()}
    report = Report(options.report, options.minutes)
    with tempfile.TemporaryDirectory(prefix="rlf-gpu-") as folder:
        scratch = Path(folder)
        with report.part("doctor") as part:
            run([sys.executable, "-m", "rlf", "doctor"], report.left_s())
            part.result = "no card" if card is None else f"a card of {card / 1e9:.1f} GB"
        compare_with_cpu(report, scratch)
        for size, shape in shapes.items():
            with report.part(f"random weights, {size}") as part:
                report.left_s()
                model = make_model(scratch / size, shape)
                part.result = str(sum(file.stat().st_size for file in model.glob("*.safetensors")))
            if part.failed:
                continue
            try_job(report, scratch, size, model)
            first = size == next(iter(shapes))
            for kernel in KERNELS if first and card is not None else ("any",):
                try_local(report, scratch, size, model, kernel, compiled=False)
            try_local(report, scratch, size, model, "any", compiled=True)
    print(f"report: {options.report}")
    sys.exit(any(part.failed for part in report.parts))


if __name__ == "__main__":
    main()
