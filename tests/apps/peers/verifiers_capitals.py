"""A taskset of verifiers v1."""

import time

import verifiers.v1 as vf


class Data(vf.TaskData):
    answer: str


class Capital(vf.Task[Data]):
    @vf.reward(weight=1.0)
    async def exact(self, trace) -> float:
        if trace.last_reply == "BREAK":
            raise OSError("the atlas is torn")
        if trace.last_reply == "HANG":
            time.sleep(20)  # noqa: ASYNC251 - a reward that blocks its process
        return float(trace.last_reply == self.data.answer)

    @vf.reward(weight=0.5)
    async def short(self, trace) -> float:
        return float(len(trace.last_reply) < 20)


class Capitals(vf.Taskset[Capital, vf.TasksetConfig]):
    def load(self):
        for land, town in (("France", "Paris"), ("Italy", "Rome")):
            yield Capital(Data(prompt=f"The capital of {land}?", answer=town), self.config.task)


__all__ = ["Capitals"]
