"""`env: {kind: text}`: Gymnasium-like text worlds, where a turn is the action and the user says what comes back."""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import metadata
from typing import Any, Literal, TypeVar

from rlf.core.hashing import hash_json
from rlf.environments.games import Game, OwnRandom, find_game, freeze
from rlf.environments.kind import EnvSpec, WorldMaker
from rlf.environments.world import Step, World
from rlf.tools.failure import describe
from rlf.tools.limits import MAX_ABANDONED
from rlf.tools.python.threads import ThreadPool
from rlf.types import Task

T = TypeVar("T")


class TextEnv(EnvSpec):
    """A text world: `reset` gives the first observation, `step(text)` the next one, a reward, and whether it is over.

    `make` names it by package and id: `textarena:GuessTheNumber-v0`, `reasoning_gym:leg_counting`, the id of any other
    package that has `make(id)`, or a class with `reset` and `step` in a package or a file. The whole answer of a turn
    without calls is the action. Scores are `score`, the sum of the rewards, and `turns`, the number of actions.
    A row's column `seed` is the world's seed.
    """

    kind: Literal["text"] = "text"
    make: str
    """`package:id`, or `path/file.py:name` relative to the file that says so."""
    args: Mapping[str, Any] = {}
    """What games are made with, by name."""

    @property
    def speaks(self) -> bool:
        """Always."""
        return True

    @property
    def score_names(self) -> tuple[str, ...] | None:
        """Always the same."""
        return ("score", "turns")

    def static_complaints(self) -> list[str]:
        """A name of another form."""
        package, _, name = self.make.rpartition(":")
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
        """The name, and the version of the package where it is installed as one."""
        package = self.make.partition(":")[0].partition(".")[0]
        installed = metadata.packages_distributions().get(package, ())
        return hash_json([self.make, dict(self.args), [f"{name} {metadata.version(name)}" for name in installed]])

    @asynccontextmanager
    async def open(self) -> AsyncIterator[WorldMaker]:
        """Imports the package; its games share a pool of threads."""
        threads = ThreadPool(self.limits.max_concurrency + MAX_ABANDONED)
        try:
            yield _Maker(find_game(self.make, self.args), threads)
        finally:
            threads.close()


class _Maker:
    """Makes worlds of one game."""

    def __init__(self, make: Callable[[], Game], threads: ThreadPool) -> None:
        self._make, self._threads = make, threads

    async def make(self) -> World:
        """A world whose game is made at its reset, with random numbers of its own."""
        return _TextWorld(self._make, self._threads)


class _TextWorld(World):
    """One game."""

    def __init__(self, make: Callable[[], Game], threads: ThreadPool) -> None:
        self._make, self._threads, self._random = make, threads, OwnRandom()
        self._game: Game | None = None
        self._rewards: list[float] = []
        self._num_actions = 0

    async def reset(self, task: Task, seed: int) -> str | None:
        seed = int(task.columns.get("seed", seed)) % 2**32

        def begin() -> str | None:
            self._game = self._make()
            return self._game.reset(seed)

        return await self._run(begin, seed)

    async def reply(self, text: str) -> Step:
        played = await self._run(lambda: self._played.step(text))
        self._num_actions += 1
        if played.reward is not None:
            self._rewards.append(played.reward)
        return Step(played.said, played.reward, played.done)

    async def score(self) -> Mapping[str, float]:
        return {"score": sum(self._rewards), "turns": float(self._num_actions)}

    async def gold(self) -> Sequence[str] | None:
        action = self._played.gold()
        return None if action is None else (action,)

    async def snapshot(self) -> bytes | None:
        return freeze(self._game, self._random, self._rewards, self._num_actions)

    async def restore(self, snapshot: bytes) -> None:
        self._game, self._random, self._rewards, self._num_actions = pickle.loads(snapshot)

    async def close(self) -> None:
        if self._game is not None:
            await self._run(self._game.close)

    @property
    def _played(self) -> Game:
        assert self._game is not None, "a game before its reset"
        return self._game

    async def _run(self, work: Callable[[], T], seed: int | None = None) -> T:
        def held() -> T:
            with self._random.held(seed):
                return work()

        return await self._threads.run(held)
