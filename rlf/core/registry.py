"""Kinds by name: a folder of files, listed without importing them, plus installed entry points.

A kind is one file, or one folder, whose name is its YAML `kind:`; it holds exactly one public class derived from the
registry's base. Adding a file enrols it everywhere: in the spec, the docs and the conformance tests.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from rlf.core.errors import RlfError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


class UnknownKind(RlfError):
    """No kind of that name; the message names the nearest one and all known ones."""

    def __init__(self, noun: str, name: str, known: list[str], here: str | None = None, lacks: str = "") -> None:
        close = [] if lacks else close_names(name, known)
        here, *beside = (here or "").split(" ", 1)
        self.meant = here or (close[0] if close else None)
        """The kind that the name may stand for; None where no known one is near."""
        meant = f", which is {' '.join([repr(here), *beside])} here" if here else lacks or nearest(name, known)
        super().__init__(f"unknown {noun} {name!r}{meant} (known: {', '.join(known)})")


def nearest(name: str, known: list[str]) -> str:
    """`; did you mean 'x'?` for the closest known name, or nothing when none is close."""
    close = close_names(name, known)
    return f"; did you mean {close[0]!r}?" if close else ""


def close_names(name: str, known: list[str]) -> list[str]:
    """The known names nearest to a text, the closest first; at most three."""
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    return near or [each for each in known if each.lower() == name.lower()]


class Registry(Generic[T]):
    """The kinds of one noun: files of `package`, and entry points of the group `package`."""

    _by_base: ClassVar[dict[type, Registry[Any]]] = {}

    def __init__(
        self, noun: str, package: str, base: type[T], elsewhere: str | None = None, *, folders: bool = False
    ) -> None:
        """Args:
        elsewhere: topic of `rlf.core.mistakes` that says what others call some of the kinds.
        folders: whether a kind is a folder of the package, whose `__init__.py` holds the class, and not a file.
        """
        self.noun = noun
        self.package = package
        self.base = base
        self._elsewhere = elsewhere
        self._folders = folders
        self._loaded: dict[str, type[T]] = {}
        self._by_base[base] = self

    @classmethod
    def of(cls, base: type) -> Registry[Any]:
        """The registry of the classes that derive from a base."""
        return cls._by_base[base]

    def names(self) -> list[str]:
        """All kinds, sorted; imports nothing."""
        return kind_names(self.package, folders=self._folders)

    def get(self, name: str) -> type[T]:
        """The class of a kind, imported now. Raises UnknownKind."""
        if name not in self._loaded:
            self._loaded[name] = self._load_kind(name)
        return self._loaded[name]

    def name_of(self, kind: type) -> str:
        """The name of a kind, or of the one that a class derives from: its file's, or that of its entry point."""
        for known in kind.__mro__:
            file = known.__module__.rpartition(".")[2]
            names = [*self._loaded, *({file} & set(self.names())), *self.names()]
            for name in names:
                if self.get(name) is known:
                    return name
        raise LookupError(f"{kind} is no {self.noun}")

    def _load_kind(self, name: str) -> type[T]:
        if name in shipped_names(self.package, folders=self._folders):
            place = f"{self.package}.{name}"
            loaded = importlib.import_module(place)
        elif point := _entry_points()[self.package].get(name):
            place, loaded = point.value, point.load()
        else:
            from rlf.core.mistakes import known

            here = known(self._elsewhere).get(name.lower()) if self._elsewhere else None
            raise UnknownKind(self.noun, name, self.names(), here, lacking(self.package, name))
        if inspect.ismodule(loaded):
            found = [value for value in vars(loaded).values() if self._is_kind(value, loaded.__name__)]
            loaded = found[0] if len(found) == 1 else loaded
        if not (inspect.isclass(loaded) and issubclass(loaded, self.base)):
            raise RlfError(f"entry point {place!r} for {self.noun} {name!r} is no {self.base.__name__}")
        return loaded

    def _is_kind(self, value: object, module: str) -> bool:
        if not inspect.isclass(value) or value.__module__ != module or value.__name__.startswith("_"):
            return False
        return issubclass(value, self.base)


def kind_names(package: str, *, folders: bool = False) -> list[str]:
    """The kinds of a registry's package and those that installed packages add to it, sorted; imports nothing."""
    return sorted(set(shipped_names(package, folders=folders)) | set(_entry_points()[package]))


def are_own(package: str) -> bool:
    """Whether rlf brings all kinds of a registry's package, and no other package any."""
    return set(kind_names(package)) <= {*shipped_names(package), *(name for of, name in _OF_APPS if of == package)}


@cache
def shipped_names(package: str, *, folders: bool = False) -> list[str]:
    """Those of `kind_names` whose files stand in the package."""
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.submodule_search_locations, f"{package} is no package"
    place = Path(next(iter(spec.submodule_search_locations)))
    found = (path.parent for path in place.glob("*/__init__.py")) if folders else place.glob("*.py")
    return sorted(path.stem for path in found if not path.stem.startswith("_"))


_BY_FILE = {
    ("rlf.algo.advantages", "estimators"): (
        "flash_reinforce gdpo gigpo gpg grpo_passk maxrl mt_grpo opo pass_at_k remax tree_grpo turn_returns"
    ),
    ("rlf.chat.formats", "families"): (
        "code_fence deepseek deepseek_fenced deepseek_v32 glm4 gpt_oss granite kimi_k2 kimi_k3 llama3 minicpm5 "
        "minimax_m2 mistral olmo3 pythonic qwen3_coder react search_r1"
    ),
    ("rlf.environments.kinds", "peers"): "ftrl rl_factory text verifiers",
    ("rlf.environments.kinds", "servers"): "openenv",
    ("rlf.rewards.rules", "rules"): (
        "choice collection efficiency expression json_schema language length math no_repeat overlong regex "
        "token_f1 useful_observation"
    ),
    ("rlf.trackers.kinds", "trackers"): "jsonl mlflow otel tensorboard wandb",
}
"""Kinds of an app whose files have their names, by package and app."""
_OF_APPS = {
    (package, name): f"rlf.apps.{app}.{name}" for (package, app), names in _BY_FILE.items() for name in names.split()
} | {
    ("rlf.engines", "openrlhf"): "rlf.apps.openrlhf:OpenRlhf",
    ("rlf.environments.kinds", "mcp"): "rlf.apps.servers.world:McpEnv",
    ("rlf.environments.kinds", "model"): "rlf.apps.models.user:ModelEnv",
    ("rlf.environments.kinds", "rows"): "rlf.apps.bench.rows:RowsEnv",
    ("rlf.environments.kinds", "several"): "rlf.apps.worlds.several:SeveralEnv",
    ("rlf.environments.kinds", "sql"): "rlf.apps.sql.world:SqlEnv",
    ("rlf.rewards.kinds", "judge"): "rlf.apps.judges.judge:JudgeTerm",
    ("rlf.rewards.kinds", "verify"): "rlf.apps.verify.verify:VerifyTerm",
    ("rlf.rewards.rules", "ftrl"): "rlf.apps.peers.ftrl_reward:Ftrl",
    ("rlf.rewards.rules", "rl_factory_search"): "rlf.apps.peers.rl_factory_search:RlFactorySearch",
    ("rlf.rewards.rules", "search_r1"): "rlf.apps.peers.search_r1:SearchR1",
    ("rlf.tools.kinds", "agent"): "rlf.apps.models.agent:AgentTool",
    ("rlf.tools.kinds", "http"): "rlf.apps.http.tool:HttpTool",
    ("rlf.tools.kinds", "mcp"): "rlf.apps.servers.tool:McpTool",
    ("rlf.tools.kinds", "model"): "rlf.apps.models.tool:ModelTool",
    ("rlf.tools.kinds", "source"): "rlf.apps.build.plays:SourceTool",
    ("rlf.tools.kinds", "sql"): "rlf.apps.sql.tool:SqlTool",
}
"""Kinds that apps bring, by package and name: there as long as the app's folder is."""


def lacking(package: str, name: str) -> str:
    """`: this installation ...` for a kind whose app is not there, and nothing for any other name."""
    app = ".".join(re.split("[.:]", _OF_APPS.get((package, name), ""))[:3])
    return f": this installation of rlf lacks the part that brings it, {app}" if app else ""


@cache
def _entry_points() -> Mapping[str, Mapping[str, EntryPoint]]:
    """The entry points of installed packages, by group and name; every package's file of them is read once."""
    from importlib.metadata import EntryPoint, distributions

    found: defaultdict[str, dict[str, EntryPoint]] = defaultdict(dict)
    for (group, name), value in _OF_APPS.items():
        if Path(__file__).parents[1].joinpath(*re.split("[.:]", value)[1:3]).is_dir():
            found[group][name] = EntryPoint(name, value, group)
    for point in (point for package in distributions() for point in package.entry_points):
        found[point.group].setdefault(point.name, point)
    return found


def is_present(home: str) -> bool:
    """Whether the app of a module is installed; a part of the core always is."""
    kind, _, rest = home.partition(".")
    return kind != "apps" or (Path(__file__).parents[1] / kind / rest.partition(".")[0] / "__init__.py").is_file()


def load_function(home: str) -> Any:
    """A function by its module below `rlf`, which is loaded by this, as `apps.look.command:trace`."""
    module, _, function = home.partition(":")
    return getattr(importlib.import_module(f"rlf.{module}"), function)


# Names of a package that are fetched from their module when they are first used.


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's `__getattr__` (PEP 562).

    Args:
        homes: the module below the package that holds each name.
    """

    def fetch(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    return fetch
