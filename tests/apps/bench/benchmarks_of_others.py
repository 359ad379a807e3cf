"""A benchmark as a package of others would bring it."""

from rlf.apps.bench.kind import Benchmark, Play
from rlf.apps.bench.rows import RowWorld


class Echo(Benchmark):
    """Says what it is told."""

    title = "Whether a model calls `say` with a word"
    licence = "none"
    num: int = 4

    def rows(self):
        tool = {"name": "say", "parameters": {"type": "object", "properties": {"word": {"type": "string"}}}}
        for number in range(self.num):
            yield {"id": f"echo_{number}", "kind": f"kind_{number % 2}", "prompt": f"Say {number}.", "tools": [tool]}

    @property
    def play(self):
        return Play(("said",), f"{__name__}:EchoWorld", rollout={"max_turns": 1, "max_total_tokens": 4096})

    def summary(self, rates):
        return {"mean_of_kinds": sum(rate for rate, _ in rates.values()) / len(rates)}


class EchoWorld(RowWorld):
    def __init__(self):
        self.said = False

    def review(self, turns):
        self.said = any(name == "say" for turn in turns for name, _ in turn["calls"])

    def score(self):
        return {"said": float(self.said)}
