"""A small project with its own data, model folder and code, as a fresh copy wherever a test wants one."""

import json

import pytest

SPEC = """\
name: small
model: {path: ../model}
data:
  train: {path: data.jsonl, prompt: question}
tools:
  - ../tools/look.yaml
rewards:
  - {kind: rule, name: right, rule: exact_match}
rollout: {num_generations: 4}
train: {algorithm: grpo, steps: 2, prompts_per_step: 3}
"""
TOOL = """\
name: look
description: Looks something up.
inputSchema: {type: object, properties: {query: {type: string}}, required: [query]}
target: {kind: python, callable: "code.py:look"}
"""
FILES = {
    "specs/run.yaml": SPEC,
    "specs/data.jsonl": '{"question": "q", "answer": "a"}\n',
    "tools/look.yaml": TOOL,
    "tools/code.py": "def look(query: str) -> str:\n    return query\n",
    "model/config.json": "{}",
    "model/tokenizer_config.json": json.dumps({"chat_template": "<tool_call>"}),
}


@pytest.fixture
def project(tmp_path):
    def write(folder="here", changes=None):
        for name, text in {**FILES, **(changes or {})}.items():
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return tmp_path / folder / "specs/run.yaml"

    return write
