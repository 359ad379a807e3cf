"""The JSON Schema for editors: it takes what is right, refuses broken keys and types, and is the committed one."""

import json
import re
from collections import Counter
from pathlib import Path

import jsonschema_rs
import pytest

from rlf.algo import ESTIMATORS
from rlf.apps.schema.schemas import FILES as ROLES
from rlf.apps.schema.schemas import schema_of, schema_text
from rlf.rewards.kinds.rule import RULES
from rlf.rewards.term import TERM_KINDS
from rlf.spec.engines import ENGINES
from rlf.spec.nodes import plain
from rlf.spec.reader import read_file
from rlf.tools.kind import TOOL_KINDS
from rlf.trackers import TRACKERS

from .project import FILES
from .test_golden_faults import CASES

REPOSITORY = Path(__file__).parents[2]
FOLDERS = {"specs": "spec", "tool_specs": "tool", "reward_specs": "reward"}
SHIPPED = [path for folder in FOLDERS for path in sorted((REPOSITORY / folder).glob("*.yaml"))]
KEY_OR_TYPE = re.compile(
    r"unknown key|the key '\w+' is missing"
    r"|: unknown (engine|advantage estimator|tool kind|reward kind|rule|chat format) "
    r"|expected (a whole number|a number|text|true or false|a list|a mapping|one of)"
)
BEYOND = {"a key of another library's section that has no meaning here"}
"""What the schema leaves to the compiler."""


@pytest.fixture(scope="module")
def validators():
    return {role: jsonschema_rs.Draft202012Validator(schema_of(role)) for role in ROLES}


def read(path):
    """A file's values, or None where it is no YAML of ours."""
    faults = []
    found = read_file(path, None, faults)
    return None if found is None or faults else plain(found[0])


def role_of(name):
    return FOLDERS[Path(name).parts[-2]]


@pytest.mark.parametrize("path", SHIPPED, ids=[f"{path.parent.name}/{path.stem}" for path in SHIPPED])
def test_a_shipped_file_is_valid_and_names_its_schema(path, validators):
    role = role_of(path)
    assert [error.message for error in validators[role].iter_errors(read(path))] == []
    assert f"\n# yaml-language-server: $schema=../docs/schema/{role}.json\n" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("role", ROLES)
def test_the_committed_schema_is_current(role):
    committed = (REPOSITORY / f"docs/schema/{role}.json").read_text(encoding="utf-8")
    assert committed == schema_text(role), "run `make reference`"


def broken_files():
    """Golden faults of keys and types that are in one file of a role."""
    for case in CASES:
        name = case.get("file", "specs/run.yaml")
        text = case.get("text") or FILES.get(name, "").replace(case.get("replace", "\0"), case.get("by", ""), 1)
        about = [line for line in case.get("says", []) if line.startswith(name) and KEY_OR_TYPE.search(line)]
        if case["name"] in BEYOND:
            continue
        if about and text != FILES.get(name) and "overrides" not in case and "files" not in case:
            yield pytest.param(name, text, id=case["name"])


@pytest.mark.parametrize(("name", "text"), list(broken_files()))
def test_a_broken_key_or_type_is_refused(name, text, validators, tmp_path):
    path = tmp_path / "file.yaml"
    path.write_text(text, encoding="utf-8")
    values = read(path)
    assert values is None or not validators[role_of(name)].is_valid(values)


@pytest.mark.parametrize("name", FILES)
def test_the_small_project_is_valid(name, validators, tmp_path):
    if name.endswith(".py"):
        return
    path = tmp_path / "file.yaml"
    path.write_text(FILES[name], encoding="utf-8")
    assert validators[role_of(name)].is_valid(read(path))


BASE = {
    "name": "x",
    "model": {"path": "m"},
    "data": {"train": {"path": "d"}},
    "rewards": [{"kind": "rule", "name": "right", "rule": "exact_match"}],
    "train": {"algorithm": "grpo"},
}

AGENT = {
    "name": "ask",
    "description": "Asks.",
    "inputSchema": {"type": "object"},
    "target": {"kind": "agent", "prompt": "p", "endpoints": [{"url": "u", "model": "m"}]},
}


@pytest.mark.parametrize(
    ("values", "valid"),
    [
        (BASE, True),
        (BASE | {"tools": [AGENT]}, False),
        (BASE | {"tools": [AGENT | {"target": AGENT["target"] | {"tools": [{"mcp": {"command": "x"}}]}}]}, True),
        (BASE | {"seed": "${oc.env:SEED}"}, True),
        (BASE | {"train": {"algorithm": {"kind": "gae", "lam": 0.9}, "steps": "${oc.env:STEPS}"}}, True),
        (BASE | {"train": {"algorithm": {"kind": "grpo", "lam": 0.9}}}, False),
        (BASE | {"train": {"steps": 3}}, False),
        ({"extends": "base.yaml", "train": {"steps": 3}}, True),
        ({"extends": ["a.yaml", "b.yaml"], "train": {"algorithm": {"lam": 0.9}}}, True),
        ({"extends": "base.yaml", "train": {"steps": 3.5}}, False),
        ({"extends": "base.yaml", "trian": {}}, False),
        ({"extends": "base.yaml", "tools": [{"use": "b.yaml", "limits": {"timeout_s": 1}}]}, True),
        ({"extends": "base.yaml", "tools": [{"name": "a", "limits": {"timeout_s": 1}}]}, True),
        ({"extends": "base.yaml", "tools": [{"name": "a", "limts": {"timeout_s": 1}}]}, False),
        (BASE | {"rewards": [{"use": "right.yaml", "weight": 2}]}, True),
        (BASE | {"rewards": [{"use": "right.yaml", "wight": 2}]}, False),
        (BASE | {"tools": ["a.yaml", {"use": "b.yaml", "limits": {"timeout_s": 1}}]}, True),
        (BASE | {"tools": [{"use": "b.yaml", "limits": {"timeout_s": 0}}]}, False),
        (BASE | {"tools": [{"name": "a", "description": "b"}]}, False),
        (BASE | {"train": {"algorithm": "grpo", "beta": 0.1, "clip_ratio": 0.2}}, True),
        (BASE | {"model": {"model_name_or_path": "m"}, "train": {"adv_estimator": "grpo"}}, True),
        (BASE | {"model": {"model_name": "m"}}, False),
        (BASE | {"report_to": "tensorboard"}, True),
        (BASE | {"report_to": ["jsonl", {"kind": "wandb", "mode": "offline"}]}, True),
        (BASE | {"report_to": ["jsnl"]}, False),
        (BASE | {"report_to": [{"kind": "wandb", "mod": "offline"}]}, False),
        (BASE | {"lineage": {"url": "${oc.env:TEAM_DB}", "keep": ["last:5"]}}, True),
        ({"name": "x", "rewards": BASE["rewards"], "actor_rollout_ref": {"model": {"path": "m"}}}, True),
    ],
)
def test_a_spec_is_taken_as_the_compiler_takes_it(values, valid, validators):
    assert validators["spec"].is_valid(values) is valid


@pytest.mark.parametrize(
    "registry", [ENGINES, ESTIMATORS, TERM_KINDS, RULES, TOOL_KINDS, TRACKERS], ids=lambda r: r.noun
)
def test_every_kind_is_in_the_schema_with_a_description(registry):
    defs = schema_of("spec")["$defs"]
    for name in registry.names():
        definition = defs[registry.get(name).__name__]
        assert definition.get("description")
        if "oneOf" not in definition:
            keys = keys_of(definition, defs)
            assert name in [value.get("const") for value in keys.values()]
            assert all(value.get("description") or "const" in value for value in keys.values())


def keys_of(definition, defs):
    """Every key of a mapping, with what its references lead to."""
    found = {}
    for part in (*definition.get("allOf", ()), definition):
        part = named(part, defs)
        found |= keys_of(part, defs) if part is not definition else part.get("properties", {})
    return {key: named(value, defs) for key, value in found.items() if value is not False}


def named(value, defs):
    while isinstance(value, dict) and "$ref" in value:
        value = defs[value["$ref"].rpartition("/")[2]] | {word: value[word] for word in value if word != "$ref"}
    return value


def test_a_schema_is_small_enough_to_read_and_says_nothing_twice():
    text = schema_text("spec")
    assert len(text) < 320_000
    keys = [json.dumps(value) for definition in schema_of("spec")["$defs"].values() for value in properties(definition)]
    assert not [key for key, count in Counter(keys).items() if count > 1 and len(key) > 80]


def properties(definition):
    return definition.get("properties", {}).values()
