"""Worlds with one planted fault each, and sound ones: what `rlf env prove` has to find, and has to pass."""

import asyncio
import base64
import datetime
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import ClassVar, Literal

from rlf.environments.world import Step

ITEMS = {"lamp": "K7Q2", "rope": "B3X9", "drum": "M5T4", "kite": "W8Z6"}
"""The things of a depot and their codes; rows have `item` and `answer`, the code."""


class Depot:
    """A depot from which one thing is fetched by its code."""

    def reset(self, item, answer, seed):
        self.item, self.code, self.taken, self.calls = item, answer, [], 0
        return f"Fetch the {item}."

    def find(self, item: str) -> str:
        """Finds the code of a thing."""
        self.calls += 1
        return f"Its code is {ITEMS[item]}." if item in ITEMS else "There is no such thing."

    def take(self, code: str) -> str:
        """Takes the thing with a code."""
        if code not in ITEMS.values():
            raise ValueError(f"there is no code {code}")
        self.taken.append(code)
        return "Taken."

    def score(self):
        return {"done": float(self.taken == [self.code])}

    def gold(self):
        find = {"name": "find", "arguments": {"item": self.item}}
        return [find, {"name": "take", "arguments": {"code": self.code}}]

    def state(self):
        return {"taken": list(self.taken)}


# Kept from one episode to the next, or shared by two at once.


class KeepsTaken(Depot):
    ever: ClassVar = []

    def reset(self, item, answer, seed):
        said = super().reset(item, answer, seed)
        self.taken = self.ever
        return said


class KeepsCount(Depot):
    count: ClassVar = itertools.count(1)

    def reset(self, item, answer, seed):
        return f"{super().reset(item, answer, seed)} You are visitor {next(self.count)}."


class KeepsOneThing(Depot):
    gone: ClassVar = set()

    def take(self, code: str) -> str:
        """Takes the thing with a code."""
        if code in self.gone:
            raise ValueError("it is gone")
        self.gone.add(code)
        return super().take(code)


class KeepsAfterFind(Depot):
    seen: ClassVar = set()

    def reset(self, item, answer, seed):
        return super().reset(item, answer, seed) + (" You know this place." if self.seen else "")

    def find(self, item: str) -> str:
        """Finds the code of a thing."""
        self.seen.add(item)
        return super().find(item)


class KeepsAFile(Depot):
    path = Path(tempfile.gettempdir(), f"depot-{os.getpid()}")

    def reset(self, item, answer, seed):
        super().reset(item, answer, seed)
        return "Someone was here." if self.path.exists() else "Fetch."

    def take(self, code: str) -> str:
        """Takes the thing with a code."""
        self.path.touch()
        return super().take(code)


class SharesItem(Depot):
    now: ClassVar = {}

    def reset(self, item, answer, seed):
        said = super().reset(item, answer, seed)
        self.now["code"] = answer
        return said

    def score(self):
        return {"done": float(self.taken == [self.now["code"]])}


class SharesList(Depot):
    def __init__(self, taken=[]):  # noqa: B006 - the fault
        self.shared = taken

    def reset(self, item, answer, seed):
        self.shared.clear()
        said = super().reset(item, answer, seed)
        self.taken = self.shared
        return said


class SharesEnvironment(Depot):
    def reset(self, item, answer, seed):
        os.environ["DEPOT_CODE"] = answer
        return super().reset(item, answer, seed)

    def score(self):
        return {"done": float(self.taken == [os.environ["DEPOT_CODE"]])}


class SharesManyOnly(Depot):
    """Breaks only where more than four are open at once."""

    open_now: ClassVar = []

    def reset(self, item, answer, seed):
        self.open_now.append(self)
        return super().reset(item, answer, seed)

    def find(self, item: str) -> str:
        """Finds the code of a thing."""
        return "The desk is busy." if len(self.open_now) > 4 else super().find(item)

    def close(self):
        if self in self.open_now:
            self.open_now.remove(self)


class Races(Depot):
    """Writes what it is about to take into a place of all instances, and reads it after a moment."""

    desk: ClassVar = {}

    def take(self, code: str) -> str:
        """Takes the thing with a code."""
        self.desk["code"] = code
        time.sleep(0.01)
        return super().take(self.desk["code"])


class SharesDirectory(Depot):
    def reset(self, item, answer, seed):
        self.file = Path(tempfile.gettempdir(), "depot.txt")
        self.file.write_text(answer)
        return super().reset(item, answer, seed)

    def score(self):
        return {"done": float(self.taken == [self.file.read_text()])}


# Not the same twice.


class RandomWords(Depot):
    def find(self, item: str) -> str:
        """Finds the code of a thing."""
        return f"{super().find(item)} {random.SystemRandom().random()}"


class RandomScore(Depot):
    def score(self):
        return {"done": super().score()["done"] * random.SystemRandom().uniform(0.97, 1.0)}


class NamesItself(Depot):
    def find(self, item: str) -> str:
        """Finds the code of a thing."""
        return f"{super().find(item)} Receipt {uuid.uuid4()}."


class AddressInWords(Depot):
    def reset(self, item, answer, seed):
        return f"{super().reset(item, answer, seed)} {object.__repr__(self)}"


class ClockInWords(Depot):
    def find(self, item: str) -> str:
        """Finds the code of a thing."""
        return f"{super().find(item)} It is {datetime.date.today()}."


class ClockInScore(Depot):
    def score(self):
        return {"done": super().score()["done"] if datetime.datetime.now().year < 2027 else 0.0}


class ClockDecides(Depot):
    def reset(self, item, answer, seed):
        said = super().reset(item, answer, seed)
        return said + (" The depot is open." if time.time() < 1_800_000_000 else " The depot is closed.")


class ClockInState(Depot):
    def state(self):
        return {"taken": self.taken, "day": time.strftime("%Y-%m-%d")}


class HashInWords(Depot):
    def find(self, item: str) -> str:
        """Finds the code of a thing."""
        return f"{super().find(item)} Others: {', '.join({*ITEMS, 'mug', 'pen', 'saw'})}."


class HashDecides(Depot):
    def reset(self, item, answer, seed):
        return f"{super().reset(item, answer, seed)} Shelf {hash(item) % 1000}."


class HashInScore(Depot):
    def score(self):
        return {"done": super().score()["done"] * (1.0 if min({"a1", "b2", "c3"}, key=hash) == "a1" else 0.5)}


class ProcessInWords(Depot):
    def reset(self, item, answer, seed):
        return f"{super().reset(item, answer, seed)} Desk {os.getppid()}."


# Answers that lie about.


class LeaksInWords(Depot):
    def reset(self, item, answer, seed):
        return f"{super().reset(item, answer, seed)} (debug: {answer})"


class LeaksReversed(Depot):
    def reset(self, item, answer, seed):
        return f"{super().reset(item, answer, seed)} Seal {answer[::-1]}."


class LeaksSpelled(Depot):
    def reset(self, item, answer, seed):
        return f"{super().reset(item, answer, seed)} Seal {'-'.join(answer).lower()}."


class LeaksInDocs(Depot):
    def take(self, code: str) -> str:
        """Takes the thing with a code: K7Q2, B3X9 or M5T4."""
        return super().take(code)


class LeaksInErrors(Depot):
    def take(self, code: str) -> str:
        """Takes the thing with a code."""
        if code != self.code:
            raise ValueError(f"expected {self.code}")
        return super().take(code)


class LeaksCoded(Depot):
    def reset(self, item, answer, seed):
        return f"{super().reset(item, answer, seed)} Token {base64.b64encode(answer.encode()).decode()}."


class LeaksInSchema(Depot):
    def take(self, code: Literal["K7Q2", "B3X9", "M5T4"]) -> str:
        """Takes the thing with a code."""
        return super().take(code)


# Rewards for something else.


class PaysIdle(Depot):
    def score(self):
        return {"done": float(self.taken in ([], [self.code]))}


class PaysSome(Depot):
    def score(self):
        return {"done": 1.0 if self.taken == [self.code] else 0.3}


class PaysCalls(Depot):
    def score(self):
        return {"done": max(super().score()["done"], min(1.0, self.calls / 4))}


class PaysTwice(Depot):
    """Pays a repeated call again."""

    def find(self, item: str) -> str:
        """Finds the code of a thing."""
        self.paid = min(1.0, getattr(self, "paid", 0.0) + 0.2)
        return super().find(item)

    def score(self):
        return {"done": max(super().score()["done"], getattr(self, "paid", 0.0))}


class PaysEcho(Depot):
    def take(self, code: str) -> str:
        """Takes the thing with a code."""
        self.taken = [self.code] if self.code in code or self.item in code else self.taken
        return "Noted."


class PaysClaims(Depot):
    def take(self, code: str) -> str:
        """Takes the thing with a code."""
        self.taken = [self.code] if "1.0" in code or code == self.code else self.taken
        return "Noted."


class PaysEmptyWords(Depot):
    def reply(self, text):
        self.taken = [self.code] if not text.strip() else self.taken
        return "Yes?"


class PaysStepsAgain(Depot):
    """Rewards of steps, over and over for the same call."""

    def find(self, item: str) -> str:
        """Finds the code of a thing."""
        self.sum = getattr(self, "sum", 0.0) + 0.5
        return Step(super().find(item), reward=0.5)

    def score(self):
        return {"done": min(1.0, super().score()["done"] + getattr(self, "sum", 0.0) * (len(self.taken) != 1))}


# Rewards out of their range.


class PaysTooMuch(Depot):
    def score(self):
        return {"done": 2 * super().score()["done"]}


class PaysLess(Depot):
    def score(self):
        return {"done": super().score()["done"] - 1}


class PaysNaN(Depot):
    def score(self):
        return {"done": 1.0 if self.taken == [self.code] else float("nan")}


class PaysOtherName(Depot):
    def score(self):
        return {"finished": super().score()["done"]}


class PaysText(Depot):
    def score(self):
        return {"done": "yes" if self.taken else "no"}


class PaysInfinity(Depot):
    def find(self, item: str) -> str:
        """Finds the code of a thing."""
        return Step(super().find(item), reward=float("inf"))


# Solutions that do not solve.


class GoldWrong(Depot):
    def gold(self):
        return [{"name": "take", "arguments": {"code": "Q7K2"}}]


class GoldHalf(Depot):
    def score(self):
        return {"done": 0.5 * super().score()["done"]}


class GoldOtherTool(Depot):
    def gold(self):
        return [{"name": "grab", "arguments": {"code": self.code}}]


class GoldRaises(Depot):
    def gold(self):
        return [{"name": "take", "arguments": {"code": self.secret}}]


class GoldTooLong(Depot):
    """Needs more turns than an episode has."""

    def gold(self):
        return [{"name": "find", "arguments": {"item": self.item}}] * 40 + super().gold()[1:]


class GoldEndsEarly(Depot):
    def find(self, item: str) -> str:
        """Finds the code of a thing."""
        return Step(super().find(item), done=True)


# Broken, late, gone.


class BreaksReset(Depot):
    def reset(self, item, answer, seed):
        raise RuntimeError("no depot")


class BreaksSomeResets(Depot):
    def reset(self, item, answer, seed):
        return super().reset(item, answer, seed) if item != "drum" else 1 // 0


class BreaksStep(Depot):
    def find(self, item: str) -> str:
        """Finds the code of a thing."""
        if item not in ITEMS:
            raise RuntimeError("no such thing")
        return super().find(item)


class BreaksReply(Depot):
    def reply(self, text):
        return text[0].upper()[5].lower()


class BreaksClose(Depot):
    def close(self):
        raise OSError("the door is stuck")


class BreaksCloseUnopened(Depot):
    def close(self):
        self.taken.clear()


class BreaksCloseUsed(Depot):
    def close(self):
        if getattr(self, "taken", None):
            raise OSError("the door is stuck")


class BreaksScore(Depot):
    def score(self):
        return {"done": 1.0 / len(self.taken)}


class HangsReset(Depot):
    def reset(self, item, answer, seed):
        threading.Event().wait(30)


class HangsStep(Depot):
    def take(self, code: str) -> str:
        """Takes the thing with a code."""
        threading.Event().wait(30)
        return "Taken."


class HangsClose(Depot):
    def close(self):
        threading.Event().wait(30)


class HangsCloseUsed(Depot):
    def close(self):
        if getattr(self, "taken", None):
            threading.Event().wait(30)


class HangsScore(Depot):
    def score(self):
        threading.Event().wait(30)


class HangsForSome(Depot):
    def find(self, item: str) -> str:
        """Finds the code of a thing."""
        if item not in ITEMS:
            threading.Event().wait(30)
        return super().find(item)


class FloodsResult(Depot):
    def find(self, item: str) -> str:
        """Finds the code of a thing."""
        return super().find(item) + " Nothing else." * 100_000


class FloodsWords(Depot):
    def reset(self, item, answer, seed):
        return super().reset(item, answer, seed) + " Mind the step." * 100_000


class ExitsStep(Depot):
    def find(self, item: str) -> str:
        """Finds the code of a thing."""
        os._exit(0)


class ExitsScore(Depot):
    def score(self):
        os._exit(0)


class ExitsReset(Depot):
    def reset(self, item, answer, seed):
        sys.stdout.write('{"rlf": 1}')
        os._exit(3)


class KilledReset(Depot):
    def reset(self, item, answer, seed):
        os.kill(os.getpid(), signal.SIGKILL)


class KilledScore(Depot):
    def score(self):
        os.kill(os.getpid(), signal.SIGTERM)
        return super().score()


class EatsMemory(Depot):
    def find(self, item: str) -> str:
        """Finds the code of a thing."""
        return f"{super().find(item)}{len(bytearray(1 << 44))}"


# Copies that lie.


class Copied(Depot):
    """Sound, with snapshots."""

    def snapshot(self):
        return {"item": self.item, "code": self.code, "taken": list(self.taken), "calls": self.calls}

    def restore(self, snapshot):
        vars(self).update(snapshot, taken=list(snapshot["taken"]))


class CopyForgets(Copied):
    def restore(self, snapshot):
        super().restore(snapshot)
        self.taken = []


class CopyShares(Copied):
    def snapshot(self):
        return vars(self)

    def restore(self, snapshot):
        vars(self).update(snapshot)


class CopyBreaks(Copied):
    def restore(self, snapshot):
        self.item = snapshot["thing"]


class CopySteals(Copied):
    """Taking a copy changes the world."""

    def snapshot(self):
        kept, self.taken = super().snapshot(), ["?"]
        return kept


# Tools that are not what they say.


class ToolDead(Depot):
    def weigh(self, item: str) -> str:
        """Weighs a thing."""
        raise ValueError("the scales are broken")


class ToolDeadSays(Depot):
    def weigh(self, item: str) -> str:
        """Weighs a thing."""
        return "Error: not connected"


class ToolMisreads(Depot):
    def weigh(self, item: str, times: int) -> str:
        """Weighs a thing some times."""
        return "Weight: " + times


class ToolLacks(Depot):
    def weigh(self, item: str, unit: Literal["kg", "lb", "stone"] = "kg") -> str:
        """Weighs a thing in a unit."""
        return {"kg": "3 kilograms", "lb": "6 pounds"}[unit]


class ToolWantsMore(Depot):
    def weigh(self, item: str = "") -> str:
        """Weighs a thing."""
        if not hasattr(self, "scales"):
            raise LookupError("no scales")
        return "3 kg"


class GraderTool(Depot):
    def verify(self) -> str:
        """Tells whether all is done."""
        return str(self.score()["done"])


class GraderReward(Depot):
    def get_reward_now(self) -> float:
        """The reward so far."""
        return self.score()["done"]


class GraderByAnotherName(Depot):
    def progress(self) -> str:
        """How far you are."""
        return str(self.score()["done"])


class GraderSets(Depot):
    def set_score(self, value: float) -> str:
        """Sets the score."""
        self.value = value
        return "Set."

    def score(self):
        return {"done": max(super().score()["done"], min(1.0, getattr(self, "value", 0.0)))}


# Left behind.


class LeavesThreads(Depot):
    def reset(self, item, answer, seed):
        threading.Thread(target=threading.Event().wait, args=(60,), daemon=True).start()
        return super().reset(item, answer, seed)


class LeavesChildren(Depot):
    def reset(self, item, answer, seed):
        self.child = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL)
        return super().reset(item, answer, seed)


class LeavesDescriptors(Depot):
    held: ClassVar = []

    def reset(self, item, answer, seed):
        self.held.append(os.open("/dev/null", os.O_RDONLY))
        return super().reset(item, answer, seed)


class LeavesFiles(Depot):
    def reset(self, item, answer, seed):
        self.folder = tempfile.mkdtemp(prefix="depot-")
        return super().reset(item, answer, seed)


class LeavesMemory(Depot):
    held: ClassVar = []

    def reset(self, item, answer, seed):
        self.held.append(bytearray(b"x" * 4_000_000))
        return super().reset(item, answer, seed)


class LeavesTasks(Depot):
    async def find(self, item: str) -> str:
        """Finds the code of a thing."""
        self.task = asyncio.create_task(asyncio.sleep(60))
        return super().find(item)


FAULTS: dict[str, str] = {
    **dict.fromkeys(["KeepsTaken", "KeepsCount", "KeepsOneThing", "KeepsAfterFind", "KeepsAFile"], "reset|determinism"),
    **dict.fromkeys(["SharesItem", "SharesList", "SharesEnvironment", "SharesManyOnly"], "isolation"),
    **dict.fromkeys(["Races", "SharesDirectory"], "isolation"),
    **dict.fromkeys(["RandomWords", "RandomScore", "NamesItself"], "determinism"),
    "AddressInWords": "determinism|reset",
    **dict.fromkeys(["ClockInWords", "ClockInScore", "ClockDecides", "ClockInState"], "another process"),
    **dict.fromkeys(["HashInWords", "HashDecides", "ProcessInWords"], "another process"),
    "HashInScore": "another process|gold",
    **dict.fromkeys(["LeaksInWords", "LeaksReversed", "LeaksSpelled", "LeaksInDocs", "LeaksInErrors"], "hidden answer"),
    **dict.fromkeys(["LeaksCoded", "LeaksInSchema"], "hidden answer"),
    **dict.fromkeys(["PaysIdle", "PaysSome"], "no-op"),
    **dict.fromkeys(["PaysCalls", "PaysTwice", "PaysStepsAgain"], "spam|repeat"),
    "PaysEcho": "echo",
    "PaysClaims": "injection",
    "PaysEmptyWords": "empty answers",
    **dict.fromkeys(["PaysTooMuch", "PaysLess", "PaysNaN", "PaysText", "PaysInfinity"], "range"),
    "PaysOtherName": "refused",
    **dict.fromkeys(["GoldWrong", "GoldHalf", "GoldOtherTool", "GoldRaises", "GoldTooLong", "GoldEndsEarly"], "gold"),
    **dict.fromkeys(["BreaksReset", "BreaksSomeResets"], "reset"),
    **dict.fromkeys(["BreaksStep", "BreaksReply"], "steps"),
    **dict.fromkeys(["BreaksClose", "BreaksCloseUnopened"], "close"),
    "BreaksScore": "range",
    **dict.fromkeys(["HangsReset", "HangsStep", "HangsScore", "HangsForSome", "HangsCloseUsed"], "deadlines"),
    "HangsClose": "close|deadlines",
    **dict.fromkeys(["FloodsResult", "FloodsWords"], "outputs"),
    **dict.fromkeys(["KilledReset", "KilledScore"], "contained"),
    "ExitsStep": "steps",
    "ExitsScore": "range",
    "ExitsReset": "reset",
    "EatsMemory": "steps",
    **dict.fromkeys(["CopyForgets", "CopyShares", "CopyBreaks", "CopySteals"], "snapshot"),
    **dict.fromkeys(["ToolDead", "ToolDeadSays", "ToolMisreads", "ToolLacks", "ToolWantsMore"], "tools"),
    **dict.fromkeys(["GraderTool", "GraderReward", "GraderByAnotherName", "GraderSets"], "grader"),
    **dict.fromkeys(["LeavesThreads", "LeavesChildren", "LeavesDescriptors", "LeavesFiles"], "leftovers"),
    **dict.fromkeys(["LeavesMemory", "LeavesTasks", "BreaksCloseUsed"], "leftovers"),
}
"""By class the point that has to name it."""


# Sound, each in a way that a careless check would take for a fault.


class Seeded(Depot):
    """Draws from its seed."""

    def reset(self, item, answer, seed):
        return f"{super().reset(item, answer, seed)} Shelf {random.Random(seed).randint(1, 99)}."


class Prints(Depot):
    def find(self, item: str) -> str:
        """Finds the code of a thing."""
        print("looking for", item)
        return super().find(item)


class Refuses(Depot):
    """Refuses what it does not know, with words that name it."""

    def find(self, item: str) -> str:
        """Finds the code of a thing."""
        if item not in ITEMS:
            raise KeyError(item)
        return super().find(item)


class Needs(Depot):
    """Has a tool that takes what another one returned."""

    def weigh(self, code: str) -> str:
        """Weighs the thing with a code."""
        if code not in ITEMS.values():
            raise ValueError(f"no thing has the code {code}")
        return "3 kg"


class Caches(Depot):
    known: ClassVar = {}

    def find(self, item: str) -> str:
        """Finds the code of a thing."""
        return self.known.setdefault(item, super().find(item))


class Cleans(Depot):
    """Holds a file, a thread, a child and memory, and gives all of them back."""

    def reset(self, item, answer, seed):
        self.file, self.stop = tempfile.TemporaryFile(), threading.Event()  # noqa: SIM115 - closed in `close`
        self.thread = threading.Thread(target=self.stop.wait)
        self.thread.start()
        self.child = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL)
        self.block = bytearray(4_000_000)
        return super().reset(item, answer, seed)

    def close(self):
        if hasattr(self, "file"):
            self.file.close()
            self.stop.set()
            self.thread.join()
            self.child.kill()
            self.child.wait()


class Costs(Depot):
    """Takes something for each call, and pays for the end."""

    def score(self):
        return {"done": 1.0 if self.taken == [self.code] else -1.0 if self.taken else 0.0}


class Speaks(Depot):
    def reply(self, text):
        return "I hear you."


class Partly(Depot):
    """Pays a part for what is nearly right."""

    def score(self):
        return {"done": 1.0 if self.taken == [self.code] else 0.5 if self.code in self.taken else 0.0}


class Sorted(Depot):
    def find(self, item: str) -> str:
        """Finds the code of a thing."""
        return f"{super().find(item)} Others: {', '.join(sorted({*ITEMS, 'mug', 'pen'}))}."


class Awaits(Depot):
    async def find(self, item: str) -> str:
        """Finds the code of a thing."""
        await asyncio.sleep(0)
        return super().find(item)


class Measures(Depot):
    """Measures how long it took, and keeps it for itself."""

    def find(self, item: str) -> str:
        """Finds the code of a thing."""
        began = time.time()
        said = super().find(item)
        self.took = time.time() - began
        return said


class Silent(Depot):
    """Knows no solution, and shows no state."""

    gold = state = None


class Choices(Depot):
    """Takes what its schema lists, some of it only at times."""

    def go(self, way: Literal["north", "south"]) -> str:
        """Goes a way."""
        if way == "south":
            raise ValueError("there is a wall")
        return "You are in the yard."


class Long(Depot):
    """A long list, which is shown in part."""

    def names(self, start: int = 0) -> str:
        """Lists all that there is."""
        return "\n".join(f"thing {number}" for number in range(start, 900))


SOUND = ["Depot", "Copied", "Seeded", "Prints", "Refuses", "Needs", "Caches", "Cleans", "Costs", "Speaks", "Partly"]
SOUND += ["Sorted", "Awaits", "Measures", "Silent", "Choices", "Long"]


def right_code(trajectory, answer):
    """A reward of the spec's own: whether the right thing was taken."""
    return float(any(call.call.arguments.get("code") == answer for call in trajectory.calls))
