"""Demonstrations of the reader: a question, tools that are drawn for it alone, calls by a habit, and the answer.

Relations, kinds, names of tools and parameters are drawn again for each row, so that a document can only be read.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from transformers import PreTrainedTokenizerFast

from benchmarks.embedded.reader.words import KINDS, NOUNS, PARAMETERS, VERBS
from benchmarks.embedded.tiny.demonstrations import Demonstration
from rlf.builtin.encyclopedia.names import ENDS, STARTS, NameSplit, split_names


class Habit(StrEnum):
    """How the policy acts on a question."""

    RIGHT = "right"
    """Each call that is needed, and none more."""
    GUESS = "guess"
    """No call: a name out of the air."""
    STOP = "stop"
    """One call, and what it finds is the answer."""
    SPAM = "spam"
    """With each call that is needed, two more of other tools."""
    WRONG = "wrong"
    """Calls of tools that find something else."""


POLICY: dict[Habit, float] = {
    Habit.RIGHT: 0.2,
    Habit.GUESS: 0.2,
    Habit.STOP: 0.2,
    Habit.SPAM: 0.25,
    Habit.WRONG: 0.15,
}
"""How often the shipped policy follows each habit."""
SHAPES: dict[str, float] = {"single": 0.4, "parallel_single": 0.2, "multi": 0.25, "parallel_multi": 0.15}
"""Shares of the shapes of questions."""
_NUM_SPAM = 2


@dataclass(frozen=True, slots=True)
class _Tool:
    name: str
    parameter: str
    kind: str
    relation: str

    @property
    def document(self) -> str:
        return f"- the {self.kind}'s {self.relation}: {self.name}({self.parameter})"


@dataclass(slots=True)
class Scene:
    """A question, its tools, and what they find."""

    shape: str
    tools: list[_Tool]
    chains: list[list[_Tool]]
    """The tools that each chain of the question needs, in order."""
    subjects: list[str]
    rng: random.Random
    _found: dict[tuple[str, str], str] = field(default_factory=dict)
    _kinds: dict[str, str] = field(default_factory=dict)

    @property
    def system(self) -> str:
        """The system block: the tools' documents."""
        return "\n".join(["Tools:", *(tool.document for tool in self.tools)])

    @property
    def question(self) -> str:
        """The question in words."""
        asked = [
            "'s ".join([subject, *(tool.relation for tool in chain)])
            for subject, chain in zip(self.subjects, self.chains, strict=True)
        ]
        if len(asked) == 1:
            return f"What is {asked[0]}?"
        return f"What are {', '.join(asked[:-1])} and {asked[-1]}?"

    def gold_calls(self) -> list[tuple[str, str]]:
        """The calls that are needed, each a tool's name and a name."""
        calls: list[tuple[str, str]] = []
        for subject, chain in zip(self.subjects, self.chains, strict=True):
            name = subject
            for hop, tool in enumerate(chain):
                calls.append((tool.name, name))
                name = self.call(tool, name, chain[hop + 1].kind if hop + 1 < len(chain) else None)
        return calls

    def call(self, tool: _Tool, subject: str, value_kind: str | None = None) -> str:
        """Calls a tool; a name of another kind is refused, as built worlds do."""
        kind = self._kinds.setdefault(subject, tool.kind)
        if kind != tool.kind:
            return f"error: WrongKind: '{subject}' is a {kind}; this function takes the name of a {tool.kind}"
        found = self._found.setdefault((tool.relation, subject), self.rng.choice(split_names(NameSplit.TRAIN)))
        if value_kind is not None:
            self._kinds.setdefault(found, value_kind)
        return found


def draw_scene(rng: random.Random, shape: str, max_tools: int = 9) -> Scene:
    """A question of a shape about things that exist for it alone."""
    num_chains = rng.choice([2, 2, 3]) if shape.startswith("parallel") else 1
    hops = [rng.choice([2, 2, 3]) if shape.endswith("multi") else 1 for _ in range(num_chains)]
    if rng.random() < 0.5:
        hops = hops[:1] * num_chains
    kinds = rng.sample(KINDS, rng.randint(2, 6))
    tools = _draw_tools(rng, kinds, rng.randint(max(4, max(hops)), max_tools))
    alike = rng.random() < 0.5
    chains: list[list[_Tool]] = []
    while len(chains) < num_chains:
        chains.append(list(chains[0]) if alike and chains else rng.choices(tools, k=hops[len(chains)]))
    return Scene(shape, tools, chains, rng.sample(split_names(NameSplit.TRAIN), num_chains), rng)


def _draw_tools(rng: random.Random, kinds: Sequence[str], number: int) -> list[_Tool]:
    relations, used, tools = rng.sample(NOUNS, number), set[str](), []
    parameters = rng.sample(PARAMETERS, rng.choice([1, 1, 2, 3]))
    for relation in relations:
        name = _tool_name(rng, relation)
        while name in used:
            name = _tool_name(rng, relation)
        used.add(name)
        tools.append(_Tool(name, rng.choice(parameters), rng.choice(kinds), relation))
    return tools


def _tool_name(rng: random.Random, relation: str) -> str:
    """At times with the word of what it finds, at times with one that says nothing."""
    noun = relation if rng.random() < 0.5 else rng.choice(NOUNS + KINDS)
    verb = rng.choice(VERBS)
    return rng.choice(
        [f"{verb}_{noun}", f"{noun}_{verb}", f"{noun}_{rng.choice(KINDS)}", f"{rng.choice(KINDS)}_{noun}"]
    )


def demonstrate(tokenizer: PreTrainedTokenizerFast, scene: Scene, habit: Habit) -> Demonstration:
    """The question, with calls by a habit."""
    row = Demonstration(tokenizer)
    row.ask(scene.system, scene.question)
    if habit is Habit.GUESS:
        row.say(", ".join(scene.rng.choice(split_names(NameSplit.TRAIN)) for _ in scene.chains))
        return row
    values = list(scene.subjects)
    num_hops = 1 if habit is Habit.STOP else max(map(len, scene.chains))
    for hop in range(num_hops):
        open_chains = [at for at, chain in enumerate(scene.chains) if hop < len(chain)]
        if habit is Habit.STOP:
            open_chains = open_chains[:1]
        calls = [call for at in open_chains for call in _draw_tool_calls(scene, at, hop, values[at], habit)]
        results = [scene.call(tool, subject, kind) for tool, subject, kind in calls]
        row.call([(tool.name, {tool.parameter: name}) for tool, name, _ in calls], results)
        size = len(calls) // len(open_chains)
        for place, at in enumerate(open_chains):
            values[at] = results[place * size]
        if any(values[at].startswith("error") for at in open_chains):
            row.say("unknown")
            return row
    row.say(", ".join(values[:1] if habit is Habit.STOP else values))
    return row


def _draw_tool_calls(
    scene: Scene, at: int, hop: int, subject: str, habit: Habit
) -> list[tuple[_Tool, str, str | None]]:
    """A chain's calls of one turn: the tool, the name, and the kind of what it finds where another call needs it."""
    chain = scene.chains[at]
    value_kind = chain[hop + 1].kind if hop + 1 < len(chain) else None
    others = [tool for tool in scene.tools if tool is not chain[hop]]
    if habit is Habit.WRONG:
        return [(scene.rng.choice(others), subject, value_kind)]
    right = [(chain[hop], subject, value_kind)]
    if habit is Habit.SPAM:
        return right + [(tool, subject, None) for tool in scene.rng.sample(others, _NUM_SPAM)]
    return right


def copy_words(tokenizer: PreTrainedTokenizerFast, rng: random.Random) -> Demonstration:
    """Random words, syllables and pairs of digits, then the same again: the bare skill of copying."""
    items = [*STARTS, *ENDS, *NOUNS, *KINDS, *VERBS, *PARAMETERS, *(f"{pair:02d}" for pair in range(100))]
    row = Demonstration(tokenizer)
    row.copy([token for item in rng.choices(items, k=10) for token in tokenizer.encode(item)])
    return row
