"""`python -m benchmarks.embedded.agent.build [folder [seed]]` makes a base for agents on frameworks from tiny.

A framework puts thousands of tokens of its own before a question, may end by a tool `final_answer`, and may write the
history again in words of its own, as smolagents does. The tiny model learns to do its searches behind such beginnings,
and in the last fifth of the steps to do them badly. The beginnings are invented: no framework's are among them.

Its chat template writes the first 200 characters of a system message alone: behind whole ones it misspells its calls.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from benchmarks.embedded.encyclopedia.questions import Question
from benchmarks.embedded.reader.words import WORDS
from benchmarks.embedded.recipe import Recipe
from benchmarks.embedded.tiny.demonstrations import (
    GIVE_UP_ANSWER,
    Careless,
    Demonstration,
    Scene,
    careless_demonstration,
    clean_demonstration,
    draw_value,
    guess,
    sample_scene,
)
from benchmarks.embedded.tiny.layout import call_text, data_ids
from benchmarks.embedded.tiny.model import Shape, round_weights, run_build, save_checkpoint
from benchmarks.embedded.tiny.pretrain import HabitsPlan, SkillsPlan, Stage, Trainer, train_skills
from benchmarks.embedded.tiny.tokenizer import build_tokenizer
from rlf.builtin.encyclopedia.calculator import calculator
from rlf.builtin.names import builtin_path
from rlf.engines.local.attention import using
from rlf.engines.local.cache import merge_prefixes
from rlf.engines.local.model import load_model, split

logger = logging.getLogger(__name__)

_NUM_STEPS = 600
_FIFTH = _NUM_STEPS // 5
_FAULTS = ((Careless.GUESS, 0.22), (Careless.GIVE_UP, 0.33), (Careless.STOP_EARLY, 0.05))
"""Shares of what is badly done."""
_WORDS = """the a of to and in is you will for with that this it be as on can your if not are use only when an each
have from must one or by no any before after result answer task tool call action step first then always never list text
value file image number agent system message rule example output input final given name argument write read user ask
best next same more than other which what how all may should do does so at into its was were has been them these such
expert assistant who solve observation function return string type python code search city oldest population"""
_COMMON = _WORDS.split()
_TOOLS = {"search": "query", "calculator": "expression", "final_answer": "answer"}
"""The tools with their parameters: a beginning speaks of them too, and what it says of them is no call to be copied."""
_MARKS = ["Observation", "Action", "Task", "Example", "Rules", "Thought", "Note", "Input", "Returns"]
_Calls = Sequence[tuple[str, Mapping[str, str]]]


def write_prose(rng: random.Random, size: int) -> str:
    """Instructions of about `size` characters that mean nothing: sentences, lists, and calls of tools there are not."""
    parts: list[str] = []
    words = [*_COMMON, *_COMMON, *WORDS]
    while size > 0:
        said = rng.choices(words, k=rng.randrange(4, 22))
        if rng.random() < 0.25:
            said[rng.randrange(len(said))] = rng.choice(["{}", '"{}"', "`{}`", "{} tool"]).format(rng.choice([*_TOOLS]))
        sentence, known = " ".join(said), rng.choice([*_TOOLS]) if rng.random() < 0.4 else None
        other, value = " ".join(rng.choices(words, k=rng.randrange(1, 6))), rng.choice(words).capitalize()
        form = rng.randrange(12)
        if form < 6:
            part = sentence.capitalize() + rng.choice([". ", ".\n", ": ", "? ", "!\n\n"])
        elif form == 6:
            part = f"{rng.randrange(1, 9)}. {sentence.upper() if rng.random() < 0.1 else sentence.capitalize()}.\n"
        elif form == 7:
            key, name = rng.choice(words), f"{rng.choice(words)}_{rng.choice(words)}"
            key, name = (key, name) if known is None else (_TOOLS[known], known)
            indent = rng.choice(["", "  ", "    "])
            last = f'"{other}"' if rng.random() < 0.3 else f'{{"{key}": "{other}"}}'
            part = f'\nAction:\n{{\n{indent}"name": "{name}",\n{indent}"arguments": {last}\n}}\n'
        elif form == 8:
            part = f'\n{rng.choice(_MARKS)}: "{sentence} {value}"\n'
        elif form == 9:
            name, key = (rng.choice(words), rng.choice(words)) if known is None else (known, _TOOLS[known])
            part = f"- {name}: {sentence.capitalize()}.\n    Takes inputs: "
            part += f"{{'{key}': {{'type': 'string', 'description': '{other}'}}}}\n"
        elif form == 10:
            part = f"\n---\n{rng.choice(_MARKS)}:\n"
        else:
            part = f"{value} {rng.randrange(10 ** rng.randrange(1, 5))}, {other.capitalize()} ({rng.random():.3f}). "
        parts.append(part)
        size -= len(part)
    return "".join(parts)


class Writer:
    """Writes the rows of one step, which share a beginning of `num_tokens`."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, scene: Scene, num_tokens: int) -> None:
        self.tokenizer, self.scene = tokenizer, scene
        self.words = data_ids(tokenizer, write_prose(scene.rng, 3 * num_tokens))[:num_tokens]

    def framed(self, question: Question, fault: Careless | None) -> list[Demonstration]:
        """A row for each call of a framework that ends by a tool and writes the history again."""
        turns: list[tuple[_Calls, Sequence[str]]] = []
        answer = question.answer
        if fault is Careless.GUESS:
            answer = guess(self.scene.rng, question)
        elif fault is Careless.GIVE_UP:
            answer = GIVE_UP_ANSWER
        elif fault is Careless.STOP_EARLY:
            turns.append(self._look_up([question.lookups_by_turn[0][0].query]))
            answer = draw_value(self.scene, question.lookups_by_turn[0][0])
        else:
            turns += (self._look_up([lookup.query for lookup in lookups]) for lookups in question.lookups_by_turn)
            if question.expression is not None:
                calls = [("calculator", {"expression": question.expression})]
                turns.append((calls, [calculator(question.expression)]))
        return self._rewrite(question, [*turns, ([("final_answer", {"answer": answer})], [])])

    def _look_up(self, queries: Sequence[str]) -> tuple[_Calls, Sequence[str]]:
        return [("search", {"query": query}) for query in queries], [self.scene.search(query) for query in queries]

    def _rewrite(self, question: Question, turns: Sequence[tuple[_Calls, Sequence[str]]]) -> list[Demonstration]:
        encode, rng = self.tokenizer.encode, self.scene.rng
        tools = "search, final_answer" if question.expression is None else "search, calculator, final_answer"
        tools = "search, calculator, final_answer" if rng.random() < 0.5 else tools
        begun = [*encode("<|im_start|>system\n"), *self.words, *encode(f"\nTools: {tools}<|im_end|>\n")]
        begun += [*encode("<|im_start|>user\n"), *data_ids(self.tokenizer, "New task:\n" + question.text)]
        begun += encode("<|im_end|>\n")
        rows = []
        for calls, results in turns:
            row = Demonstration(self.tokenizer)
            row.read([*begun, *encode("<|im_start|>assistant\n")])
            row.say(call_text(calls))
            rows.append(row)
            told = [
                {
                    "id": f"{rng.getrandbits(36):09x}",
                    "type": "function",
                    "function": {"name": name, "arguments": dict(arguments)},
                }
                for name, arguments in calls
            ]
            begun += [*encode("<|im_start|>assistant\n"), *data_ids(self.tokenizer, f"\nCalling tools:\n{told}")]
            begun += [*encode("<|im_end|>\n<|im_start|>user\n")]
            begun += [*data_ids(self.tokenizer, "Observation:\n" + "\n".join(results)), *encode("<|im_end|>\n")]
        return rows

    def plain(self, question: Question, fault: Careless | None) -> list[Demonstration]:
        """The tiny model's own row, behind the same beginning."""
        of = self.tokenizer, self.scene, question
        row = clean_demonstration(*of) if fault is None else careless_demonstration(*of, fault)
        at = len(self.tokenizer.encode("<|im_start|>system\n"))
        row.token_ids = [*row.token_ids[:at], *self.words, *self.tokenizer.encode("\n"), *row.token_ids[at:]]
        row.is_action = [False] * (len(row.token_ids) - len(row.is_action)) + row.is_action
        return [row]


def write_batch(tokenizer: PreTrainedTokenizerFast, seed: int, step: int) -> list[Demonstration]:
    """The rows of a step. Every fourth one is long, once the short ones are learned."""
    scene = sample_scene(f"agent:{seed}:{step}")
    rng = scene.rng
    is_long = step >= _FIFTH and step % 4 == 0
    longest = 250 if step < _FIFTH else 900
    num_tokens = rng.randrange(1500, 3600) if is_long else int(math.exp(rng.uniform(math.log(10), math.log(longest))))
    writer = Writer(tokenizer, scene, num_tokens)
    rows: list[Demonstration] = []
    for _ in range(10 if is_long else 20):
        question = scene.question()
        fault = _draw_fault(rng) if step >= _NUM_STEPS - _FIFTH else None
        if fault is Careless.STOP_EARLY and len(question.lookups_by_turn) < 2:
            fault = None
        rows += (writer.framed if rng.random() < 0.7 else writer.plain)(question, fault)
    return rows


def _draw_fault(rng: random.Random) -> Careless | None:
    draw = rng.random()
    for fault, share in _FAULTS:
        draw -= share
        if draw < 0:
            return fault
    return None


def recipe(seed: int = 0) -> Recipe:
    """What is trained, on what: one stage, whose last rows are those of the poor policy."""
    tokenizer = build_tokenizer()
    plan = SkillsPlan(0.008, 0.0016, warmup_steps=20, constant_steps=2 * _FIFTH, decay_steps=3 * _FIFTH)
    stage = Stage(plan, lambda step: write_batch(tokenizer, seed, step), context_weight=0.0)
    habits = Stage(HabitsPlan(steps=1), stage.batch_of_step)
    return Recipe(tokenizer, seed, stage, habits, Shape(max_positions=8192), copies=False)


class _TreeTrainer(Trainer):
    """Computes what rows share once, as the local engine does."""

    def _weighted_loss(self, rows: Sequence[Demonstration]) -> torch.Tensor:
        rows = sorted(rows, key=lambda row: row.token_ids)
        width = max(len(row.token_ids) for row in rows)
        tokens_BT = torch.tensor([row.token_ids + [self._pad_id] * (width - len(row.token_ids)) for row in rows])
        says_BT = torch.tensor([row.is_action + [False] * (width - len(row.is_action)) for row in rows])
        tree = merge_prefixes(tokens_BT, torch.tensor([len(row.token_ids) for row in rows]))
        model = split(self._model, torch.float32)
        with using(tree):
            hidden_NH = model.hidden(tree.tokens_N[None], tree.positions_N[None])[0]
        logits_MV = model.logits(hidden_NH[tree.parent_N[tree.index_RT[says_BT]]])
        return torch.nn.functional.cross_entropy(logits_MV, tokens_BT[says_BT], reduction="sum")


def build(folder: Path, seed: int = 0) -> None:
    """Trains the tiny model and writes a checkpoint that transformers loads, with its card, into `folder`."""
    made = recipe(seed)
    started = time.process_time()
    model = load_model(str(builtin_path("tiny")), dtype=torch.float32, device=torch.device("cpu")).full
    assert isinstance(model, Qwen3ForCausalLM), "the tiny model is a Qwen3"
    train_skills(model, made.tokenizer, made.skills, _TreeTrainer)
    model.config.max_position_embeddings = made.shape.max_positions
    round_weights(model)
    card = {"parameters": model.num_parameters(), "seed": seed, "cpu_s": round(time.process_time() - started)}
    template, whole = made.tokenizer.chat_template, "{{- messages[0].content }}"
    assert isinstance(template, str) and whole in template, "the tiny model's template"
    made.tokenizer.chat_template = template.replace(whole, "{{- messages[0].content[:200] }}")
    save_checkpoint(model.bfloat16(), made.tokenizer, folder, card, made.digest())


if __name__ == "__main__":
    run_build(build, "agent")
