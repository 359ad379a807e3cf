"""Runs OpenRLHF's own, unmodified parser and what it asserts after it, over options read from stdin.

A script for a process of its own, with no package but OpenRLHF's parser itself: what that imports for the training is
replaced by empty modules, and the first thing that training calls hands the arguments back. Abbreviated options are
off, since `--rollout.batch` would set another option without a word. Prints one JSON object.

Argument: the program whose parser it is, `train_ppo_ray` or `train_sft`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import runpy
import sys
import types
from typing import Any, NoReturn


class _Parsed(BaseException):
    """Carries the arguments out of OpenRLHF's main block."""


def _stub(name: str, **attributes: Any) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__dict__.update(attributes)
    sys.modules[name] = module
    return module


def _stand_ins() -> None:
    spec = importlib.util.find_spec("openrlhf")
    assert spec is not None and spec.submodule_search_locations, "openrlhf is not installed"
    folder = spec.submodule_search_locations[0]

    def hand_back(arguments: object) -> NoReturn:
        raise _Parsed(arguments)

    nothing = type("Nothing", (), {})
    _stub("ray", is_initialized=lambda: True)
    _stub("ray.util")
    _stub("ray.util.placement_group", placement_group=None)
    _stub("openrlhf.datasets", SFTDataset=None)
    _stub("openrlhf.datasets.utils", blending_datasets=None)
    _stub("openrlhf.models", Actor=None)
    _stub("openrlhf.trainer")
    _stub("openrlhf.trainer.sft_trainer", SFTTrainer=None)
    _stub("openrlhf.trainer.ray", create_vllm_engines=None)
    _stub("openrlhf.trainer.ray.launcher", RayActorGroup=nothing, ReferenceModelActor=nothing, RewardModelActor=nothing)
    _stub("openrlhf.trainer.ray.ppo_actor", PolicyModelActor=nothing)
    _stub("openrlhf.trainer.ray.ppo_critic", CriticModelActor=nothing)
    _stub("openrlhf.utils", get_strategy=hand_back, get_tokenizer=None).__path__ = [f"{folder}/utils"]


def _watch(known: dict[str, str]) -> None:
    """Turns abbreviations off in argparse, makes its errors exceptions, and notes the options of what it parses."""
    parser = argparse.ArgumentParser
    make, parse_args = parser.__init__, parser.parse_args

    def init(self: argparse.ArgumentParser) -> None:
        make(self, allow_abbrev=False)

    def noting(self: argparse.ArgumentParser) -> argparse.Namespace:
        known.update({action.option_strings[0]: _takes(action) for action in self._actions})
        return parse_args(self)

    def error(self: argparse.ArgumentParser, message: str) -> NoReturn:
        raise ValueError(message)

    for name, function in (("__init__", init), ("parse_args", noting), ("error", error)):
        setattr(parser, name, function)


def _takes(action: argparse.Action) -> str:
    """The values of an option: `switch`, or the type of its values and how many there are, e.g. `float 2`."""
    if action.nargs == 0:
        return "switch"
    return f"{getattr(action.type, '__name__', 'str')} {action.nargs or 1}"


def _jsonable(value: Any) -> Any:
    return {key: _jsonable(child) for key, child in vars(value).items()} if hasattr(value, "__dict__") else value


def parse_argv(options: list[str], program: str = "train_ppo_ray") -> dict[str, Any]:
    """Parses the options of a program: the arguments or the error, the printed messages, and every known option."""
    known: dict[str, str] = {}
    said = io.StringIO()
    error, arguments = "", None
    _stand_ins()
    sys.argv = [program, *options]
    _watch(known)
    try:
        with contextlib.redirect_stdout(said):
            runpy.run_module(f"openrlhf.cli.{program}", run_name="__main__")
    except _Parsed as parsed:
        arguments = _jsonable(parsed.args[0])
    except (ValueError, TypeError, AssertionError, AttributeError, SystemExit) as problem:
        error = str(problem) or type(problem).__name__
    return {"error": error, "arguments": arguments, "said": said.getvalue().splitlines(), "options": known}


if __name__ == "__main__":
    print(json.dumps(parse_argv(json.load(sys.stdin), *sys.argv[1:])))  # noqa: T201  # the script's one result
