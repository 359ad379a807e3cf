"""Plays examples of other projects, unchanged, with pinned and newest releases of their packages: `make foreign`.

Each project has an environment in `build/foreign/pinned` and, where a newer release is there, one in
`build/foreign/newest`. What no package ships comes from the project's repository, cloned into `build/foreign/sources`;
`FOREIGN_SOURCES` names a folder that has the repositories instead. An example is `played` with its scores, `refused` by
rlf with the reason, or `failed`; what is not there is said, and what the newest releases do otherwise.
`build/foreign/results.json` keeps the verdicts; those that changed end the output, and the exit code is 3.

`python benchmarks/foreign/examples.py [PROJECT]...` plays some; `play JSON` is one example in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE, ROOT = Path(__file__).resolve().parent, Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "foreign"
SOURCES = Path(os.environ.get("FOREIGN_SOURCES", BUILD / "sources"))
LIMIT_S = 180
MARK = "verdict: "
HOME = "{sources}/RL-Factory"


@dataclass
class Example:
    """One world as its project ships it; `{python}`, `{sources}` and `{url}` are filled in."""

    name: str
    env: dict[str, Any]
    actions: list[Any] = field(default_factory=list)
    columns: dict[str, Any] = field(default_factory=dict)
    path: str = ""
    """A folder that the process imports from."""
    serve: str = ""
    """An application that uvicorn serves while it is played."""
    inside: bool = False
    """Whether rlf runs in the project's environment."""
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Rows of our own in place of data sets that only a hub has, by their names there."""
    folder: str = ""
    """Where the process runs; empty: in a folder of its own."""


@dataclass
class Project:
    """Packages with their pinned versions, the repository whose examples none of them ships, and the examples."""

    packages: list[str]
    examples: list[Example]
    repository: str = ""
    alone: list[str] = field(default_factory=list)
    """Packages that are installed without what they require."""
    find: Callable[[], Iterable[Example]] = tuple
    """Further examples, which stand in the repository once it is there."""


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def of_verifiers(name: str, *actions: Any, rows: Any = None, **args: Any) -> Example:
    env = {"kind": "verifiers", "package": name, "python": "{python}", "args": args}
    path = f"{{sources}}/verifiers/environments/{name}"
    return Example(name, env, [*actions], {"index": 0}, path, rows=rows or {})


def of_glossary() -> Iterator[Example]:
    """Its first question, answered with the fact that its tool finds."""
    file = SOURCES / "verifiers" / "environments" / "glossary" / "glossary" / "servers" / "facts.json"
    if file.exists():
        name, fact = next(iter(json.loads(file.read_text()).items()))
        yield of_verifiers("glossary", call("facts_lookup", name=name), f"<answer>{fact}</answer>")


def of_text(make: str, *replies: str, **columns: Any) -> Example:
    return Example(make, {"kind": "text", "make": make}, [*replies], columns, inside=True)


def of_rl_factory(name: str, *actions: Any) -> Example:
    """Its tool asks a search server at a port of this machine, and says so where none is there."""
    env = {"kind": "rl_factory", "callable": f"envs:{name}"}
    env["config"] = {"config_path": "envs/configs/mcp_tools.pydata", "use_process_reward": True}
    row = {"reward_model": {"ground_truth": {"target": ["Paris"]}}, "data_source": "nq", "extra_info": {"index": 0}}
    return Example(name, env, [*actions], row, HOME, inside=True, folder=HOME)


def of_envfactory() -> Iterator[Example]:
    """Each server with its first scenario, which nothing changes."""
    for file in sorted((SOURCES / "EnvFactory" / "envs" / "tools").glob("*.py")):
        kept = file.parents[1] / "intermediate" / f"{file.stem}_checkpoint.json"
        scenarios = json.loads(kept.read_text()).get("scenarios") if kept.exists() else None
        server = {"command": "{python}", "args": [f"{{sources}}/EnvFactory/envs/tools/{file.name}"]}
        env = {"kind": "mcp", "server": server, "save": {"tool": "save_scenario"}, "after": "calls"}
        env["reset"] = {"tool": "load_scenario", "arguments": {"scenario": "{scenario}"}}
        if scenarios:
            yield Example(file.stem, env, [], {"scenario": scenarios[0]["scenario_data"], "calls": []})


ANSWER = {"reward_spec": {"ground_truth": "72"}, "extra_info": {}}
MOVES = [call("move", direction=one) for one in ("left", "up", "right", "down")] * 2
ECHO = [call("echo_message", message="Hello."), call("echo_with_length", message="Hello.")]
AUTHORS = {
    "kalomaze/alphabetic-arxiv-authors-it1": [
        {"names": ["EveFox", "AnnaBell", "CarlDean", "GusHall", "BobCole", "DanEast"]}
    ]
}
TEXTS = {"PrimeIntellect/Reverse-Text-RL": [{"prompt": "foo bar"}]}
TWO, THREE = ("min_turns", "max_turns"), ("min_names_per_turn", "max_names_per_turn")
NEW = " // new name!"
SORTED = [
    "<alphabetical_sorted>\nAnnaBell\nCarlDean\nEveFox\n</alphabetical_sorted>",
    f"<combined_alphabetical_sorted>\nAnnaBell\nBobCole{NEW}\nCarlDean\nDanEast{NEW}\nEveFox\nGusHall{NEW}\n"
    "</combined_alphabetical_sorted>",
]
PROJECTS = {
    "verifiers": Project(
        ["verifiers==0.4.0", "uv", "textarena==0.7.4", "datasets"],
        [
            of_verifiers("alphabet_sort", *SORTED, rows=AUTHORS, **dict.fromkeys(TWO, 2), **dict.fromkeys(THREE, 3)),
            of_verifiers("reverse_text", "<reversed_text>rab oof</reversed_text>", rows=TEXTS),
            of_verifiers("scratchpad", call("scratchpad_roundtrip", word="alpha"), "alpha"),
            of_verifiers("wordle", "[crane]", "[slate]"),
            of_verifiers("color_codeword", "AB"),
            of_verifiers("kuhn_poker", "[check]"),
        ],
        "PrimeIntellect-ai/verifiers",
        find=of_glossary,
    ),
    "openenv": Project(
        ["openenv==0.10.0", "uvicorn"],
        [
            Example(
                "echo_env",
                {"kind": "openenv", "url": "{url}"},
                ECHO,
                path="{sources}/OpenEnv/envs",
                serve="echo_env.server.app:app",
            )
        ],
        "huggingface/OpenEnv",
    ),
    "trl": Project(
        [],
        [
            Example(
                "grpo_2048",
                {"kind": "python", "callable": "{sources}/trl/examples/scripts/grpo_2048.py:Game2048Env"},
                MOVES,
                inside=True,
            )
        ],
        "huggingface/trl",
        ["trl==1.16.0"],
    ),
    "skyrl": Project(
        ["requests", "func-timeout"],
        [
            of_text("skyrl_gym:gsm8k", "#### 72", **ANSWER),
            of_text("skyrl_gym:gsm8k_multi_turn", "#### 71", "#### 72", **ANSWER),
            of_text("skyrl_gym:aime", "Answer: 33", reward_model={"ground_truth": "33"}),
        ],
        alone=["skyrl-gym==0.4.0"],
    ),
    "rl_factory": Project(
        [
            *("qwen-agent==0.0.34", "mcp<2", "ray", "json5", "tensordict", "codetiming", "requests", "soundfile"),
            *("cachebox", "beautifulsoup4", "python-dateutil"),
        ],
        [
            of_rl_factory("SearchEnv", call("search-query_rag", query="France"), "<answer>Paris</answer>"),
            of_rl_factory("RewardRolloutEnv", "<answer>Paris</answer>"),
            of_rl_factory("VisionEnv", "<answer>Paris</answer>"),
        ],
        "Simple-Efficient/RL-Factory",
    ),
    "text": Project(
        ["textarena==0.7.4", "reasoning-gym==0.1.25"],
        [of_text("textarena:GuessTheNumber-v0", "[10]", seed=3), of_text("reasoning_gym:leg_counting", "4")],
    ),
    "envfactory": Project(["mcp<2", "requests"], [], "LARK-AI-Lab/EnvFactory", find=of_envfactory),
}


def play(example: Example) -> str:
    """The verdict on one example."""
    from rlf.core import RlfError
    from rlf.environments import EnvSpec
    from rlf.environments.playing import follow, open_bench
    from rlf.types import Message, Task, ToolCall

    actions = [one if isinstance(one, str) else ToolCall(one["name"], one["arguments"]) for one in example.actions]
    task = Task("t", (Message("user", "Go."),), columns=example.columns)

    async def one_episode(spec: Any) -> str:
        async with open_bench(spec, [task], seed=0) as bench:
            played = await bench.play(task, follow(actions))
        scores = ", ".join(f"{name} {value:g}" for name, value in played.scores)
        outcomes = [str(step.outcome) for step in played.steps if step.outcome is not None]
        words = (
            f"played {len(played.steps)} actions ({', '.join(sorted({*outcomes})) or 'words'}), {scores or 'no score'}"
        )
        return f"failed: {played.failure}" if played.failure else words

    try:
        spec = EnvSpec.model_validate(example.env)
        complaints = spec.complaints()
        return f"refused: {complaints[0]}" if complaints else asyncio.run(one_episode(spec))
    except RlfError as fault:
        return f"refused: {fault}"


def fill(value: Any, **known: str) -> Any:
    text = json.dumps(value)
    for name, word in known.items():
        text = text.replace(f"{{{name}}}", word)
    return json.loads(text)


def play_apart(example: Example, python: Path) -> str:
    """The same in a process of its own, beside its server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    known = {"python": str(python), "sources": str(SOURCES), "url": f"http://127.0.0.1:{port}"}
    asked = fill(vars(example), **known)
    paths = os.pathsep.join([str(python.parent), os.environ["PATH"]])  # whose `python3` starts a project's own servers
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), asked["path"]])}
    environment |= {"PATH": paths} if example.inside else {}
    server = None
    if example.serve:
        command = [str(python), "-m", "uvicorn", example.serve, "--port", str(port), "--log-level", "warning"]
        server = subprocess.Popen(command, env=environment | {"PYTHONPATH": asked["path"]}, stdout=subprocess.DEVNULL)
        for _ in range(10 * LIMIT_S):
            with socket.socket() as trial:
                if server.poll() is not None or trial.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
    try:
        command = [
            str(python if example.inside else sys.executable),
            str(Path(__file__).resolve()),
            "play",
            json.dumps(asked),
        ]
        with TemporaryDirectory() as folder:  # where `datasets` looks for a data set before it asks the hub
            for name, rows in example.rows.items():
                (place := Path(folder, name)).mkdir(parents=True)
                (place / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
            done = subprocess.run(
                command,
                env=environment,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
                cwd=asked["folder"] or folder,
            )
    except subprocess.TimeoutExpired:
        return f"failed: no end within {LIMIT_S} s"
    finally:
        if server is not None:
            server.terminate()
            server.wait()
    verdicts = [line.removeprefix(MARK) for line in done.stdout.splitlines() if line.startswith(MARK)]
    return verdicts[0] if verdicts else f"failed: {(done.stderr.strip().splitlines() or ['no word'])[-1]}"


def name_of(package: str) -> str:
    return re.split("[=<]", package)[0]


def install(project: Project, name: str, release: str) -> Path | None:
    """The Python of an environment with the packages; None where they cannot be installed."""
    folder, uv = BUILD / release / name, Path(sys.executable).with_name("uv")
    python = folder / "bin" / "python"
    subprocess.run([uv, "venv", "-q", "--allow-existing", "--python", sys.executable, folder], check=True)
    if any(example.inside for example in project.examples):  # rlf's own packages, too
        purelib = Path(next(folder.glob("lib/python3.*/site-packages")))
        (purelib / "rlf.pth").write_text(next(path for path in sys.path if path.endswith("site-packages")))
    for packages, flags in ((project.packages, []), (project.alone, ["--no-deps"])):
        wanted = packages if release == "pinned" else [name_of(one) for one in packages]
        command = [uv, "pip", "install", "-q", "--upgrade", "--python", python, *flags, *wanted]
        if wanted and subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode:
            return None
    return python


def versions(python: Path, project: Project) -> str:
    names = [name_of(one) for one in (*project.alone, *project.packages)]
    code = "import sys, importlib.metadata as m; print(*(f'{n} {m.version(n)}' for n in sys.argv[1:]), sep=', ')"
    return subprocess.run([python, "-c", code, *names], capture_output=True, text=True, check=True).stdout.strip()


def fetch(repository: str) -> bool:
    """Whether the repository is there."""
    folder = SOURCES / repository.partition("/")[2]
    if not folder.exists() and "FOREIGN_SOURCES" not in os.environ:
        command = ["git", "clone", "-q", "--depth", "1", f"https://github.com/{repository}", str(folder)]
        subprocess.run(command, check=False, stderr=subprocess.DEVNULL, timeout=LIMIT_S)
    return folder.exists()


def verdicts_of(name: str, project: Project) -> Iterator[tuple[str, str]]:
    if project.repository and not fetch(project.repository):
        yield f"{name}", f"not there: {project.repository} cannot be cloned"
        return
    seen = ""
    for release in ("pinned", "newest"):
        python = install(project, name, release)
        if python is None:
            yield f"{name} {release}", "not there: its packages cannot be installed"
        elif (found := versions(python, project)) == seen:
            yield f"{name} {release}", f"the same releases  [{found}]"
        else:
            seen = found
            for example in [*project.examples, *project.find()]:
                yield f"{name} {release} {example.name}", f"{play_apart(example, python)}  [{found}]"


def main() -> int:
    if sys.argv[1:2] == ["play"]:
        print(MARK + " ".join(play(Example(**json.loads(sys.argv[2]))).split()))
        return 0
    kept = BUILD / "results.json"
    before = json.loads(kept.read_text()) if kept.exists() else {}
    now = {}
    for name in sys.argv[1:] or PROJECTS:
        for what, verdict in verdicts_of(name, PROJECTS[name]):
            now[what] = verdict
            print(f"{what}: {verdict}", flush=True)
    for what in now:
        of_both = [now[one].partition("  [")[0] for one in (what.replace(" newest ", " pinned "), what) if one in now]
        if of_both[0] != of_both[-1]:
            print(f"DIFFERS {what}: pinned {of_both[0]}  ->  newest {of_both[-1]}")
    changed = [what for what in now if what in before and before[what] != now[what]]
    for what in changed:
        print(f"CHANGED {what}: {before[what]}  ->  {now[what]}")
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(before | now, indent=1))
    return 3 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
