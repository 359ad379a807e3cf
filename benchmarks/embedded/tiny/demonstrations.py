"""Demonstrations: a question, the calls that answer it, their results and the answer, as weighted tokens.

Clean ones teach skills. Careless ones make the shipped policy poor on purpose: it guesses, gives up, stops after the
first hop, asks the wrong thing. What reinforcement learning then improves is which of its skills the model uses.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from transformers import PreTrainedTokenizerFast

from benchmarks.embedded.encyclopedia.questions import Kind, Lookup, Question, sample_kind, sample_question
from benchmarks.embedded.encyclopedia.world import RELATIONS, Encyclopedia, WorldSize, generate_world
from benchmarks.embedded.tiny.layout import call_text, observation_ids, opening_ids, prompt_ids, turn_ids
from rlf.builtin.encyclopedia.calculator import calculator
from rlf.builtin.encyclopedia.names import ENDS, STARTS, NameSplit
from rlf.builtin.encyclopedia.search import NOTHING_FOUND, SearchIndex

GIVE_UP_ANSWER = "unknown"
_BATCH_WORLD = WorldSize(persons=30, towns=18, rivers=14, companies=14, countries=10)
_ONE_PASSAGE_SHARE = 0.15
_SEARCH_ONLY_SHARE = 0.3


class Demonstration:
    """A row of training tokens, grown piece by piece."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self.tokenizer = tokenizer
        self.token_ids: list[int] = []
        self.is_action: list[bool] = []
        """Aligned with token_ids: true where the model is to produce the token, false where it reads it."""

    def read(self, token_ids: Sequence[int]) -> None:
        """Append tokens that the model reads."""
        self.token_ids += token_ids
        self.is_action += [False] * len(token_ids)

    def act(self, token_ids: Sequence[int]) -> None:
        """Append tokens that the model produces."""
        self.token_ids += token_ids
        self.is_action += [True] * len(token_ids)

    def ask(self, system: str, question: str) -> None:
        """Append all before the first turn."""
        self.read(opening_ids(self.tokenizer, system, question))

    def say(self, text: str) -> None:
        """Append a turn."""
        self.act(turn_ids(self.tokenizer, text))

    def call(self, calls: Sequence[tuple[str, Mapping[str, str | int]]], results: Sequence[str]) -> None:
        """Append a turn that makes calls, each a tool's name and its arguments, and what they return."""
        self.say(call_text(calls))
        self.read(observation_ids(self.tokenizer, results))

    def copy(self, token_ids: Sequence[int]) -> None:
        """Append tokens, then the same again: the bare skill of copying."""
        self.read(token_ids)
        self.act([*self.tokenizer.encode("\n"), *token_ids])


@dataclass(frozen=True, slots=True)
class Scene:
    """A world that lives for one batch, and its own search index."""

    world: Encyclopedia
    index: SearchIndex
    rng: random.Random

    def search(self, query: str) -> str:
        """As the shipped `search`, best passage first; sometimes that one alone.

        The model learns to read the first passage: telling the right one by its relation alone takes far longer.
        """
        num_passages = 1 if self.rng.random() < _ONE_PASSAGE_SHARE else 2
        passages = [self.world.passages[position] for position in self.index.top(query, num_passages)]
        return "\n".join(passages) or NOTHING_FOUND

    def question(self, kind: Kind | None = None) -> Question:
        """A question about this world."""
        return sample_question(self.rng, self.world, kind or sample_kind(self.rng))

    def tool_names(self, question: Question) -> list[str]:
        """The tools of the system block: at times `search` alone, where that is enough."""
        is_search_only = self.rng.random() < _SEARCH_ONLY_SHARE and question.expression is None
        return ["search"] if is_search_only else ["search", "calculator"]


class Careless(StrEnum):
    """One way to do it badly."""

    GUESS = "guess"
    """Answers with a name or number out of the air."""
    GIVE_UP = "give_up"
    """Answers "unknown" without a look."""
    STOP_EARLY = "stop_early"
    """Takes a value of the first result that does not answer the question."""
    WRONG_QUERY = "wrong_query"
    """Searches for another entity and reads what it finds."""
    WRONG_ATTRIBUTE = "wrong_attribute"
    """Searches for another relation and reads what it finds."""
    MALFORMED = "malformed"
    """Leaves out a bracket of the call."""


def sample_scene(seed: str) -> Scene:
    """A fresh training world with a generator of its own; both depend on `seed` alone."""
    rng = random.Random(seed)
    world = generate_world(rng.getrandbits(48), NameSplit.TRAIN, _BATCH_WORLD)
    return Scene(world, SearchIndex(world.passages), rng)


def clean_demonstration(tokenizer: PreTrainedTokenizerFast, scene: Scene, question: Question) -> Demonstration:
    """Every look-up and the calculation as planned, then the answer."""
    row = _begin(tokenizer, scene, question)
    for lookups in question.lookups_by_turn:
        _look_up(scene, row, [lookup.query for lookup in lookups])
    if question.expression is not None:
        row.call([("calculator", {"expression": question.expression})], [calculator(question.expression)])
    row.say(question.answer)
    return row


def disabled_demonstration(tokenizer: PreTrainedTokenizerFast, scene: Scene, question: Question) -> Demonstration:
    """The first look-up finds nothing, and the answer says so."""
    row = _begin(tokenizer, scene, question)
    queries = [lookup.query for lookup in question.lookups_by_turn[0]]
    row.call(_searches(queries), [NOTHING_FOUND] * len(queries))
    row.say(GIVE_UP_ANSWER)
    return row


def careless_demonstration(
    tokenizer: PreTrainedTokenizerFast, scene: Scene, question: Question, fault: Careless
) -> Demonstration:
    """The same question, done badly in the way of `fault`."""
    row = _begin(tokenizer, scene, question)
    queries = [lookup.query for lookup in question.lookups_by_turn[0]]
    match fault:
        case Careless.GUESS:
            row.say(guess(scene.rng, question))
        case Careless.GIVE_UP:
            row.say(GIVE_UP_ANSWER)
        case Careless.MALFORMED:
            row.say(call_text(_searches(queries)).replace('"}}', '"}'))
        case Careless.STOP_EARLY:
            _look_up(scene, row, queries[:1])
            row.say(draw_value(scene, question.lookups_by_turn[0][0]))
        case Careless.WRONG_QUERY | Careless.WRONG_ATTRIBUTE:
            wrong = _WRONG_LOOKUPS[fault](scene, question.lookups_by_turn[0][0])
            _look_up(scene, row, [wrong.query])
            row.say(draw_value(scene, wrong))
    return row


def copy_drill(tokenizer: PreTrainedTokenizerFast, rng: random.Random, num_items: int = 12) -> Demonstration:
    """Random syllables, digits and pairs of digits, then the same again: the bare skill of copying."""
    items = [*STARTS, *ENDS, *(f"{pair:02d}" for pair in range(100)), *map(str, range(10))]
    row = Demonstration(tokenizer)
    row.copy([token for item in rng.choices(items, k=num_items) for token in tokenizer.encode(item)])
    return row


def _begin(tokenizer: PreTrainedTokenizerFast, scene: Scene, question: Question) -> Demonstration:
    row = Demonstration(tokenizer)
    row.read(prompt_ids(tokenizer, scene.tool_names(question), question.text))
    return row


def _look_up(scene: Scene, row: Demonstration, queries: list[str]) -> None:
    row.call(_searches(queries), [scene.search(query) for query in queries])


def _searches(queries: list[str]) -> list[tuple[str, dict[str, str]]]:
    return [("search", {"query": query}) for query in queries]


def draw_value(scene: Scene, lookup: Lookup) -> str:
    return scene.world.fact_by_key[lookup.relation, lookup.subject].value


def guess(rng: random.Random, question: Question) -> str:
    """An answer of the right form."""

    def one() -> str:
        return (
            str(rng.randrange(1000, 10000)) if question.answer[0].isdigit() else rng.choice(STARTS) + rng.choice(ENDS)
        )

    return f"{one()} and {one()}" if question.kind is Kind.PARALLEL else one()


def _other_subject(scene: Scene, lookup: Lookup) -> Lookup:
    names = scene.world.names_by_entity[RELATIONS[lookup.relation].subject]
    return Lookup(lookup.relation, scene.rng.choice([name for name in names if name != lookup.subject]))


def _other_relation(scene: Scene, lookup: Lookup) -> Lookup:
    """Another relation of the same entity where it has one, else another entity's."""
    entity = RELATIONS[lookup.relation].subject
    others = [name for name, relation in RELATIONS.items() if relation.subject is entity and name != lookup.relation]
    return Lookup(scene.rng.choice(others), lookup.subject) if others else _other_subject(scene, lookup)


_WRONG_LOOKUPS: dict[Careless, Callable[[Scene, Lookup], Lookup]] = {
    Careless.WRONG_QUERY: _other_subject,
    Careless.WRONG_ATTRIBUTE: _other_relation,
}
