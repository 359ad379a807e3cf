"""What the small model cannot do, without its bad habits: `python -m benchmarks.small_skills [--number 200]`.

`choice`: how often the call of the right tool is likelier than the same call of each other tool, beside what a random
choice finds. `row` and `cell`: what is answered, greedily, after the right call and its result were written for the
model. `copy`: how often each next token of a name in the call is the likeliest, by the characters in the name.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from collections.abc import Callable
from statistics import fmean

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast, Qwen3ForCausalLM

from benchmarks.embedded.small.lookups import sample_lookup
from benchmarks.embedded.small.task import Task
from benchmarks.embedded.small.words import random_word
from benchmarks.embedded.tiny.layout import call_text, observation_ids, opening_ids, turn_ids
from benchmarks.embedded.tiny.tokenizer import END_OF_TURN
from rlf.builtin.names import builtin_path

_MAX_ANSWER_TOKENS = 40
_LOOK_UP = "Tools:\n- look_up(name, column): Read one column of a name. Columns: age, city."
_MADE_NAMES: dict[str, Callable[[str, str], str]] = {
    "plain": lambda one, _: one,
    "hyphen": lambda one, other: f"{one}-{other}",
    "apostrophe": lambda one, _: f"O'{one}",
    "accent": lambda one, _: f"{one[0]}é{one[1:]}",
    "comma": lambda one, other: f"{one}, {other}",
    "brackets": lambda one, _: f"{one} (old)",
    "slash": lambda one, other: f"{one}/{other}",
    "address": lambda one, _: f"{one.lower()}@x.org",
    "Cyrillic": lambda one, _: "".join(chr(0x430 + ord(letter) % 32) for letter in one),
}
_TOOL = re.compile(r"^- (\S+?)\((\S+?)\):", re.MULTILINE)


@torch.inference_mode()
def sum_logprobs(model: Qwen3ForCausalLM, before: list[int], token_ids: list[int]) -> float:
    """The log-probability of `token_ids` after `before`."""
    logprobs_TV = model(torch.tensor([before + token_ids])).logits[0, len(before) - 1 : -1].log_softmax(-1)
    return logprobs_TV.gather(1, torch.tensor(token_ids)[:, None]).sum().item()


def chooses_right(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, task: Task) -> bool:
    """Whether the right tool's call is the likeliest of all tools' calls with the same name to look up."""
    before = opening_ids(tokenizer, task.system, task.question)
    (key,) = task.call[1].values()
    calls = [(tool, {parameter: key}) for tool, parameter in _TOOL.findall(task.system)]
    return task.call == max(calls, key=lambda call: sum_logprobs(model, before, turn_ids(tokenizer, call_text([call]))))


@torch.inference_mode()
def answer_after_call(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, task: Task) -> str:
    """The greedy answer after the right call and its result."""
    row = opening_ids(tokenizer, task.system, task.question) + turn_ids(tokenizer, call_text([task.call]))
    row += observation_ids(tokenizer, [task.result])
    end, start = tokenizer.convert_tokens_to_ids(END_OF_TURN), len(row)
    while row[-1] != end and len(row) < start + _MAX_ANSWER_TOKENS:
        row.append(int(model(torch.tensor([row])).logits[0, -1].argmax()))
    return tokenizer.decode(row[start:]).removesuffix(END_OF_TURN).strip()


@torch.inference_mode()
def copies(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, name: str) -> bool:
    """Whether each token of a name in a call, but the first, is the likeliest after those before it."""
    before = opening_ids(tokenizer, _LOOK_UP, f"What is the city of {name}?")
    call = call_text([("look_up", {"name": name, "column": "city"})])
    start = len(before) + len(tokenizer.encode(call[: call.index(name)]))
    token_ids = before + turn_ids(tokenizer, call)
    end = start + len(tokenizer.encode(name))
    likeliest = model(torch.tensor([token_ids])).logits[0].argmax(-1).tolist()
    return likeliest[start : end - 1] == token_ids[start + 1 : end]


def name_answer(task: Task, answer: str) -> str:
    """What an answer is."""
    if answer == task.answer:
        return "right"
    return "another cell" if answer in task.wrong_answers else "no cell"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=200, help="tasks of each skill")
    number = parser.parse_args().number
    torch.set_num_threads(1)
    path = builtin_path("small")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(path).eval(), AutoTokenizer.from_pretrained(path)
    rng = random.Random("skills")
    tasks = [sample_lookup(rng, "choice") for _ in range(number)]
    chance = fmean(1 / len(_TOOL.findall(task.system)) for task in tasks)
    right = fmean(chooses_right(model, tokenizer, task) for task in tasks)
    print(f"choice: right {right:.2f}, chance {chance:.2f}")
    for kind in ("row", "cell"):
        tasks = [sample_lookup(rng, kind) for _ in range(number)]
        found = Counter(name_answer(task, answer_after_call(model, tokenizer, task)) for task in tasks)
        shares = ", ".join(f"{name} {count / number:.2f}" for name, count in sorted(found.items()))
        cells = fmean(1 + len(task.wrong_answers) for task in tasks)
        print(f"{kind}: {shares}, {cells:.1f} cells in the mean")
    for kind, make in _MADE_NAMES.items():
        names = [make(*(random_word(rng).capitalize() for _ in range(2))) for _ in range(number)]
        print(f"copy, {kind}: {fmean(copies(model, tokenizer, name) for name in names):.2f}")


if __name__ == "__main__":
    main()
