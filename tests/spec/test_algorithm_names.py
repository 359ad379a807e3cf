"""The names that the table of estimators and losses gives, against the packages that have them."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import pytest

from ..reference import load_reference

ROWS = load_reference().OTHER_LIBRARIES

CONFIGS = (("trl", "trainer/grpo_config.py"), ("trl", "trainer/base_config.py"), ("transformers", "training_args.py"))
"""The files of TRL's `GRPOConfig` and of what it inherits from; to import them takes seconds."""


def source(package: str, path: str) -> str:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"{package} is not installed: its names are NOT checked")
    return (Path(spec.origin).parent / path).read_text(encoding="utf-8")


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def read_fields(text: str) -> list[str]:
    """Fields of the dataclasses of a file."""
    classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    declared = [node.target for one in classes for node in one.body if isinstance(node, ast.AnnAssign)]
    return [target.id for target in declared if isinstance(target, ast.Name)]


def test_each_name_of_trl_is_a_field_a_value_or_a_trainer_of_it() -> None:
    text = source("trl", "trainer/grpo_trainer.py")
    fields = {name for place in CONFIGS for name in read_fields(source(*place))}
    for name in [name for row in ROWS for name in names(row.trl)]:
        key, _, value = name.partition(": ")
        quoted = value or key
        is_field = key in fields and (not value or f'"{value}"' in text)
        assert is_field or f'"{quoted}"' in text or name == "RLOOTrainer", name


def test_each_name_of_openrlhf_is_a_choice_of_its_command() -> None:
    text = source("openrlhf", "cli/train_ppo_ray.py")
    for name in [name for row in ROWS for name in names(row.openrlhf)]:
        assert f'"{name}"' in text, name
