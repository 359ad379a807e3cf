"""Noise in the names of tools and parameters, by the levels of RoTBench (Ye et al. 2024, arXiv:2401.08326).

The functions and documents stay what they are: a policy that reads documents is not led astray by names.
"""

from __future__ import annotations

import keyword
import random
import string
from dataclasses import replace

from rlf.builder.graph.toolkit import Function, Parameter, Toolkit, renamed
from rlf.builder.shape import Noise

_LETTERS = string.ascii_lowercase


def add_noise(toolkit: Toolkit, noise: Noise, used: set[str], rng: random.Random) -> Toolkit:
    """The toolkit with other names; `used` holds names that are taken, and gets those of the toolkit."""
    if noise is Noise.CLEAN:
        return toolkit
    others = [function.name for function in toolkit.functions]
    if noise in (Noise.HEAVY, Noise.UNION):
        others = [*others[1:], *others[:1]]
    name_by_old = dict(zip((function.name for function in toolkit.functions), others, strict=True))

    def rename(function: Function) -> Function:
        name = name_by_old[function.name]
        if noise is not Noise.HEAVY:
            used.discard(name)
            name = _find_free(name, noise, used, rng)
        taken: set[str] = set()
        parameters = [replace(each, name=_find_free(each.name, noise, taken, rng)) for each in function.parameters]
        if noise in (Noise.HEAVY, Noise.UNION):
            schema = {"type": "string", "description": "Not used; write `none`."}
            parameters.append(Parameter("extra", _find_free("extra", noise, taken, rng), schema, required=True))
        return replace(function, name=name, parameters=tuple(parameters))

    return renamed(toolkit, rename)


def _find_free(name: str, noise: Noise, used: set[str], rng: random.Random) -> str:
    """A noisy name that is not used; it is taken from then on."""
    for _ in range(1000):
        found = _make_noisy(name, noise, rng)
        if found not in used and found.isidentifier() and not keyword.iskeyword(found):
            used.add(found)
            return found
    raise AssertionError(f"no noisy name for {name!r}")


def _make_noisy(name: str, noise: Noise, rng: random.Random) -> str:
    match noise:
        case Noise.SLIGHT:
            return _misspell(name, rng)
        case Noise.MEDIUM:
            return name[::-1] if rng.random() < 0.5 else _draw_letters(len(name), rng)
        case Noise.UNION:
            return rng.choice([_misspell(name, rng), name[::-1], _draw_letters(len(name), rng)])
    return name


def _misspell(name: str, rng: random.Random) -> str:
    """One character more, one less, or another one."""
    at = rng.randrange(len(name))
    middle = rng.choice([name[at] + rng.choice(_LETTERS), "", rng.choice(_LETTERS)])
    return name[:at] + middle + name[at + 1 :]


def _draw_letters(length: int, rng: random.Random) -> str:
    return "".join(rng.choice(_LETTERS) for _ in range(max(length, 6)))
