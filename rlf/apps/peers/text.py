"""`env: {kind: text}`: Gymnasium-like text worlds, where a turn is the action and the user says what comes back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field

from rlf.apps.peers.games import OwnRandom, PlayedGame, find_game, package_of
from rlf.core.identity import hash_json, hash_path
from rlf.core.kinds import StrictModel
from rlf.core.text import describe
from rlf.environments.instances import OwnProcess, guard_process, make_class_world
from rlf.environments.kind import EnvSpec
from rlf.environments.processes import ClassProcesses
from rlf.environments.world import MakeWorld
from rlf.tools.kind import MAX_ABANDONED
from rlf.tools.python.threads import ThreadPool


class InvalidActions(StrictModel):
    """Exceptions that are about an action, which then ends the episode. Any other one is the game's own failure."""

    raises: tuple[str, ...] = Field(min_length=1)
    """Names of exceptions, or of one of their bases, e.g. `[ValueError]`."""
    reward: float = Field(0.0, allow_inf_nan=False)
    """Of the invalid action."""


class TextEnv(EnvSpec):
    """A text world: `reset` gives the first observation, `step(text)` the next one, a reward, and whether it is over.

    `make` names it by package and id: `textarena:GuessTheNumber-v0`, `reasoning_gym:leg_counting`, the id of any other
    package that has `make(id)`, or a class with `reset` and `step` in a package or a file. Those of skyrl-gym, with
    `init`, get the row's columns as `extras`. The whole answer of a turn
    without calls is the action. Scores are `score`, the sum of the rewards, and `turns`, the number of actions.
    A row's column `seed` is the world's seed.
    """

    kind: Literal["text"] = "text"
    make: str
    """`package:id`, or `path/file.py:name` relative to the file that says so."""
    args: Mapping[str, Any] = {}
    """Arguments of games, by name."""
    invalid: InvalidActions | None = None
    """For games that raise where an action is invalid: which exceptions, and what such an action earns. None: whatever
    a game raises is its own failure, and a policy whose words make it raise is not trained on them."""
    isolation: Literal["auto", "thread", "process"] = "auto"
    """`process`: each game in a process of its own; `auto`: there where the engine plays in processes of a job, which
    a game that ends its process would end, else on threads. On threads games play one after the other, as each has
    Python's shared random numbers for itself meanwhile, and a game that hangs holds up all of them."""

    @property
    def speaks(self) -> bool:
        """Always."""
        return True

    @property
    def score_names(self) -> tuple[str, ...] | None:
        """Always the same."""
        return ("score", "turns")

    def static_complaints(self) -> list[str]:
        """Finds a name of another form."""
        package, _, name = self.make.rpartition(":")
        if self.invalid is not None and {"Exception", "BaseException"} & {*self.invalid.raises}:
            return ["invalid.raises: got Exception, which every failure of the game is; name the invalid action's own"]
        if package and name:
            return []
        return [f"make: got {self.make!r}; expected `package:id`, e.g. `textarena:GuessTheNumber-v0`"]

    def complaints(self) -> list[str]:
        """Makes one game and resets it."""
        game = find_game(self.make, self.args)()
        try:
            with OwnRandom().held(0):
                game.reset(0)
        except Exception as fault:  # noqa: BLE001 - whatever the game raises says why it cannot be played
            return [f"{self.make} cannot be reset: {describe(fault)}"]
        finally:
            game.close()
        return []

    def source_hash(self) -> str:
        """The name, and the file, or the version of the package where it is installed as one."""
        package = package_of(self.make)
        installed = metadata.packages_distributions().get(package.partition(".")[0], ())
        invalid = [] if self.invalid is None else [self.invalid.model_dump(mode="json")]
        versions = [f"{name} {metadata.version(name)}" for name in installed]
        code = [hash_path(Path(package))] if package.endswith(".py") else versions
        return hash_json([self.make, dict(self.args), *invalid, code])

    def contained(self) -> Self:
        """Games in processes, unless the spec says where."""
        return self if self.isolation != "auto" else self.model_copy(update={"isolation": "process"})

    @asynccontextmanager
    async def open(self) -> AsyncIterator[MakeWorld]:
        """Imports the package; its games share a pool of threads, or the process that theirs are forked from."""
        args = {"make": self.make, "args": dict(self.args)} | (self.invalid.model_dump() if self.invalid else {})
        find_game(self.make, self.args)
        if self.isolation == "process":
            name = f"{PlayedGame.__module__}:{PlayedGame.__name__}"
            async with ClassProcesses(name, PlayedGame, args, imports=(package_of(self.make),)) as processes:
                yield partial(make_class_world, processes)
            return
        with guard_process(), closing(ThreadPool(self.limits.max_concurrency + MAX_ABANDONED)) as threads:
            yield partial(make_class_world, OwnProcess(PlayedGame, args, threads, ()))
