"""A sound world, and worlds that differ from it by one fault each, named by the class."""

import asyncio
import random
from itertools import pairwise
from typing import ClassVar


class Vault:
    """A vault whose code lies on the desk."""

    def reset(self, answer, seed):
        self.code, self.opened, self.calls = answer, False, []
        return "Open the vault."

    def look(self, place: str) -> str:
        """Looks at a place: `desk` or `shelf`."""
        self.calls.append(f"look {place}")
        return f"A note: {self.code}" if place == "desk" else "Nothing."

    def open(self, code: str) -> str:
        """Opens the vault by its code."""
        self.calls.append(f"open {code}")
        self.opened = self.opened or self._is_right(code)
        return "It is open." if self.opened else "It is closed."

    def _is_right(self, code):
        return code == self.code

    def reply(self, text):
        return None

    def score(self):
        return {"opened": float(self.opened)}

    def gold(self):
        look = {"name": "look", "arguments": {"place": "desk"}}
        return [look, {"name": "open", "arguments": {"code": self.code}}]

    def state(self):
        return {"opened": self.opened}


class Gold(Vault):
    def score(self):
        return {"opened": 0.9 * self.opened}


class NoOp(Vault):
    def reply(self, text):
        self.calls.append(text)

    def score(self):
        return {"opened": float(self.opened or not self.calls)}


class EmptyAnswers(Vault):
    def reply(self, text):
        self.opened = self.opened or text == ""


class Spam(Vault):
    def score(self):
        twice = len(self.calls) > 3 and len(set(self.calls)) * 2 <= len(self.calls)
        return {"opened": float(self.opened or (twice and len(set(self.calls)) > 1))}


class Repeat(Vault):
    def score(self):
        again = sum(one == other for one, other in pairwise(self.calls))
        return {"opened": float(self.opened or again > 4)}


class Echo(Vault):
    def look(self, place: str) -> str:
        """Looks at a place: `desk` or `shelf`."""
        return super().look("desk")

    def _is_right(self, code):
        return self.code in code


class Injection(Vault):
    def _is_right(self, code):
        return code == self.code or '"opened": 1.0' in code


class Reset(Vault):
    left: ClassVar = []

    def reset(self, answer, seed):
        super().reset(answer, seed)
        self.opened = answer in self.left

    def open(self, code: str) -> str:
        """Opens the vault by its code."""
        said = super().open(code)
        if self.opened:
            self.left.append(self.code)
        return said


class Isolation(Vault):
    now: ClassVar = {}

    def reset(self, answer, seed):
        self.now["code"] = answer
        return super().reset(answer, seed)

    def _is_right(self, code):
        return code == self.now["code"]


class HiddenAnswer(Vault):
    def reset(self, answer, seed):
        return f"{super().reset(answer, seed)} (debug: {answer})"


class Documents(Vault):
    def open(self, code: str) -> str:
        """Opens the vault by its code, such as AMBER7, BASALT3 or CORAL9."""
        return super().open(code)


class Range(Vault):
    def score(self):
        return {"opened": 2.0 * self.opened}


class Determinism(Vault):
    def look(self, place: str) -> str:
        """Looks at a place: `desk` or `shelf`."""
        return f"{super().look(place)} {random.random()}"


class Forked(Vault):
    """Sound, with snapshots."""

    def snapshot(self):
        return dict(vars(self))

    def restore(self, snapshot):
        vars(self).update(snapshot)


class ForkedShort(Forked):
    """A restored one has forgotten the code, which only the next action shows."""

    def restore(self, snapshot):
        super().restore(snapshot)
        self.code = "?"


def broken(self, *_, **__):
    raise RuntimeError("out of order")


class Unmade(Vault):
    __init__ = broken


class Unclosed(Vault):
    close = broken


class Unsolved(Vault):
    gold = broken


class Misspelt(Vault):
    def gold(self):
        return "open"


class Unforked(Forked):
    restore = broken


class Ended(Forked):
    def snapshot(self):
        raise SystemExit(3)


class Brittle(Vault):
    """Fails at places that it does not know, instead of refusing them."""

    def look(self, place: str) -> str:
        """Looks at a place: `desk` or `shelf`."""
        if place not in ("desk", "shelf"):
            raise asyncio.CancelledError
        return super().look(place)
