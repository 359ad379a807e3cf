"""Planted faults of other forms, written after the checks, and more sound worlds: see `planted`."""

import os
import random
import socket
import sqlite3
import sys
import tempfile
import threading
import time
from typing import ClassVar, Literal

from rlf.environments.world import Step


class Ledger:
    """Moves an amount between two accounts, in a database of each instance's own."""

    def reset(self, item, answer, seed):
        self.goal, self.base = (item, answer), sqlite3.connect(":memory:", check_same_thread=False)
        self.base.execute("CREATE TABLE account (name TEXT, code TEXT, sum INT)")
        for name, code in (("lamp", "K7Q2"), ("rope", "B3X9"), ("drum", "M5T4")):
            self.base.execute("INSERT INTO account VALUES (?, ?, 100)", (name, code))
        return f"Empty the account {item}."

    def code_of(self, name: str) -> dict:
        """The code of an account."""
        row = self.base.execute("SELECT code, sum FROM account WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise LookupError(f"no account {name!r}")
        return {"code": row[0], "sum": row[1]}

    def withdraw(self, code: str, amount: int) -> str:
        """Withdraws an amount from the account with a code."""
        done = self.base.execute(
            "UPDATE account SET sum = sum - ? WHERE code = ? AND sum >= ? AND ? > 0", (amount, code, amount, amount)
        )
        if not done.rowcount:
            raise ValueError(f"{amount} cannot be withdrawn from {code}")
        return "Withdrawn."

    def _sums(self):
        return dict(self.base.execute("SELECT code, sum FROM account ORDER BY code").fetchall())

    def score(self):
        sums = self._sums()
        return {"done": float(sums.pop(self.goal[1]) == 0 and set(sums.values()) == {100})}

    def gold(self):
        return [
            {"name": "code_of", "arguments": {"name": self.goal[0]}},
            {"name": "withdraw", "arguments": {"code": self.goal[1], "amount": 100}},
        ]

    def state(self):
        return self._sums()

    def close(self):
        if hasattr(self, "base"):
            self.base.close()


class OneBase(Ledger):
    base_of_all = sqlite3.connect(":memory:", check_same_thread=False)

    def reset(self, item, answer, seed):
        said = super().reset(item, answer, seed)
        self.base.close()
        self.base = OneBase.base_of_all
        self.base.execute("CREATE TABLE IF NOT EXISTS account (name TEXT, code TEXT, sum INT)")
        if not self.base.execute("SELECT 1 FROM account").fetchone():
            for name, code in (("lamp", "K7Q2"), ("rope", "B3X9"), ("drum", "M5T4")):
                self.base.execute("INSERT INTO account VALUES (?, ?, 100)", (name, code))
        return said

    def close(self):
        pass


class CachedAnswer(Ledger):
    kept: ClassVar = []

    def score(self):
        self.kept.append(self.goal[1])
        return {"done": super().score()["done"] * (1.0 if len(self.kept) < 60 else 0.0)}


class GlobalRandom(Ledger):
    async def code_of(self, name: str) -> dict:
        """The code of an account."""
        return {**Ledger.code_of(self, name), "ticket": random.randint(0, 10**9)}


class OrderOfFolder(Ledger):
    def reset(self, item, answer, seed):
        return super().reset(item, answer, seed) + f" Branch {sorted(map(hash, ('a', 'b', 'c')))[0]}."


class Weekday(Ledger):
    def withdraw(self, code: str, amount: int) -> str:
        """Withdraws an amount from the account with a code."""
        said = super().withdraw(code, amount)
        return f"{said} Booked on {time.ctime()[:3]}, week {time.gmtime().tm_yday // 7}."


class CountsTime(Ledger):
    def score(self):
        return {"done": super().score()["done"] * (1.0 - (time.perf_counter() % 1e-3))}


class PaysTools(Ledger):
    """Pays for having called every tool."""

    def code_of(self, name: str) -> dict:
        """The code of an account."""
        self.called = {*getattr(self, "called", ()), "code_of"}
        return super().code_of(name)

    def withdraw(self, code: str, amount: int) -> str:
        """Withdraws an amount from the account with a code."""
        self.called = {*getattr(self, "called", ()), "withdraw"}
        return super().withdraw(code, amount)

    def score(self):
        return {"done": max(super().score()["done"], 0.0 if len(getattr(self, "called", ())) < 2 else 1.0)}


class PaysFewer(Ledger):
    """Pays most to whoever does nothing wrong, so also to whoever does nothing."""

    def score(self):
        return {"done": 1.0 - 0.5 * any(0 < value < 100 for value in self._sums().values())}


class PaysUnbounded(Ledger):
    def score(self):
        return {"done": 100.0 - self._sums()[self.goal[1]]}


class LeaksHex(Ledger):
    def reset(self, item, answer, seed):
        return super().reset(item, answer, seed) + f" Trace {answer.encode().hex()}."


class LeaksHint(Ledger):
    def withdraw(self, code: str, amount: int) -> str:
        """Withdraws an amount from the account with a code."""
        if code not in self._sums():
            raise ValueError(f"did you mean {self.goal[1]}?")
        return super().withdraw(code, amount)


class GoldStale(Ledger):
    def gold(self):
        return [{"name": "withdraw", "arguments": {"code": self.goal[1], "amount": 50}}]


class GoldRefused(Ledger):
    def gold(self):
        return [*super().gold()[:1], {"name": "withdraw", "arguments": {"code": self.goal[1], "amount": "all"}}]


class CloseTwice(Ledger):
    def close(self):
        self.base.close()


class ThrowsExit(Ledger):
    def code_of(self, name: str) -> dict:
        """The code of an account."""
        if name not in ("lamp", "rope", "drum"):
            sys.exit("unknown account")
        return super().code_of(name)


class Recurses(Ledger):
    def code_of(self, name: str) -> dict:
        """The code of an account."""
        return super().code_of(name) if name in ("lamp", "rope", "drum") else self.code_of(name)


class Sockets(Ledger):
    held: ClassVar = []

    def reset(self, item, answer, seed):
        self.held.append(socket.socketpair())
        return super().reset(item, answer, seed)


class Timers(Ledger):
    def withdraw(self, code: str, amount: int) -> str:
        """Withdraws an amount from the account with a code."""
        timer = threading.Timer(60, print)
        timer.daemon = True
        timer.start()
        return super().withdraw(code, amount)


class Logs(Ledger):
    def close(self):
        if hasattr(self, "base"):
            descriptor, _ = tempfile.mkstemp(suffix=".log")
            os.close(descriptor)
        super().close()


class DeadUnit(Ledger):
    def rate(self, currency: Literal["EUR", "USD"], day: str = "today") -> float:
        """The rate of a currency."""
        return {"eur": 1.0}[currency]


class Assures(Ledger):
    def is_correct(self) -> bool:
        """Whether everything is as it should be."""
        return bool(self.score()["done"])


class CopyByHalf(Ledger):
    def snapshot(self):
        return {"goal": self.goal}

    def restore(self, snapshot):
        self.reset(*snapshot["goal"], seed=0)


class Chatty(Ledger):
    def code_of(self, name: str) -> dict:
        """The code of an account."""
        return {**super().code_of(name), "history": ["opened"] * 20_000}


FAULTS = {
    "OneBase": "reset|determinism|isolation",
    "CachedAnswer": "reset|determinism|isolation|another process|gold",
    "GlobalRandom": "determinism",
    "OrderOfFolder": "another process",
    "Weekday": "another process",
    "CountsTime": "determinism|gold",
    "PaysTools": "spam|repeat|echo|tools",
    "PaysFewer": "no-op",
    "PaysUnbounded": "range",
    "LeaksHex": "hidden answer",
    "LeaksHint": "hidden answer",
    "GoldStale": "gold",
    "GoldRefused": "gold",
    "CloseTwice": "close",
    "ThrowsExit": "steps",
    "Recurses": "steps",
    "Sockets": "leftovers",
    "Timers": "leftovers",
    "Logs": "leftovers",
    "DeadUnit": "tools",
    "Assures": "grader",
    "CopyByHalf": "snapshot",
    "Chatty": "outputs",
}


class Reads(Ledger):
    """Sound: tells a sum that is in no solution."""

    def total(self) -> int:
        """The sum of all accounts."""
        return sum(self._sums().values())


class Verifies(Ledger):
    """Sound: a tool whose name sounds like a grader's."""

    def verify_code(self, code: str) -> str:
        """Tells whether there is such a code."""
        return "yes" if code in self._sums() else "no"


class Credit(Ledger):
    """Sound: a score that is none of the policy."""

    def get_credit_score(self, name: str) -> int:
        """The credit score of a holder."""
        return 700 + len(name)


class Slow(Ledger):
    def code_of(self, name: str) -> dict:
        """The code of an account."""
        time.sleep(0.02)
        return super().code_of(name)


class Ends(Ledger):
    """Sound: ends the episode at success."""

    def withdraw(self, code: str, amount: int) -> str:
        """Withdraws an amount from the account with a code."""
        return Step(super().withdraw(code, amount), done=bool(self.score()["done"]))


SOUND = ["Ledger", "Reads", "Verifies", "Credit", "Slow", "Ends"]
