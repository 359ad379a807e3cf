"""An MCP server with a state and lifecycle tools.

With `keyed` it keeps worlds apart by an argument; with `scoreless` it has no tool that scores;
with `drawing` its state has identifiers of its own, as keys too.
"""

import os
import sys
import time
from uuid import uuid4

from mcp.server.mcpserver import MCPServer

server = MCPServer("vault")
worlds = {}


def look(place: str) -> str:
    """Look at a place: desk or shelf."""
    return look_in("", place)


def look_in(world: str, place: str) -> str:
    """Look at a place: desk or shelf."""
    if place == "maze":
        time.sleep(20)
    if place == "quake":
        os._exit(1)
    if place == "cellar":
        raise ValueError("there is no cellar")
    return f"A note: {worlds[world]['code']}" if place == "desk" else "Nothing."


def open_in(world: str, code: str) -> str:
    """Open the vault by its code."""
    worlds[world]["visits"] += [code] if "drawing" in sys.argv else []
    worlds[world]["opened"] |= code == worlds[world]["code"]
    return "It is open." if worlds[world]["opened"] else "It is closed."


def open_vault(code: str) -> str:
    """Open the vault by its code."""
    return open_in("", code)


def reset_state(code: str, seed: int, world: str = "") -> str:
    """Begin again."""
    worlds[world] = {"code": code, "opened": False, "seed": seed, "visits": []}
    return "ready"


def greet(world: str = "") -> str:
    """Say what there is to do."""
    return f"Open the vault; the code has {len(worlds[world]['code'])} signs."


def get_score(world: str = "") -> dict[str, float]:
    """Score the state."""
    if worlds[world]["code"] == "BROKEN":
        raise ValueError("no score today")
    return {"opened": float(worlds[world]["opened"])}


def save_state(world: str = "") -> dict[str, object]:
    """Write the state down."""
    visits = {str(uuid4()): {"by": code, "token": hash(code)} for code in worlds[world]["visits"]}
    return {"opened": worlds[world]["opened"], "visits": visits}


def forget(world: str) -> str:
    """End a world."""
    del worlds[world]
    return f"{len(worlds)} left"


is_keyed = "keyed" in sys.argv
for tool in (reset_state, greet, get_score, save_state):
    if tool is not get_score or "scoreless" not in sys.argv:
        server.add_tool(tool)
server.add_tool(look_in if is_keyed else look, name="look")
server.add_tool(open_in if is_keyed else open_vault, name="open")
if is_keyed:
    server.add_tool(forget)
server.run()
