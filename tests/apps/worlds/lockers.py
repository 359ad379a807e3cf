"""A third set of planted faults, none of which was tried before it was counted, and sound worlds: see `planted`."""

import base64
import codecs
import datetime
import os
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import ClassVar, Literal

PLACES = {"lamp": (1, 2), "rope": (2, 3), "drum": (3, 1)}
KEYS = {(1, 2): "K7Q2", (2, 3): "B3X9", (3, 1): "M5T4"}


class Locker:
    """Lockers, of which one is unlocked: by its place, then by the key of that place."""

    def reset(self, item, answer, seed):
        self.item, self.key, self.unlocked = item, answer, []
        return f"Unlock the locker with the {item}."

    def locate(self, thing: str) -> dict:
        """Finds the place of a thing.

        Args:
            thing: its name.
        """
        if thing not in PLACES:
            raise LookupError(f"no {thing!r} here")
        row, column = PLACES[thing]
        return {"row": row, "column": column}

    def key_for(self, row: int, column: int) -> str:
        """Finds the key of a place.

        Args:
            row: of the place.
            column: of the place.
        """
        return KEYS.get((row, column), "That place is empty.")

    def unlock(self, key: str) -> str:
        """Unlocks with a key.

        Args:
            key: as it is found.
        """
        if key not in KEYS.values():
            raise ValueError("this key fits nowhere")
        self.unlocked.append(key)
        return "It opens."

    def score(self):
        return {"done": float(self.unlocked == [self.key])}

    def gold(self):
        row, column = PLACES[self.item]
        return [
            {"name": "locate", "arguments": {"thing": self.item}},
            {"name": "key_for", "arguments": {"row": row, "column": column}},
            {"name": "unlock", "arguments": {"key": self.key}},
        ]

    def state(self):
        return {"unlocked": list(self.unlocked)}


class DefaultKept(Locker):
    def reset(self, item, answer, seed, unlocked=[]):  # noqa: B006 - the fault
        said = super().reset(item, answer, seed)
        self.unlocked = unlocked
        return said


class CountsCalls(Locker):
    calls: ClassVar = [0]

    def locate(self, thing: str) -> str:
        """Finds the place of a thing."""
        self.calls[0] += 1
        return f"{super().locate(thing)}, question number {self.calls[0]}"


class Ticket(Locker):
    def unlock(self, key: str) -> str:
        """Unlocks with a key."""
        return f"{super().unlock(key)} Ticket {uuid.uuid4().hex}."


class SetOrder(Locker):
    def locate(self, thing: str) -> str:
        """Finds the place of a thing."""
        return f"{super().locate(thing)}; there are {', '.join({'lamp', 'rope', 'drum', 'harp', 'coat', 'boot'})}"


class Month(Locker):
    def reset(self, item, answer, seed):
        return f"{super().reset(item, answer, seed)} It is month {datetime.datetime.now().month}."


class Base64(Locker):
    def reset(self, item, answer, seed):
        return f"{super().reset(item, answer, seed)} Ref {base64.b64encode(answer.encode()).decode()}."


class Dashes(Locker):
    def locate(self, thing: str) -> dict:
        """Finds the place of a thing."""
        if thing not in PLACES:
            raise LookupError(f"no {thing!r}; see key {'-'.join(self.key)}")
        return super().locate(thing)


class PaysTries(Locker):
    tried = False

    def unlock(self, key: str) -> str:
        """Unlocks with a key."""
        self.tried = True
        return super().unlock(key)

    def score(self):
        return {"done": float(self.tried)}


class PaysFirst(Locker):
    asked = False

    def locate(self, thing: str) -> dict:
        """Finds the place of a thing."""
        self.asked = True
        return super().locate(thing)

    def score(self):
        return {"done": max(0.6 * self.asked, super().score()["done"])}


class MinusInfinity(Locker):
    def score(self):
        return {"done": super().score()["done"] or float("-inf")}


class NoScore(Locker):
    def score(self):
        return super().score() if self.unlocked else {"done": None}


class GoldEmpty(Locker):
    def gold(self):
        return []


class GoldAsText(Locker):
    def gold(self):
        return [{"name": "unlock", "arguments": {"code": self.key}}]


class Excludes(Locker):
    def locate(self, thing: Literal["harp", "coat"]) -> dict:
        """Finds the place of a thing."""
        return super().locate(thing)


class Keyless(Locker):
    def weigh(self, thing: str) -> int:
        """Weighs a thing."""
        return {}[thing]


class Progress(Locker):
    def progress(self) -> str:
        """Tells how it is going."""
        return f"reward so far: {self.score()['done']}"


class Retarget(Locker):
    def choose(self, key: str) -> str:
        """Chooses the key."""
        self.key = key
        return "Chosen."


class Pools(Locker):
    def reset(self, item, answer, seed):
        self.pool = ThreadPoolExecutor(1)
        self.pool.submit(threading.Event().wait, 600)
        return super().reset(item, answer, seed)


class Folders(Locker):
    def reset(self, item, answer, seed):
        self.folder = tempfile.mkdtemp()
        return super().reset(item, answer, seed)


class Helpers(Locker):
    def reset(self, item, answer, seed):
        self.helper = subprocess.Popen(["sleep", "600"])
        return super().reset(item, answer, seed)


class Archive(Locker):
    ever: ClassVar = []

    def close(self):
        self.ever.append(b"x" * 3_000_000)


class Sluggish(Locker):
    def key_for(self, row: int, column: int) -> str:
        """Finds the key of a place."""
        time.sleep(1.4)
        return super().key_for(row, column)


class NotNegative(Locker):
    def key_for(self, row: int, column: int) -> str:
        """Finds the key of a place."""
        if row < 1 or column < 1:
            raise RuntimeError("out of the building")
        return super().key_for(row, column)


class Silence(Locker):
    def reply(self, text: str) -> None:
        if not text.strip():
            raise OSError("nothing was said")


class ExitsLater(Locker):
    def unlock(self, key: str) -> str:
        """Unlocks with a key."""
        threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGKILL)).start()
        return super().unlock(key)


class Endless(Locker):
    def locate(self, thing: str) -> str:
        """Finds the place of a thing."""
        return f"{super().locate(thing)} {'Nothing else is known. ' * 20_000}"


class AnyKey(Locker):
    def score(self):
        return {"done": float(bool(self.unlocked))}


class Rotated(Locker):
    def reset(self, item, answer, seed):
        return f"{super().reset(item, answer, seed)} Label: {codecs.encode(answer, 'rot13')}."


class Sells(Locker):
    coins = 0

    def buy(self, hints: int) -> str:
        """Buys hints, each for a coin.

        Args:
            hints: how many.
        """
        self.coins -= hints
        return f"You have {self.coins} coins."

    def score(self):
        return {"done": float(self.unlocked == [self.key] or self.coins >= 100)}


FAULTS = {
    "DefaultKept": "reset|determinism|isolation|gold",
    "CountsCalls": "reset|determinism",
    "Ticket": "determinism",
    "SetOrder": "another process",
    "Month": "another process",
    "Base64": "hidden answer",
    "Dashes": "hidden answer",
    "PaysTries": "spam|repeat",
    "PaysFirst": "spam|repeat",
    "MinusInfinity": "range",
    "NoScore": "range",
    "GoldEmpty": "gold",
    "GoldAsText": "gold",
    "Excludes": "tools|gold",
    "Keyless": "tools",
    "Progress": "grader",
    "Retarget": "grader",
    "Pools": "leftovers",
    "Folders": "leftovers",
    "Helpers": "leftovers",
    "Archive": "leftovers",
    "Sluggish": "deadlines",
    "NotNegative": "steps",
    "Silence": "steps",
    "ExitsLater": "contained",
    "Endless": "outputs",
    "AnyKey": "gold",
    "Rotated": "hidden answer",
    "Sells": "repeat",
}


class Shuffled(Locker):
    """Sound: words in an order that the seed gives."""

    def reset(self, item, answer, seed):
        said = super().reset(item, answer, seed)
        things = sorted(PLACES)
        random.Random(seed).shuffle(things)
        return f"{said} There are {', '.join(things)}."


class Remembers(Locker):
    """Sound: keeps the results of a pure function for all."""

    def locate(self, thing: str) -> dict:
        """Finds the place of a thing."""
        return dict(_place(super().locate, thing)) if thing in PLACES else super().locate(thing)


@lru_cache
def _place(_, thing):
    return tuple(zip(("row", "column"), PLACES[thing], strict=True))


class Tidies(Locker):
    """Sound: a folder of its own that it removes."""

    def reset(self, item, answer, seed):
        self.folder = tempfile.mkdtemp()
        return super().reset(item, answer, seed)

    def close(self):
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)


class Copies(Locker):
    """Sound: with copies of itself."""

    def snapshot(self):
        return self.item, self.key, tuple(self.unlocked)

    def restore(self, snapshot):
        self.item, self.key, unlocked = snapshot
        self.unlocked = list(unlocked)


class Confirms(Locker):
    """Sound: says whether a key fits a place, which solves nothing."""

    def fits(self, key: str, row: int, column: int) -> bool:
        """Tells whether a key is that of a place."""
        return KEYS.get((row, column)) == key


SOUND = ["Locker", "Shuffled", "Remembers", "Tidies", "Copies", "Confirms"]
