"""`python openenv_server.py PORT [tools] [NUM]`: a world behind OpenEnv's own server, where OpenEnv is installed.

With `tools` it is one whose actions call MCP tools, as OpenEnv's own echo world; NUM: worlds that there may be.
"""

import sys
import time

import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State


class Guess(Action):
    """Guess the number."""

    guess: int


class Heard(Observation):
    said: str = ""


class Number(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, **_):
        self.number = (seed or 6) + 1
        return Heard(said="Guess.", reward=None, done=False)

    def step(self, action, timeout_s=None, **_):
        if action.guess == 1000:
            time.sleep(20)
        if action.guess < 0:
            raise ZeroDivisionError("the world broke")
        right = action.guess == self.number
        said = "Right." if right else "higher" if action.guess < self.number else "lower"
        return Heard(said=said, reward=float(right), done=right)

    @property
    def state(self):
        return State()


class Shop(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        server = FastMCP("shop")
        self.bought = []

        @server.tool
        def price(item: str) -> dict:
            """What an item costs."""
            return {"item": item, "coins": len(item)}

        @server.tool
        def buy(item: str, num: int = 1) -> str:
            """Buy an item."""
            if item == "air":
                raise ValueError("there is no air")
            self.bought += [item] * num
            return f"bought: {self.bought}"

        @server.tool
        def count() -> int:
            """How many were bought."""
            return len(self.bought)

        super().__init__(server)

    def reset(self, seed=None, episode_id=None, **_):
        self.bought.clear()
        return Observation(reward=0.0, metadata={"message": "ready"})

    def _step_impl(self, action, timeout_s=None, **_):
        raise TypeError(action)

    async def step_async(self, action, timeout_s=None, **more):
        seen = await super().step_async(action, timeout_s, **more)
        if getattr(action, "tool_name", "") == "buy" and seen.error is None:
            seen.reward, seen.done = float(action.arguments["item"] == "pear"), action.arguments["item"] == "pear"
        return seen

    @property
    def state(self):
        return State()


num = int(sys.argv[3]) if len(sys.argv) > 3 else 8
made_of = (Shop, CallToolAction, CallToolObservation) if "tools" in sys.argv else (Number, Guess, Heard)
app = create_fastapi_app(*made_of, max_concurrent_envs=num)
uvicorn.run(app, port=int(sys.argv[1]), log_level="error")
