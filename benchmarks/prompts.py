"""`rlf climb` where only the prompt is wrong: `python -m benchmarks.prompts [NAME ...] [--runs DIR]`.

Two tasks of `builtin:reader`, which calls the tool whose document names what is asked for. `documents`: one tool of
four is documented as something else. `system`: the system message documents tools that there are no more. What rewrites
texts is no model: a server that takes a word of the examples for a tool, and cuts lines off a system message; the
search alone decides what is kept. Prints what `benchmarks/climbs.py` prints.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from benchmarks.climbs import show_climb
from benchmarks.embedded.rows import write_questions
from rlf.builtin.encyclopedia.names import NameSplit, split_names

_ROOT = Path(__file__).parents[1]
ASKED = ("mayor", "mill")
"""What questions ask for; the other tools find something else."""
TOOLS = {"ask_bridge": "mayor", "read_club": "mill", "find_island": "tower", "note_ship": "bank"}
"""What each tool finds."""
STALE = "Tools:\n- the town's mayor: open_river(name)\n- the town's mill: tell_farm(name)"


def find(relation: str, name: str) -> str:
    """What a town has; it follows from the two words."""
    return random.Random(f"{relation} {name}").choice(split_names(NameSplit.TRAIN))


def ask_bridge(name: str) -> str:
    """A tool."""
    return find("mayor", name)


def read_club(name: str) -> str:
    """A tool."""
    return find("mill", name)


def find_island(name: str) -> str:
    """A tool."""
    return find("tower", name)


def note_ship(name: str) -> str:
    """A tool."""
    return find("bank", name)


def write_specs(folder: Path) -> dict[str, Path]:
    """Writes questions and a spec of each task, by name."""
    for split, names, count in (("train", NameSplit.TRAIN, 256), ("heldout", NameSplit.HELDOUT, 128)):
        drawn = random.Random(f"prompts:{split}").sample(split_names(names), count)
        asked = list(zip(drawn, itertools.cycle(ASKED)))
        rows = ((f"What is {name}'s {relation}?", find(relation, name), relation) for name, relation in asked)
        write_questions(folder / f"{split}.jsonl", rows)
    documents = {tool: f"the town's {relation}" for tool, relation in TOOLS.items()}
    return {
        "documents": write_spec(folder, "documents", documents | {"ask_bridge": "the town's lake"}, "Tools:"),
        "system": write_spec(folder, "system", documents, STALE),
    }


def write_spec(folder: Path, name: str, documents: dict[str, str], system: str) -> Path:
    """Writes one spec."""
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    row = {"prompt": "question", "answer": "answer", "kind": "kind", "system": system}
    spec = {
        "name": name,
        "model": {"path": "builtin:reader"},
        "data": {
            "train": {"path": str(folder / "train.jsonl"), **row},
            "eval": {"path": str(folder / "heldout.jsonl"), **row},
        },
        "tools": [
            {
                "name": tool,
                "description": text,
                "inputSchema": schema,
                "target": {"kind": "python", "callable": f"benchmarks.prompts:{tool}", "isolation": "inline"},
                "limits": {"max_output_chars": 160},
            }
            for tool, text in documents.items()
        ],
        "rewards": [{"use": str(_ROOT / "reward_specs" / "exact_match.yaml"), "weight": 1.0}],
        "rollout": {"num_generations": 8, "max_turns": 4, "max_total_tokens": 320, "schedule": "logical"},
        "train": {
            "algorithm": "grpo",
            "learning_rate": 3e-4,
            "steps": 16,
            "prompts_per_step": 8,
            "micro_batch_tokens": 4096,
        },
        "eval": {"every": 16, "limit": 128},
        "engine": {"kind": "local"},
        "seed": 0,
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    return path


def rewrite(prompt: str, number: int) -> str:
    """Another text for the one that stands first in a request to rewrite."""
    text = prompt.split("```")[1].strip()
    if text.startswith("Tools:"):
        lines = text.splitlines()
        return "\n".join(lines[: max(1, len(lines) - 1 - number % 3)])
    words = re.findall(r"What is \w+'s (\w+)\?", prompt)
    return f"the town's {words[number % len(words)]}"


class _Writer(BaseHTTPRequestHandler):
    """Answers as a server of a model that rewrites."""

    number = itertools.count()

    def do_GET(self):
        self._send({"data": []})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = f"```\n{rewrite(body['messages'][-1]['content'], next(self.number))}\n```"
        self._send({"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]})

    def _send(self, value: Any):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        """Says nothing."""


@contextmanager
def serving_writer() -> Iterator[str]:
    """The address of what rewrites."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Writer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()


def main() -> None:
    """Climbs with both specs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("names", nargs="*", default=["documents", "system"], metavar="NAME")
    parser.add_argument("--runs", type=Path, default=Path("build/prompts"))
    asked = parser.parse_args()
    folder = asked.runs.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    specs = write_specs(folder)
    with serving_writer() as url:
        for name in asked.names:
            writer = ["--writer-endpoint", url, "--writer-model", "cutter"]
            print(show_climb(str(specs[name]), folder / name, *writer), flush=True)


if __name__ == "__main__":
    main()
