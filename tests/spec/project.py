"""A small project of spec files that the tests break in one place at a time."""

from __future__ import annotations

from pathlib import Path

SPEC = """\
name: base
model: {path: builtin:tiny}
data:
  train: {path: builtin:encyclopedia/train, prompt: question}
tools:
  - ../tool_specs/look.yaml
rewards:
  - {use: ../reward_specs/right.yaml, weight: 2}
rollout:
  num_generations: 4
  max_total_tokens: 100
train:
  algorithm: grpo
  steps: 2
  prompts_per_step: 3
engine: local
"""
TOOL = """\
name: look
description: Looks something up.
inputSchema: {type: object, properties: {query: {type: string}}, required: [query]}
target: {kind: python, callable: "code.py:look"}
"""
FILES = {
    "specs/run.yaml": SPEC,
    "tool_specs/look.yaml": TOOL,
    "tool_specs/code.py": "def look(query: str) -> str:\n    return query\n\n\ndef pays(trajectory):\n    return 1.0\n",
    "reward_specs/right.yaml": "kind: rule\nname: right\nrule: exact_match\n",
}


def write_project(folder: Path, changes: dict[str, str] | None = None) -> Path:
    """Writes the project and the changed or further files; the path of its run spec."""
    for name, text in {**FILES, **(changes or {})}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder / "specs/run.yaml"
