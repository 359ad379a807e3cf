"""A taskset of verifiers v1 with a toolset that keeps a state, and with a setup and an end of its tasks."""

import verifiers.v1 as vf


class Sale(vf.State):
    total: int = 0


class Data(vf.TaskData):
    price: int


class Till(vf.Toolset[vf.ToolsetConfig, Sale]):
    async def setup_task(self, task):
        self.price = task.price

    @vf.tool
    async def ring(self, count: int) -> str:
        """Rings up a number of items."""
        if count < 1:
            raise ValueError("count is at least 1")
        self.state.total += count * self.price
        return f"The total is {self.state.total}."


class Sell(vf.Task[Data, Sale]):
    async def setup(self, trace, runtime):
        await runtime.write("drawer", b"10")

    async def finalize(self, trace, runtime):
        trace.info["drawer"] = int(await runtime.read("drawer")) + trace.state.total

    @vf.stop
    async def is_full(self, trace: vf.Trace) -> bool:
        return trace.state.total > 50

    @vf.reward
    async def drawer(self, trace) -> float:
        return float(trace.info["drawer"])

    @vf.metric
    async def calls(self, trace) -> float:
        return float(len(trace.tool_messages))

    @classmethod
    def toolsets(cls, config):
        return [Till(vf.ToolsetConfig())]


class Guarded(Sell):
    NEEDS_CONTAINER = True

    @vf.intercept
    async def censor(self, request: vf.Request):
        return None

    @classmethod
    def toolsets(cls, config):
        return [Till(vf.ToolsetConfig(url="http://127.0.0.1:9/mcp"))]


class Config(vf.TasksetConfig):
    guarded: bool = False


class Sales(vf.Taskset[Sell, Config]):
    def load(self):
        for price in (3, 4):
            made_by = Guarded if self.config.guarded else Sell
            yield made_by(Data(prompt=f"One costs {price}.", price=price), self.config.task)


class Haggle(vf.SingleAgentEnv):
    """An Env of its own, by which a package that exports it is played."""

    async def run(self, task, agents):
        await super().run(task, agents)

    async def finalize(self, task, episode):
        episode.traces[0].record_metric("haggled", 1.0)


class Clerk(vf.Harness):
    """A harness of its own."""


__all__ = ["Sales"]
