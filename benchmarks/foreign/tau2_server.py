"""A domain of tau2 as an MCP server: `reset_state` and `show_state` are for rlf, the domain's tools for the policy.

`python tau2_server.py retail` serves; `python tau2_server.py retail rows` prints a row of each task, with its calls.
"""

import json
import sys
from importlib import import_module
from typing import Any

DOMAIN = sys.argv[1]
MOST = 300
"""Letters of a request: the built-in models take 1,024 tokens with the tools."""
domain = import_module(f"tau2.domains.{DOMAIN}.environment")


def write_rows() -> None:
    for task in domain.get_tasks():
        calls = [{"name": one.name, "arguments": one.arguments} for one in task.evaluation_criteria.actions or ()]
        words = str(task.user_scenario.instructions.reason_for_call)[:MOST]
        print(json.dumps({"question": words, "gold": calls}))


def serve() -> None:
    from mcp.server.mcpserver import MCPServer

    kit = domain.get_environment().tools
    stocked = kit.db.model_copy(deep=True)
    server = MCPServer(DOMAIN)

    @server.tool()
    def reset_state() -> str:
        """Begin again."""
        kit.db = stocked.model_copy(deep=True)
        return "ready"

    @server.tool()
    def show_state() -> Any:
        """Show the database."""
        return kit.db.model_dump(mode="json")

    for name, tool in kit.get_tools().items():
        server.add_tool(tool._func, name=name)
    server.run()


write_rows() if "rows" in sys.argv else serve()
