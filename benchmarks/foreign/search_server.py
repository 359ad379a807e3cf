"""`python search_server.py PORT`: the built-in encyclopedia as an OpenEnv world whose actions call MCP tools."""

import sys

import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Observation, State

from rlf.builtin.encyclopedia import calculator, search


class Encyclopedia(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        server = FastMCP("encyclopedia")
        server.tool(search, name="search", description="Find passages about a person, a town, a river or a company.")
        server.tool(calculator, name="calculator", description="Work out an expression.")
        super().__init__(server)

    def reset(self, seed=None, episode_id=None, **_):
        return Observation(done=False, reward=None)

    def _step_impl(self, action, timeout_s=None, **_):
        return Observation(done=False, reward=None)

    @property
    def state(self):
        return State()


app = create_fastapi_app(Encyclopedia, CallToolAction, CallToolObservation, max_concurrent_envs=200)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
