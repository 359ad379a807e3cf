"""Trains built-in models for 20 steps in worlds by the interfaces of others, and prints success before and after.

`python benchmarks/foreign/runs.py [NAME]...`; `make .venv/worlds/ready` first. A world whose package is not there is
named; `rlf bench tau2 --setup` installs tau2.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from long_model import make_model

import rlf
from rlf.builtin.names import builtin_path

HERE = Path(__file__).parent
WORLDS = Path(sys.prefix) / "worlds"
STEPS = 20
SEARCH = {"path": "builtin:encyclopedia/train", "prompt": "question", "answer": "answer", "kind": "kind"}
SHOP = {"path": "builtin:shop/orders_train", "prompt": "question", "answer": None, "kind": "kind"}
RESET = {"tool": "load_scenario", "arguments": {"scenario": {"shop": "{shop}", "split": "{split}"}}}


def python_of(name):
    """The Python that has a package: `FOREIGN_NAME` where it is set."""
    return os.environ.get(f"FOREIGN_{name.upper()}", str(WORLDS / name / "bin" / "python"))


def spec(model, data, env, rewards, *, rate=3e-4, tokens=320, turns=4, prompts=16, num=8, held_out=True, **keys):
    held = {"eval": data | {"path": data["path"].replace("train", "heldout")}} if held_out else {}
    return {
        "name": "foreign",
        "model": {"path": model},
        "data": {"train": data, **held},
        "env": env,
        "rewards": rewards,
        "rollout": {"num_generations": num, "max_turns": turns, "max_total_tokens": tokens, "schedule": "logical"},
        "train": {
            "algorithm": "reinforce_baseline",
            "learning_rate": rate,
            "steps": STEPS,
            "prompts_per_step": prompts,
            "micro_batch_tokens": 8192,
        },
        **({"eval": {"every": STEPS, "limit": 64}} if held_out else {}),
        **keys,
    }


@contextmanager
def verifiers_env(folder):
    """An `Env` of a package of verifiers: TextArena's number guessing."""
    rows = folder / "guess_train.jsonl"
    for split, first in (("train", 0), ("heldout", 800)):
        texts = [json.dumps({"prompt": "Play.", "index": first + n}) for n in range(100 if first else 200)]
        rows.with_name(f"guess_{split}.jsonl").write_text("\n".join(texts))
    env = {"kind": "verifiers", "file": str(HERE / "guess_env.py"), "python": python_of("verifiers")}
    data = {"path": str(rows), "prompt": "prompt", "answer": None}
    rewards = [{"kind": "env", "name": "found", "score": "reward"}]
    yield spec(
        "builtin:guesser",
        data,
        env | {"limits": {"max_concurrency": 16}},
        rewards,
        rate=1e-3,
        tokens=448,
        turns=10,
        prompts=4,
    )


@contextmanager
def openenv_tools(folder):
    """A world of OpenEnv whose actions call MCP tools: the encyclopedia."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [python_of("openenv"), str(HERE / "search_server.py"), str(port)]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(HERE.parents[1])})
    try:
        for _ in range(600):
            with socket.socket() as trial:
                if trial.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        env = {"kind": "openenv", "url": f"http://127.0.0.1:{port}", "reset": {}}
        yield spec("builtin:tiny", SEARCH, env, [{"kind": "rule", "name": "right", "rule": "exact_match"}])
    finally:
        process.terminate()
        process.wait()


@contextmanager
def trl_class(folder):
    """A class for TRL's `environment_factory`: the encyclopedia."""
    env = {"kind": "python", "callable": f"{HERE / 'trl_search.py'}:SearchEnv"}
    yield spec("builtin:tiny", SEARCH | {"answer": None}, env, [{"kind": "env", "name": "reward", "score": "reward"}])


@contextmanager
def mixed(folder):
    """Three worlds in one run, of which each row names its own: two that can be learnt, and a control."""
    scores = {"SearchEnv": "reward", "AskedEnv": "score", "LostEnv": "reward"}
    worlds = {name: {"kind": "python", "callable": f"{HERE / 'trl_search.py'}:{name}"} for name in scores}
    for split in ("train", "heldout"):
        rows = builtin_path(f"encyclopedia/{split}").read_text().splitlines()
        named = [json.loads(row) | {"env": list(worlds)[at % len(worlds)]} for at, row in enumerate(rows)]
        (folder / f"mixed_{split}.jsonl").write_text("\n".join(map(json.dumps, named)))
    env = {"kind": "several", "worlds": worlds, "scores": {name: {"score": one} for name, one in scores.items()}}
    data = {"path": str(folder / "mixed_train.jsonl"), "prompt": "question", "answer": None}
    yield spec("builtin:tiny", data, env, [{"kind": "env", "name": "solved", "score": "score"}], prompts=12)


@contextmanager
def envfactory_server(folder):
    """An MCP server with `load_scenario` and `save_scenario`, scored by its state: the shop."""
    server = {"command": sys.executable, "args": [str(HERE / "shop_server.py")]}
    env = {"kind": "mcp", "server": server, "reset": RESET, "save": {"tool": "save_scenario"}, "after": "gold"}
    rewards = [{"kind": "env", "name": "goal", "score": "score"}]
    yield spec("builtin:clerk", SHOP, env | {"limits": {"max_concurrency": 8}}, rewards, tokens=256, prompts=8)


@contextmanager
def tau2_retail(folder):
    """tau2's retail domain, by its own evaluator, with a model that reads its prompts of 5,600 tokens."""
    rlf_command = [str(Path(sys.executable).with_name("rlf")), "bench", "tau2", "--domain", "retail", "--split", "test"]
    subprocess.run([*rlf_command, "--write", str(folder / "tau2")], check=True, stdout=sys.stderr)
    yield {
        "extends": str(next(folder.glob("tau2/*/spec.yaml"))),
        "model": {"path": str(make_model(folder / "model"))},
        "rollout": {"num_generations": 4, "max_turns": 2, "max_total_tokens": 6400, "max_new_tokens": 96},
        "train": {"prompts_per_step": 1, "micro_batch_tokens": 13000},
        "eval": {"every": STEPS, "limit": 8},
    }


ONE_WORLD = (verifiers_env, openenv_tools, trl_class, envfactory_server, tau2_retail)


def train(make, steps):
    with TemporaryDirectory() as folder, make(Path(folder)) as made:
        made["train"]["steps"] = steps
        if "eval" in made:
            made["eval"]["every"] = steps
        file = Path(folder) / "spec.yaml"
        file.write_text(yaml.safe_dump(made))
        started = time.perf_counter()
        run = rlf.run(file, runs_folder=Path(folder) / "runs")
        shown = {f"step {one.step}": one.metrics["success"] for one in (run.steps()[0], run.steps()[-1])}
        shown |= {f"{one.mode} after {one.step}": one.metrics["success"] for one in run.evaluations()}
        for name, value in sorted(run.steps()[-1].metrics.items()):
            if name.startswith("world/") and name.endswith("/success"):
                first, of_all = run.steps()[0].metrics[name], [one.metrics.get(name) for one in run.evaluations()]
                shown |= {f"{name} step 1": first, f"{name} step {steps}": value}
                shown |= {f"{name} eval {at}": one for at, one in enumerate(of_all) if one is not None}
        failed = sum(one.metrics.get("unscorable", 0) for one in run.steps())
        figures = ", ".join(f"{name} {value:.3f}" for name, value in shown.items())
        return f"{figures}; {failed:g} unscorable; {time.perf_counter() - started:.0f} s"


def main():
    kinds = {one.__name__: one for one in (*ONE_WORLD, mixed)}
    steps = int(os.environ.get("STEPS", STEPS))
    for name in sys.argv[1:] or kinds:
        try:
            print(f"{name}: {train(kinds[name], steps)}", flush=True)
        except (rlf.RlfError, OSError, subprocess.CalledProcessError) as fault:
            print(f"{name}: not played: {fault}", flush=True)


if __name__ == "__main__":
    main()
