"""An MCP server with a scenario that is loaded and saved, and a line in a file for each of its processes.

With `leaky` the load keeps what was moved; with `sly` it keeps that too, and `save` does not show it; with `frail` the
second load of a process fails.
"""

import os
import sys
import time
from pathlib import Path

from mcp.server.mcpserver import MCPServer

server = MCPServer("depot")
places: dict[str, int] = {}
moves: list[str] = []
num_loads = 0


@server.tool()
def load_scenario(scenario: dict) -> str:
    """Begin from a scenario."""
    global num_loads
    num_loads += 1
    if "frail" in sys.argv and num_loads > 1:
        raise ValueError("loaded once only")
    if "leaky" not in sys.argv:
        places.clear()
    if "sly" not in sys.argv:
        moves.clear()
    places.update(scenario)
    return "loaded"


@server.tool()
def save_scenario() -> dict:
    """Show everything there is."""
    return {"places": places}


@server.tool()
def move(amount: int, source: str, target: str) -> str:
    """Move crates from one place to another."""
    if places.get(source, 0) < amount:
        raise ValueError(f"{source} has {places.get(source, 0)} crates")
    places[source] -= amount
    places[target] = places.get(target, 0) + amount
    moves.append(f"{source}-{target}")
    return f"Move {len(moves)}: {target} has {places[target]}."


@server.tool()
def wait_long() -> str:
    """Wait for a train."""
    time.sleep(30)
    return "It came."


@server.tool()
def fall_down() -> str:
    """Let the depot fall down."""
    os._exit(3)


with Path(sys.argv[1]).open("a") as file:
    file.write(f"{os.getpid()}\n")
server.run()
