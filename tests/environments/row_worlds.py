"""A class for rows that bring their own tools."""

import os
import time

from rlf.apps.bench.rows import RowWorld


class Adder(RowWorld):
    """Adds up to 3; what the model wrote is what counts, where it is known."""

    def __init__(self, start=0):
        self.total, self.written = start, None

    def reset(self, task, seed):
        self.goal = task.columns["answer"]

    def call(self, tool, arguments):
        what = arguments.get("what")
        if what == "hang":
            time.sleep(60)
        if what == "break":
            raise RuntimeError("the world is broken")
        if what == "leave":
            os._exit(3)
        self.total += arguments.get("amount", 0)
        return f"{tool}: {self.total}"

    def reply(self, text):
        return "Call a tool." if text == "what?" else None

    def review(self, turns):
        self.written = [name for turn in turns for name, _ in turn["calls"]]

    def score(self):
        written = float(len(self.written)) if self.written is not None else 0.0
        return {"exact": float(self.total == self.goal), "written": written}
