"""Run where vLLM is: sends it a policy with adapters, and names the weights that it holds otherwise than merged.

python vllm_adapters.py MODEL
"""

from __future__ import annotations

import sys

import torch
from peft import LoraConfig, get_peft_model
from torch.multiprocessing.reductions import reduce_tensor
from transformers import AutoModelForCausalLM
from vllm import LLM

from rlf.apps.openrlhf.policy import SCALE, WORKER

RANK, ALPHA = 8, 12
JOINED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
"""What vLLM makes one weight of."""


def held(worker):
    return {name: weight.detach().clone() for name, weight in worker.model_runner.model.named_parameters()}


def joined(name, weights):
    """The weight that vLLM has by a name; it pads the embedding."""
    for one, parts in JOINED.items():
        if one in name:
            return torch.cat([weights[name.replace(one, part)] for part in parts])
    return weights[name]


def main(path):
    merging = {"worker_extension_cls": WORKER, "additional_config": {SCALE: ALPHA / RANK}}
    llm = LLM(model=path, dtype="bfloat16", enforce_eager=True, max_model_len=64, **merging)
    base = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16)
    config = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(base, config).to(torch.bfloat16)
    sent = list(model.named_parameters())
    for place, (name, weight) in enumerate(sent, 1):
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.05)
        handles = {"cpu": reduce_tensor(weight.detach())}
        received = (name, weight.dtype, weight.shape, handles, place == len(sent))
        llm.collective_rpc("update_weight_cuda_ipc", args=received)
    merged = dict(model.float().merge_and_unload().to(torch.bfloat16).named_parameters())
    (found,) = llm.collective_rpc(held)
    expected = {name: joined(name, merged) for name in found}
    other = [name for name, weight in found.items() if not torch.equal(weight[: len(expected[name])], expected[name])]
    print("weights", len(found), "other", other)


if __name__ == "__main__":
    main(sys.argv[1])
