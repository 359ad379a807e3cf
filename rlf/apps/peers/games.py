"""Text worlds of other packages behind one interface: Gymnasium-like classes, TextArena, reasoning-gym, skyrl-gym.

`make: "package:id"` names one. TextArena draws from Python's own random numbers, which all its games share; each game
here has a state of these of its own, so that what one game draws does not depend on the others.
"""

from __future__ import annotations

import importlib
import inspect
import pickle
import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from rlf.core import RlfError
from rlf.core.callables import load_callable, load_module
from rlf.core.text import describe
from rlf.environments.world import Step
from rlf.types import Task

_LOCK = threading.Lock()
"""Held while a game has Python's shared random numbers for itself."""


class ActionResult(NamedTuple):
    """Result of one action."""

    said: str | None
    reward: float | None
    done: bool


class Game(ABC):
    """One game. Its methods block, and are called one after the other."""

    def begin(self, task: Task, seed: int) -> str | None:
        """Begins the game for a row; most take its seed alone."""
        return self.reset(seed)

    @abstractmethod
    def reset(self, seed: int) -> str | None:
        """Begins the game; returns the first observation."""

    @abstractmethod
    def step(self, action: str) -> ActionResult:
        """Plays one action."""

    def gold(self) -> str | None:
        """The one action that solves the task; None where it is not known."""
        return None

    def close(self) -> None:  # noqa: B027 - most games hold nothing
        """Releases what the game holds."""


class _GymGame(Game):
    """An object with `reset` and `step` as Gymnasium has them, of five values or of four."""

    def __init__(self, made: Any) -> None:
        self._made = made

    def reset(self, seed: int) -> str | None:
        # Old classes (Gym before 0.26) take none: they draw from Python's numbers, which are the game's own here.
        takes_seed = "seed" in inspect.signature(self._made.reset).parameters
        said = self._made.reset(seed=seed) if takes_seed else self._made.reset()
        return _check_observation(said[0] if isinstance(said, tuple) else said)

    def step(self, action: str) -> ActionResult:
        result = self._made.step(action)
        if not isinstance(result, tuple) or len(result) not in (3, 4, 5):
            raise TypeError(f"step gave {result!r}; expected (observation, reward, done) or as Gymnasium")
        # Of five: terminated, truncated, info. Of four or three: done, and info or nothing.
        said, reward, *ends = result
        return ActionResult(_check_observation(said), float(reward), any(ends[:2] if len(result) == 5 else ends[:1]))

    def close(self) -> None:
        if hasattr(self._made, "close"):
            self._made.close()


class _SkyrlGame(Game):
    """An environment of skyrl-gym, which is made for a row, whose columns are its `extras`, and begins by `init`."""

    def __init__(self, make: Callable[[Mapping[str, Any]], Any]) -> None:
        self._make = make
        self._made: Any = None

    def reset(self, seed: int) -> str | None:
        return None  # without a row there is nothing to make

    def begin(self, task: Task, seed: int) -> str | None:
        self._made = self._make(dict(task.columns))
        prompt = [{"role": message.role, "content": message.content} for message in task.messages]
        messages, _ = self._made.init([dict(message) for message in prompt])
        if messages[: len(prompt)] != prompt:
            raise ValueError("its init rewrites the prompt of the row; it may only add to it")
        return _join_messages(messages[len(prompt) :])

    def step(self, action: str) -> ActionResult:
        result = self._made.step(action)
        return ActionResult(_join_messages(result["observations"]), float(result["reward"]), bool(result["done"]))

    def close(self) -> None:
        if self._made is not None:
            self._made.close()


def _join_messages(messages: Sequence[Mapping[str, Any]]) -> str | None:
    return "\n\n".join(str(_check_observation(message["content"])) for message in messages) or None


class _TextArenaGame(Game):
    """A game of TextArena for one player. Observations are what is new, not its wrappers' whole history."""

    def __init__(self, made: Any) -> None:
        self._made = made
        self._game = made
        # Observations are asked of the game itself: a wrapper adds up the whole history, which the prompt has already.
        while hasattr(self._game, "env"):
            self._game = self._game.env

    def reset(self, seed: int) -> str | None:
        self._made.reset(num_players=1, seed=seed)
        return self._new_words()

    def step(self, action: str) -> ActionResult:
        done, _ = self._made.step(action=action)
        if not done:
            return ActionResult(self._new_words(), None, done=False)
        rewards, about = self._made.close()  # TextArena gives rewards at the end alone, by player
        return ActionResult(self._new_words() or about[0].get("reason"), float(rewards[0]), done=True)

    def _new_words(self) -> str | None:
        player, messages = self._game.get_observation()
        # A player's own action is among the messages; the policy has just written it.
        texts = [message for speaker, message, *_ in messages if speaker != player]
        return "\n".join(texts) or None


class _ReasoningGymGame(Game):
    """One question of a generator of reasoning-gym, and its verifier's verdict on the answer."""

    def __init__(self, create: Callable[[int], Any]) -> None:
        self._create = create

    def reset(self, seed: int) -> str | None:
        self._dataset = self._create(seed)
        self._entry = self._dataset[0]
        return str(self._entry["question"])

    def step(self, action: str) -> ActionResult:
        find: Callable[[str], str | None] = importlib.import_module("reasoning_gym.utils").extract_answer
        answer = find(action)
        # Its `<answer>` tag where the text has one, else the whole text: what its own verifiers are made for.
        score = self._dataset.score_answer(action.strip() if answer is None else answer, self._entry)
        return ActionResult(None, float(score), done=True)

    def gold(self) -> str | None:
        answer = self._entry.get("answer")
        return None if answer is None else str(answer)


def _check_observation(said: Any) -> str | None:
    if said is not None and not isinstance(said, str):
        raise TypeError(f"an observation is {type(said).__name__}; expected text")
    return said


def package_of(make: str) -> str:
    """The package or file that a game's name begins with."""
    return _split_name(make)[0]


def _split_name(make: str) -> tuple[str, str]:
    # An id may have colons itself, and so may the path of a file: the first ends a package, the last one a file.
    package, _, name = make.partition(":") if ".py:" not in make else make.rpartition(":")
    return package, name


def find_game(make: str, args: Mapping[str, Any]) -> Callable[[], Game]:
    """Finds the factory of games for a name `package:id`.

    The package has `make(id)`, or `create_dataset` as reasoning-gym; else `id` is a class or function of its own.

    Raises:
        RlfError: there is no such package or game.
    """
    package, name = _split_name(make)
    module = load_module(package)
    if package == "reasoning_gym":
        return lambda: _ReasoningGymGame(lambda seed: module.create_dataset(name, seed=seed, size=1, **args))
    if package == "textarena":
        return lambda: _TextArenaGame(_call_make(module.make, name, args))
    if package == "skyrl_gym":
        return lambda: _SkyrlGame(lambda row: _call_make(module.make, name, _skyrl_arguments(args, row)))
    # A name of the module's own wins: a package with `make` may also export the class that the spec names.
    if hasattr(module, "make") and not hasattr(module, name):
        return lambda: _GymGame(_call_make(module.make, name, args))
    made_by = load_callable(make)
    if hasattr(made_by, "init") and not hasattr(made_by, "reset"):
        return lambda: _SkyrlGame(lambda row: made_by(**_skyrl_arguments(args, row)))
    return lambda: _GymGame(made_by(**args))


def _skyrl_arguments(args: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """As skyrl's trainer gives them: the keys of a config are its attributes, too."""
    create: Callable[[Any], Any] = importlib.import_module("omegaconf").OmegaConf.create
    return {**args, "env_config": create(args.get("env_config", {})), "extras": row}


def _call_make(make: Callable[..., Any], name: str, args: Mapping[str, Any]) -> Any:
    try:
        return make(name, **args)
    except Exception as fault:
        raise RlfError(f"{name!r} cannot be made: {describe(fault)}") from fault


class OwnRandom:
    """Python's shared random numbers as one game sees them."""

    def __init__(self) -> None:
        self._state: Any = None

    @contextmanager
    def held(self, seed: int | None = None) -> Iterator[None]:
        """Puts the game's own numbers in place while it plays; with a seed they begin there."""
        # Held while it plays: games play on threads, and between two of its numbers no other game may draw one.
        with _LOCK:
            before = random.getstate()
            if seed is not None:
                random.seed(seed)
            elif self._state is not None:
                random.setstate(self._state)
            try:
                yield
            finally:
                self._state = random.getstate()
                random.setstate(before)  # others, such as rlf's own code, never see what a game drew


def pickle_values(*values: Any) -> bytes | None:
    """Values by pickle; None where one cannot be, or does not come back: wrappers that forward attributes recurse."""
    try:
        frozen = pickle.dumps(values)
        pickle.loads(frozen)  # pickling may succeed where reading does not, and then a branch would find out, too late
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError):
        return None
    return frozen


class PlayedGame:
    """One game as a class of a world: messages to it are its actions. Its random numbers are its own."""

    def __init__(self, make: str, args: Mapping[str, Any], raises: Collection[str] = (), reward: float = 0.0) -> None:
        """Takes the game's name and what it is made with.

        Args:
            raises: names of the exceptions that are about the action, which ends the episode then.
            reward: of such an action.
        """
        self._make = find_game(make, args)
        self._raises, self._reward = frozenset(raises), reward
        self._random = OwnRandom()
        self._game: Game | None = None
        self._rewards: list[float] = []
        self._num_actions = 0

    def reset(self, task: Task, seed: int) -> str | None:
        """Makes the game and begins it; a row's column `seed` overrides the world's."""
        seed = int(task.columns.get("seed", seed)) % 2**32  # NumPy, which many games draw from, takes 32 bits
        with self._random.held(seed):
            self._game = self._make()
            return self._game.begin(task, seed)

    def reply(self, text: str) -> Step:
        """Plays one action."""
        with self._random.held():
            played = self._play_action(text)
        self._num_actions += 1
        if played.reward is not None:
            self._rewards.append(played.reward)
        return Step(played.said, played.reward, played.done)

    def _play_action(self, text: str) -> ActionResult:
        try:
            return self._open_game.step(text)
        except Exception as fault:
            # By name: the classes are of packages that this one does not import.
            if self._raises.isdisjoint(known.__name__ for known in type(fault).__mro__):
                raise
            return ActionResult(f"invalid action: {describe(fault)}", self._reward, done=True)

    def score(self) -> dict[str, float]:
        """The sum of the rewards, where there were any, and the number of actions."""
        scores = {"score": sum(self._rewards)} if self._rewards else {}
        return scores | {"turns": float(self._num_actions)}

    def gold(self) -> Sequence[str] | None:
        """The one action that solves the task, where it is known."""
        action = self._open_game.gold()
        return None if action is None else (action,)

    def snapshot(self) -> bytes | None:
        """The game as pickle; None if it cannot be pickled."""
        return pickle_values(self._game, self._random, self._rewards, self._num_actions)

    def restore(self, snapshot: bytes) -> None:
        """Puts a snapshot in place."""
        self._game, self._random, self._rewards, self._num_actions = pickle.loads(snapshot)

    def close(self) -> None:
        """Closes the game, where there is one."""
        if self._game is not None:
            with self._random.held():
                self._game.close()

    @property
    def _open_game(self) -> Game:
        assert self._game is not None, "a game before its reset"
        return self._game
