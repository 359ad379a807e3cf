"""`env: {kind: rl_factory}`: an `Env` of RL-Factory as it is, with its tools, rewards of steps and scores."""

from __future__ import annotations

import inspect
import json
import math
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, redirect_stdout
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Literal

from rlf.core.callables import CallableName, load_callable, source_hash
from rlf.core.identity import hash_json
from rlf.core.text import describe
from rlf.environments.instances import OwnProcess, guard_process, make_class_world
from rlf.environments.kind import EnvSpec
from rlf.environments.world import MakeWorld, Step, read_document
from rlf.tools.kind import MAX_ABANDONED
from rlf.tools.python.threads import ThreadPool
from rlf.types import Task, ToolDescription

_DEFAULTS = {
    **{"tool_manager": "qwen3", "mcp_mode": "stdio", "tool_name_selected": []},
    **dict.fromkeys(("enable_limiter", "enable_thinking", "use_storage_manager"), False),
}
"""What its tool managers read of `actor_rollout_ref.env` without a default of their own."""
_SCORED_BY = ("_compute_score_with_rules", "_get_single_prompt_str")
"""Methods of which a class has its own: for scores by rules, and by a judge model."""


class RlFactoryEnv(EnvSpec):
    """An `Env` of RL-Factory: the tools are those of its tool manager, and a turn is a `step`.

    rlf runs where RL-Factory's packages are, with its folder on `PYTHONPATH`. As there, one instance serves all
    trajectories. Rows have verl's columns: `reward_model` with `ground_truth`, `data_source`, `extra_info`. The score
    is `score`, from `compute_score`; with `config: {use_process_reward: true}` a step has the reward of
    `get_step_reward`. `verify_tool` is called where the class says `use_verify_tool`. Scores by a judge model, and
    an `Env` whose `step` takes images, are not played.
    """

    kind: Literal["rl_factory"] = "rl_factory"
    callable: CallableName
    """The class: `envs:SearchEnv`, or `path/file.py:name` relative to the file that says so."""
    config: Mapping[str, Any] = {}
    """Keys of its `actor_rollout_ref.env`, such as `config_path`, whose path is relative to where rlf runs."""

    @property
    def speaks(self) -> bool:
        """Answers are steps, too."""
        return True

    @property
    def score_names(self) -> tuple[str, ...]:
        """The one."""
        return ("score",)

    def _make(self) -> Any:
        create = import_module("omegaconf").OmegaConf.create  # its managers read keys as attributes
        with redirect_stdout(sys.stderr):  # a command's result goes to the other
            return load_callable(self.callable)(create({**_DEFAULTS, **self.config}))

    def describe_tools(self) -> Sequence[ToolDescription]:
        """Those of the tool manager, in OpenAI's form there."""
        return [read_document(one) for one in self._make().tool_manager.functions]

    def complaints(self) -> list[str]:
        """Makes the class once."""
        made_by: Any = load_callable(self.callable)
        owners = [next(at for at, one in enumerate(made_by.__mro__) if name in vars(one)) for name in _SCORED_BY]
        if "image_data" in inspect.signature(made_by.step).parameters:
            words = "takes `image_data`; declare its tools with `images`, and its score as a python reward"
            return [f"{self.callable}.step {words}"]
        if owners[0] > owners[1]:
            return [f"{self.callable} is scored by a judge model; write a reward of kind `judge` for a python world"]
        try:
            self._make()
        except Exception as fault:  # noqa: BLE001 - code of others may raise anything
            return [f"{self.callable} cannot be made: {describe(fault)}"]
        return []

    def source_hash(self) -> str:
        """Covers the file that defines the class."""
        return hash_json([self.callable, source_hash(load_callable(self.callable)), dict(self.config)])

    @asynccontextmanager
    async def open(self) -> AsyncIterator[MakeWorld]:
        """Makes the one instance; episodes share it and a pool of threads."""
        with guard_process(), closing(ThreadPool(self.limits.max_concurrency + MAX_ABANDONED)) as threads:
            yield partial(make_class_world, OwnProcess(_Episode, {"env": self._make()}, threads, ()))


class _Episode:
    """One trajectory in an `Env`, as a class of a world."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self._texts: list[str] = []
        """What the model wrote and what it read, in the order of the response that RL-Factory scores."""
        self._rewards: list[float] = []

    def reset(self, task: Task) -> None:
        self._task = task

    def call(self, name: str, arguments: Mapping[str, Any]) -> Step:
        # In the words in which Qwen3 calls.
        made = json.dumps({"name": name, "arguments": dict(arguments)}, ensure_ascii=False)
        return self.reply(f"<tool_call>\n{made}\n</tool_call>")

    def reply(self, text: str) -> Step:
        (said,), (done,), *_ = self._env.step([text])
        pays = self._env.use_process_reward and not done  # the turn that ends has the outcome's score
        reward = float(self._env.get_step_reward([text])[0]) if pays else math.nan
        words = said if isinstance(said, str) else "\n".join(str(one["content"]) for one in said)
        self._texts += [text, f"<tool_response>\n{words}\n</tool_response>"] if words else [text]
        self._rewards.append(reward)
        return Step(words or None, None if math.isnan(reward) else reward, bool(done))

    def score(self) -> float:
        """The outcome's score, of a batch of one with the fields of verl's that an `Env` reads."""
        from torch import tensor

        row, text = self._task.columns, "\n".join(self._texts)
        model = dict(row.get("reward_model") or {"ground_truth": row.get("answer")})
        about = {"data_source": row.get("data_source"), "extra_info": row.get("extra_info")}
        if self._env.use_verify_tool:
            truth = model["ground_truth"]
            truth = dict(truth) if isinstance(truth, Mapping) else {"target": truth}
            found = self._env.verify_tool(about["data_source"], text, truth, about["extra_info"])
            model["ground_truth"] = truth | {"verified_results": found}
        prompt = "\n".join(message.content for message in self._task.messages)
        batch = {"prompts": tensor(list(map(ord, prompt))), "responses": tensor(list(map(ord, text)))}
        batch["attention_mask"] = tensor([1] * len(prompt + text))
        batch["tool_use_scores"] = tensor(self._rewards)
        item = SimpleNamespace(batch=batch, non_tensor_batch={"reward_model": model, **about})
        tokenizer = SimpleNamespace(decode=lambda ids, **_: "".join(map(chr, ids)))  # whose tokens are letters
        return float(self._env.compute_score(None, None, tokenizer, [item])[0][-1])
