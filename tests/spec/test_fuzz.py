"""Specs with keys, values and types where nobody expects them: each is read or refused, none gives a traceback."""

import copy
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlf.core import Place, RlfError, yaml_text
from rlf.data.files import fail
from rlf.runs.plans import check_spec
from rlf.spec import reader
from rlf.spec.inputs import Datasets

NUM_MUTATIONS = 300
SPEC: dict[Any, Any] = {
    "name": "fuzzed",
    "model": {"path": "builtin:tiny", "lora": {"rank": 8, "target_modules": "all-linear"}},
    "chat": {"format": "hermes", "failures": {"bad_json": "feedback"}},
    "data": {
        "train": {"path": "./train.jsonl", "prompt": "question", "answer": "answer"},
        "eval": {"path": "./train.jsonl", "prompt": "question", "answer": "answer", "limit": 4},
    },
    "tools": [
        "../tool_specs/look.yaml",
        {
            "name": "ask",
            "description": "Asks.",
            "inputSchema": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
            "target": {"kind": "http", "url": "http://127.0.0.1:9/{{ q }}", "method": "GET"},
            "limits": {"timeout_s": 2},
        },
    ],
    "rewards": [
        {"kind": "rule", "name": "right", "rule": "exact_match", "weight": 1.0},
        {"kind": "rule", "name": "shape", "rule": "tool_format", "weight": 0.1, "when": {"term": "right"}},
    ],
    "rollout": {"num_generations": 4, "max_turns": 2, "max_total_tokens": 256, "stop": ["x"]},
    "train": {"algorithm": "grpo", "steps": 2, "prompts_per_step": 2, "kl": {"coef": 0.01}, "reward_clip": [-1, 1]},
    "engine": {"kind": "local", "device": "cpu"},
    "eval": {"every": 1},
    "report_to": ["jsonl"],
    "seed": 0,
}
LEAN = {key: value for key, value in SPEC.items() if key not in ("tools", "chat", "report_to")}
"""Without what takes longest to check."""
VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        7,
        2**70,
        1e300,
        -0.5,
        "",
        "fast",
        "auto",
        "1",
        "x" * 5000,
        "\0",
        "é",
        "builtin:nothing",
    ),
    *(
        [],
        {},
        [[]],
        [None],
        [{}],
        ["a", 1],
        {"kind": "local"},
        {"kind": []},
        {"kind": None},
        {"kind": 5},
        {"a": {"b": 1}},
    ),
    *(
        "${train.steps}",
        "${nothing}",
        "${",
        "${oc.env:RLF_NO_SUCH}",
        "{{ x",
        "x.py:f",
        "../x.yaml",
        "./",
        "..",
        "~x",
        "a=b",
    ),
)
KEYS: tuple[Any, ...] = (
    *("", "kind", "name", "path", "use", "extends", "tools", "mcp", "mcpServers", "a.b", "[0]", "${x}", "<<", "é", "~"),
    *(5, None, True, 1.5, "target", "train", "rollout", "lr", "actor_rollout_ref"),
)


def _written(value: Any) -> str:
    """YAML's flow style, whose keys need not be text."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"? {_written(key)} : {_written(child)}" for key, child in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    return json.dumps(value)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield (*path, key)
        yield from _places(child, (*path, key))


def _mutated(rng: random.Random) -> Any:
    spec = copy.deepcopy(rng.choice((SPEC, LEAN, LEAN, LEAN)))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = list(_places(spec))
        *above, key = rng.choice(places)
        holder = spec
        for step in above:
            holder = holder[step]
        rng.choice(_CHANGES)(rng, holder, key)
    return spec


def _replace(rng: random.Random, holder: Any, key: Any) -> None:
    holder[key] = rng.choice(VALUES)


def _delete(rng: random.Random, holder: Any, key: Any) -> None:
    del holder[key]


def _nest(rng: random.Random, holder: Any, key: Any) -> None:
    holder[key] = [holder[key]] if rng.random() < 0.5 else {rng.choice(KEYS): holder[key]}


def _rename(rng: random.Random, holder: Any, key: Any) -> None:
    if isinstance(holder, dict):
        holder[rng.choice(KEYS)] = holder.pop(key)
    else:
        holder.append(copy.deepcopy(holder[key]))


def _add(rng: random.Random, holder: Any, key: Any) -> None:
    if isinstance(holder, dict):
        holder[rng.choice(KEYS)] = rng.choice(VALUES)
    else:
        holder.insert(key, rng.choice(VALUES))


def _retype(rng: random.Random, holder: Any, key: Any) -> None:
    holder[key] = rng.choice((str, repr, lambda value: [value, value], lambda value: {"kind": value}))(holder[key])


_CHANGES: tuple[Callable[[random.Random, Any, Any], None], ...] = (
    _replace,
    _replace,
    _delete,
    _nest,
    _rename,
    _add,
    _retype,
)


def _no_hub(name: str, config: str | None, split: str) -> Iterator[Any]:
    raise fail(Place(name), "", "the Hub is not asked here.")


@pytest.mark.skipif(not yaml.__with_libyaml__, reason="PyYAML without libyaml takes half a minute")
def test_no_mutation_of_a_spec_gives_a_traceback(project, monkeypatch: pytest.MonkeyPatch) -> None:
    read_bytes = reader._read_bytes
    monkeypatch.setattr(reader, "CoreLoader", yaml_text._DocumentLoader)  # the same nodes, ten times as fast
    monkeypatch.setattr(reader, "_read_bytes", lambda path, named_by: texts.get(path) or read_bytes(path, named_by))
    monkeypatch.setattr("rlf.data.tables.read_hub", _no_hub)
    monkeypatch.setattr("rlf.spec.inputs.check_budget", lambda loaded, tasks: ([], None))
    run, read, rng = project(), Datasets(), random.Random(21)
    texts: dict[Path, bytes] = {}
    (run.parent / "train.jsonl").write_text('{"question": "q", "answer": "a"}\n')
    num_refused = 0
    for number in range(NUM_MUTATIONS):
        text = _written(_mutated(rng))
        texts[run.absolute()] = text.encode()
        try:
            check_spec([run], [], read)
        except RlfError:
            num_refused += 1
        except Exception as error:
            raise AssertionError(f"mutation {number}: {type(error).__name__}: {error}\n{text}") from error
    assert NUM_MUTATIONS // 2 < num_refused < NUM_MUTATIONS
