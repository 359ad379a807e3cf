"""Long contexts on the local engine: CPU seconds and memory of sampling after a long prompt and of a LoRA update on it.

A random model of the built-in one's shape; each length, with and without recomputed layers, in a process of its own.

    python benchmarks/long_contexts.py [4096 8192 16384 32768]
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LENGTHS = (4096, 8192, 16384, 32768)


def measure(num_tokens, checkpointed):
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from rlf.algo.advantages.grpo import Grpo
    from rlf.engines.local.attention import checkpoint_layers
    from rlf.engines.local.host import PolicyHost
    from rlf.engines.local.model import load_model
    from rlf.engines.local.update import Updater
    from rlf.spec.models import LoraSpec, TrainSpec
    from rlf.training.batch import Batch
    from rlf.types.policy import Sampling

    torch.set_num_threads(1)
    config = Qwen3Config(
        vocab_size=916, hidden_size=128, intermediate_size=256, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, max_position_embeddings=65536, tie_word_embeddings=True,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        Qwen3ForCausalLM(config).save_pretrained(folder)
        model = load_model(folder, dtype=torch.float32, device=torch.device("cpu"), lora=LoraSpec(rank=8))
    if checkpointed:
        checkpoint_layers(model.full)
    prompt = torch.randint(3, 900, (num_tokens - 32,)).tolist()
    base_bytes = peak_bytes()

    async def sample():
        async with PolicyHost(model, lambda _: "", num_slots=2) as host:
            return await asyncio.gather(*(host.complete(prompt, 32, Sampling(), seed) for seed in range(2)))

    cpu_s = time.process_time()
    samples = asyncio.run(sample())
    sample_s, sample_bytes = time.process_time() - cpu_s, peak_bytes()
    rows = torch.tensor([prompt + list(sample.tokens) for sample in samples])
    mask = (torch.arange(num_tokens) >= len(prompt)).expand(2, -1)
    batch = Batch(
        rows,
        mask,
        torch.zeros(rows.shape),
        torch.full((2,), num_tokens),
        torch.tensor([0.0, 1.0]),
        torch.zeros(2).long(),
    )
    train = TrainSpec(algorithm=Grpo(), micro_batch_tokens=8192)
    cpu_s = time.process_time()
    Updater(model, train, temperature=1.0, seed=0).update(batch, 1)
    update_s, update_bytes = time.process_time() - cpu_s, peak_bytes()
    sampling, updating = ((peak - base_bytes) / num_tokens for peak in (sample_bytes, update_bytes))
    recomputed = "yes" if checkpointed else "no"
    print(f"{num_tokens:7} {recomputed:>10} {sample_s:9.1f} {sampling:12,.0f} {update_s:9.1f} {updating:12,.0f}")


def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokens", nargs="*", type=int, default=LENGTHS, help="lengths of a trajectory")
    parser.add_argument("--one", nargs=2, metavar=("TOKENS", "RECOMPUTED"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        measure(int(options.one[0]), options.one[1] == "yes")
    else:
        print(" tokens recomputed  sample s  bytes/token  update s  bytes/token")
        for num_tokens in options.tokens:
            for checkpointed in ("no", "yes"):
                subprocess.run([sys.executable, Path(__file__), "--one", str(num_tokens), checkpointed], check=True)
