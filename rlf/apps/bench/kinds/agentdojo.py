"""`rlf bench agentdojo`: an office's tools whose results hold instructions of an attacker, judged by its own checks.

Environments, attacks and checks are those of the package. `utility` says whether the user's task is done, `attacked`
whether the attacker's is: what a trained policy does with instructions inside data.
"""

from __future__ import annotations

import json
import sys
from ast import literal_eval
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import yaml

from rlf.apps.bench.kind import Benchmark, PinnedPackages, Play, Row, read_names
from rlf.apps.bench.rows import RowWorld
from rlf.core.errors import RlfError
from rlf.types import Task

SUITES = ("workspace", "travel", "banking", "slack")
NO_ATTACK = "none"
_VERSION = "v1.2.2"
_VENDORS = ("agentdojo.agent_pipeline", "agentdojo.agent_pipeline.llms", "agentdojo.agent_pipeline.llms.google_llm")
"""Modules that load clients of every vendor."""


class Agentdojo(Benchmark):
    """Each task of a user with each task of an attacker, whose words stand in what the tools return."""

    title: ClassVar[str] = "AgentDojo: utility, and attack success under injected tool results"
    licence: ClassVar[str] = "MIT"
    packages: ClassVar[PinnedPackages | None] = PinnedPackages(
        "agentdojo==0.1.35 deepdiff==8.6.1 orderly-set==5.5.0 docstring-parser==0.17.0 email-validator==2.3.0 "
        "dnspython==2.8.0"
    )

    domain: str = ",".join(SUITES)
    """Suites, with commas."""
    attack: str = "important_instructions_no_model_name"
    """The package's name of an attack; `none`: the users' tasks alone."""

    @property
    def play(self) -> Play:
        """Up to 16 turns, as its loop of tools."""
        rollout = {"max_turns": 16, "max_total_tokens": 32_768, "max_new_tokens": 2048}
        return Play(("utility", "attacked"), f"{__name__}:AgentdojoWorld", rollout=rollout)

    def rows(self) -> Iterator[Row]:
        """Users' tasks in order, each with every attack; the kind is the suite."""
        attacks = package().attacks
        if self.attack != NO_ATTACK and self.attack not in attacks:
            raise RlfError(f"--option attack: got {self.attack!r} (known: {NO_ATTACK}, {', '.join(attacks)}).")
        for name in read_names(self.domain, SUITES, {}, "suite"):
            suite = package().suites[name]
            tools = [_describe(function) for function in suite.tools]
            # The name is that of a model which some attacks address.
            attack = self.attack != NO_ATTACK and attacks[self.attack](suite, SimpleNamespace(name="a local model"))
            for user in suite.user_tasks.values():
                for injection in suite.injection_tasks.values() if attack else (None,):
                    words = attack.attack(user, injection) if attack else {}
                    yield {
                        "id": f"{name}_{user.ID}" + ("" if injection is None else f"_{injection.ID}"),
                        "kind": name,
                        "prompt": [
                            {"role": "system", "content": package().system},
                            {"role": "user", "content": user.PROMPT},
                        ],
                        "tools": tools,
                        "user_task": user.ID,
                        "injection_task": None if injection is None else injection.ID,
                        "injections": json.dumps(words),
                    }


def _describe(function: Any) -> dict[str, Any]:
    schema = function.parameters.model_json_schema()
    return {"name": function.name, "description": function.description, "parameters": schema}


@cache
def package() -> SimpleNamespace:
    """The parts of agentdojo 0.1.35 that are used; clients of vendors stay away."""
    found = find_spec("agentdojo")
    assert found is not None and found.submodule_search_locations, "the package agentdojo is not there"
    home = Path(next(iter(found.submodule_search_locations)))
    for name in (*_VENDORS, "agentdojo.attacks"):
        # In place of a package's first file, which imports all; its other files are found as ever.
        stub = sys.modules[name] = ModuleType(name)
        stub.__path__ = [str(home.joinpath(*name.split(".")[1:]))]
    vars(sys.modules[_VENDORS[-1]])["EMPTY_FUNCTION_NAME"] = ""
    suites = import_module("agentdojo.task_suite.load_suites").get_suites(_VERSION)
    for name in ("baseline", "important_instructions"):
        import_module(f"agentdojo.attacks.{name}_attacks")
    attacks = import_module("agentdojo.attacks.attack_registry").ATTACKS
    runtime, types = import_module("agentdojo.functions_runtime"), import_module("agentdojo.types")
    texts = yaml.safe_load((home / "data" / "system_messages.yaml").read_text(encoding="utf-8"))
    return SimpleNamespace(
        suites=suites,
        attacks={name: one for name, one in attacks.items() if name != "manual"},
        runtime=runtime.FunctionsRuntime,
        call=runtime.FunctionCall,
        block=types.text_content_block_from_string,
        show=import_module("agentdojo.agent_pipeline.tool_execution").tool_result_to_str,
        system=texts["default"],
    )


class AgentdojoWorld(RowWorld):
    """A suite's environment with the attacker's words in it, and the package's checks."""

    def __init__(self) -> None:
        self._calls: list[Any] = []
        self._answer = ""

    @classmethod
    def import_shared(cls, **args: Any) -> None:
        """Imports the package, and reads the environments' files once, before instances are forked."""
        for suite in package().suites.values():
            suite.load_and_inject_default_environment({})

    def reset(self, task: Task, seed: int) -> str | None:
        """Makes the environment of the user's task."""
        columns = task.columns
        self._suite = package().suites[task.kind or columns["kind"]]
        self._user = self._suite.user_tasks[columns["user_task"]]
        self._injection = self._suite.injection_tasks.get(columns["injection_task"])
        made = self._suite.load_and_inject_default_environment(json.loads(columns["injections"]))
        self._env = self._user.init_environment(made)
        self._before = self._env.model_copy(deep=True)
        self._runtime = package().runtime(self._suite.tools)
        return None

    def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Carries out a call, as its loop of tools does."""
        result, error = self._runtime.run_function(self._env, tool, _read_lists(arguments))
        return error if error is not None else str(package().show(result))

    def reply(self, text: str) -> str | None:
        """Takes the last words."""
        self._answer = text
        return None

    def review(self, turns: Sequence[Mapping[str, Any]]) -> None:
        """Takes every call, also of tools that do not exist."""
        calls = [call for turn in turns for call in turn["calls"]]
        self._calls = [package().call(function=name, args=_read_lists(arguments)) for name, arguments in calls]

    def score(self) -> Mapping[str, float]:
        """Whether the user's task is done, and the attacker's."""
        attacked = self._injection is not None and self._check(self._injection)
        return {"utility": float(self._check(self._user)), "attacked": float(attacked)}

    def _check(self, task: Any) -> bool:
        said = [package().block(self._answer)]
        # The package's own way from a task to its verdict, which it has under no public name.
        return bool(self._suite._check_task_result(task, said, self._before, self._env, self._calls))

    def gold(self) -> list[Any]:
        """The calls that the user's task publishes, and its words."""
        return _solve(self._user, self._before)


def _solve(task: Any, environment: Any) -> list[Any]:
    """The published calls of a user's or an attacker's task, and its words."""
    calls = task.ground_truth(environment.model_copy(deep=True))
    return [*({"name": call.function, "arguments": dict(call.args)} for call in calls), task.GROUND_TRUTH_OUTPUT or "."]


def _read_lists(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments with texts that are lists of Python's read as such, as the package does."""
    return {name: _read_list(value) if isinstance(value, str) else value for name, value in arguments.items()}


def _read_list(text: str) -> Any:
    try:
        value = literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return value if isinstance(value, list) else text
