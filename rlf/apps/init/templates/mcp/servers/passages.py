"""The MCP server of this project: its tool `search` looks into data/passages.jsonl. Any client can start it."""

import json
import re
from pathlib import Path

from mcp.server.mcpserver import MCPServer

NUM_FOUND = 2
FILE = Path(__file__).parents[1] / "data" / "passages.jsonl"
server = MCPServer("passages")


def words(text: str) -> frozenset[str]:
    """The words of a text, in small letters."""
    return frozenset(re.findall(r"[a-z0-9]+", text.lower()))


with FILE.open(encoding="utf-8") as lines:
    TEXTS = [json.loads(line)["text"] for line in lines if line.strip()]
PASSAGES = [(text, words(text)) for text in TEXTS]


@server.tool()
async def search(query: str) -> str:
    """Find passages about a person, a town, a river or a company."""
    wanted = words(query)
    scored = [(len(wanted & found), -place) for place, (_, found) in enumerate(PASSAGES)]
    best = [-place for score, place in sorted(scored, reverse=True)[:NUM_FOUND] if score]
    return "\n".join(PASSAGES[place][0] for place in best) or "No passage found."


if __name__ == "__main__":
    server.run()
