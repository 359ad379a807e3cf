"""How terms hang together: the order in which they are asked, and what is wrong with them as a whole."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from rlf.core import nearest
from rlf.rewards.term import Term, Unscorable


class Complaint(NamedTuple):
    """One thing wrong with a term beside the others."""

    position: int
    """The term's."""
    key: tuple[str, ...]
    """Of the term."""
    message: str
    """What was there; what is allowed. What to write."""


def in_order(terms: Sequence[Term]) -> list[Term]:
    """The terms, each after those it reads, otherwise as declared. There must be no complaint about them."""
    placed: dict[str, Term] = {}
    while len(placed) < len(terms):
        ready = [term for term in terms if term.name not in placed and term.reads.keys() <= placed.keys()]
        assert ready, f"terms depend on each other in a circle: {_find_cycle(terms)}"
        placed |= {term.name: term for term in ready}
    return list(placed.values())


def complaints(terms: Sequence[Term]) -> Iterator[Complaint]:
    """Everything that makes the terms no reward: names, cycles, thresholds that are never or always met."""
    by_name = {term.name: term for term in terms}
    for position, term in enumerate(terms):
        for key, message in (*_about_names(term, by_name), *_about_gate(term, by_name), *_about_required(term)):
            yield Complaint(position, key, message)
        if term.scale == 0:
            yield Complaint(
                position, ("scale",), "got 0, which makes every value 0. Write weight: 0 to only report it."
            )
    cycle = _find_cycle(terms)
    if cycle and all(name in by_name for name in cycle):
        first = by_name[cycle[0]]
        message = f"the terms depend on each other in a circle: {' -> '.join(cycle)}. Remove one of these links."
        yield Complaint(list(by_name).index(first.name), tuple(first.reads[cycle[1]].split(".")), message)


def _find_cycle(terms: Sequence[Term]) -> list[str]:
    """Names of terms each of which reads the next, the first again at the end; empty when there are none."""
    try:
        TopologicalSorter({term.name: list(term.reads) for term in terms}).prepare()
    except CycleError as error:
        names: list[str] = error.args[1][::-1]
        return names
    return []


def _about_names(term: Term, by_name: Mapping[str, Term]) -> Iterator[tuple[tuple[str, ...], str]]:
    known = [name for name in by_name if name != term.name]
    for name, key in term.reads.items():
        if name not in by_name:
            there = f"(known: {', '.join(known)})" if known else "(there is no other)"
            yield tuple(key.split(".")), f"unknown term {name!r}{nearest(name, known)} {there}. Name another term."


def _about_gate(term: Term, by_name: Mapping[str, Term]) -> Iterator[tuple[tuple[str, ...], str]]:
    gate = term.when
    if gate is None or gate.term not in by_name:
        return
    low, high = by_name[gate.term].bounds
    between = f"the values of {gate.term!r} lie between {low:g} and {high:g}"
    if gate.at_least is gate.at_most is None and math.isinf(high):
        yield ("when",), f"the range of {gate.term!r} has no upper bound to reach. Write e.g. `at_least: 1.0`."
    if gate.at_least is not None and gate.at_least > high:
        yield (
            ("when", "at_least"),
            f"got {gate.at_least:g}, but {between}: the gate never opens. Write at most {high:g}.",
        )
    if gate.at_most is not None and gate.at_most < low:
        yield ("when", "at_most"), f"got {gate.at_most:g}, but {between}: the gate never opens. Write at least {low:g}."


def _about_required(term: Term) -> Iterator[tuple[tuple[str, ...], str]]:
    threshold, (low, high) = term.threshold, term.bounds
    if threshold is None:
        return
    key = ("required",)
    if math.isinf(threshold):
        yield key, "got true, but the term's range has no upper bound to reach. Write the value, e.g. `required: 1.0`."
    elif not low < threshold <= high:
        never = "never" if threshold > high else "always"
        words = f"got {threshold:g}, which is {never} met: values lie between {low:g} and {high:g}. "
        yield key, f"{words}Write one of these."
    if term.peak_weight == 0:
        yield key, "a term of weight 0 is only reported. Give it a weight other than 0, or remove this."
    if term.unscorable is Unscorable.DROP_TERM:
        words = "got drop_term for a required term: without a value rlf cannot know whether it is met. "
        yield ("unscorable",), f"{words}Write drop_trajectory, or remove `required`."
